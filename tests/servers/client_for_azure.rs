//! The client by Azure's API with `SharedKey`, on the gateway and on Azurite.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use ifmatch_client::{Azure, Client, ErrorKind};
use ifmatch_testbed::{Network, Proxy, azurite};
use support::azure::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use support::{Gateway, Server};
use tower::service_fn;

/// Far beyond the time that the updates take.
const PATIENCE: Duration = Duration::from_hours(1);

fn connection_string(address: SocketAddr) -> String {
    let endpoint = format!("http://{address}/{DEVELOPMENT_ACCOUNT}");
    format!(
        "AccountName={DEVELOPMENT_ACCOUNT};AccountKey={DEVELOPMENT_KEY};BlobEndpoint={endpoint}"
    )
}

fn client(address: SocketAddr) -> Client {
    let container =
        Azure::from_connection_string(&connection_string(address), "container").unwrap();
    Client::new(container).with_patience(PATIENCE)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_verifies_each_signature() {
    let gateway = Gateway::on_folder(&[]);
    let azure = support::azure::Azure::development(support::Client::new(gateway.address()));
    azure.create_container("container").await.expect(201);
    check(gateway.address()).await;
    refusals(gateway.address()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn azurite_verifies_each_signature() {
    let azurite = azurite::start().await;
    check(azurite.address()).await;
    refusals(azurite.address()).await;
}

async fn check(address: SocketAddr) {
    updates(|| client(address)).await;
    conditions(&client(address)).await;
    locks(&client(address)).await;
    jobs(&client(address)).await;
    lost_answers(address, client).await;
}

/// Of eight clients, none loses an update.
pub(crate) async fn updates(client: impl Fn() -> Client) {
    let task = |_| {
        let hits = client().json::<u64>("some folder/hits");
        tokio::spawn(async move {
            for _ in 0..20 {
                hits.update(|count| *count += 1).await.unwrap();
            }
        })
    };
    for done in join_all((0..8).map(task)).await {
        done.unwrap();
    }
    let hits = client().json::<u64>("some folder/hits");
    assert_eq!(hits.get().await.unwrap().unwrap().value, 160);
}

/// Of 16 creators, and then of 16 writers of one version, one succeeds. Its content is the one that is read.
async fn conditions(client: &Client) {
    let creator = |number: u64| async move { client.json::<u64>("note").create(number).await };
    let created: Vec<_> = join_all((0..16).map(creator))
        .await
        .into_iter()
        .filter_map(Result::ok)
        .collect();
    assert_eq!(created.len(), 1);
    let version = &created[0].version;
    let writer =
        |number: u64| async move { client.json::<u64>("note").replace(version, number).await };
    let written: Vec<_> = join_all((100..116).map(writer))
        .await
        .into_iter()
        .filter_map(Result::ok)
        .collect();
    assert_eq!(written.len(), 1);
    let read = client.json::<u64>("note").get().await.unwrap().unwrap();
    assert_eq!(
        (read.value, &read.version),
        (written[0].value, &written[0].version)
    );
    let late = client
        .json::<u64>("note")
        .replace(version, 9)
        .await
        .unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Conflict { .. }), "{late}");
    let late = client.backend().delete("note", version).await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Conflict { .. }), "{late}");
    client
        .backend()
        .delete("note", &read.version)
        .await
        .unwrap();
    assert!(client.json::<u64>("note").get().await.unwrap().is_none());
}

async fn locks(client: &Client) {
    let first = client.lock("locks/a").acquire().await.unwrap();
    assert!(
        client
            .lock("locks/a")
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let bill = client.json::<u64>("bill");
    bill.update_fenced(&first, |sum| *sum += 1).await.unwrap();
    let fence = first.fence();
    first.release().await.unwrap();
    let second = client
        .lock("locks/a")
        .try_acquire()
        .await
        .unwrap()
        .expect("a free lock");
    assert!(second.fence() > fence);
    second.release().await.unwrap();
}

/// The names of jobs come from the listing.
async fn jobs(client: &Client) {
    let queue = client.queue("jobs & <more>");
    assert!(queue.take(Duration::from_mins(1)).await.unwrap().is_none());
    queue.push(&"résumé").await.unwrap();
    let job = queue
        .take(Duration::from_mins(1))
        .await
        .unwrap()
        .expect("a job");
    assert_eq!(job.payload::<String>().unwrap(), "résumé");
    job.done().await.unwrap();
    assert!(
        client
            .backend()
            .list("jobs & <more>/")
            .await
            .unwrap()
            .is_empty()
    );
}

/// A write whose response or request is lost neither fails nor repeats its update.
pub(crate) async fn lost_answers(address: SocketAddr, client: fn(SocketAddr) -> Client) {
    let proxy = Proxy::start(address).await;
    let count = client(proxy.address()).json::<u64>("count");
    for number in 0..40 {
        let cut = if number % 2 == 0 {
            Network::CutAfterCommit
        } else {
            Network::CutBeforeSending
        };
        // The closure runs after the read, so it is the write that fails.
        let update = count.update(|count| {
            proxy.set(cut);
            *count += 1;
        });
        update.await.unwrap();
        assert_eq!(proxy.network(), Network::Whole, "nothing was lost");
    }
    assert_eq!(count.get().await.unwrap().unwrap().value, 40);
}

/// A wrong key and a missing container are refused at once, with Azure's code.
async fn refusals(address: SocketAddr) {
    let connection = connection_string(address);
    let other_key = connection.replace(DEVELOPMENT_KEY, "c2VjcmV0");
    for (connection, container, code) in [
        (&other_key, "container", "403"),
        (&connection, "no-such-container", "ContainerNotFound"),
    ] {
        let client = Client::new(Azure::from_connection_string(connection, container).unwrap());
        let error = client.json::<u64>("a").create(1).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(code), "{error}");
    }
}

#[tokio::test]
async fn a_listing_has_all_pages() {
    let service = service_fn(|request: Request<Incoming>| async move {
        let query = request.uri().query().unwrap_or_default();
        let page = match query {
            "restype=container&comp=list&prefix=a%2F&marker=" => {
                "<R><Blobs><Blob><Name>a/1</Name></Blob></Blobs><NextMarker>x y</NextMarker></R>"
            }
            "restype=container&comp=list&prefix=a%2F&marker=x%20y" => {
                "<R><Blobs><Blob><Name>a/2</Name></Blob></Blobs><NextMarker/></R>"
            }
            _ => "",
        };
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
            page.as_bytes(),
        ))))
    });
    let server = Server::start(service).await;
    let client =
        Client::new(Azure::new(&format!("http://{}/container", server.address())).unwrap());
    assert_eq!(client.backend().list("a/").await.unwrap(), ["a/1", "a/2"]);
}
