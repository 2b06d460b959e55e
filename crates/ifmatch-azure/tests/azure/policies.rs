//! Stored access policies: what a signature that names one grants, and that it can be revoked.

use http::Method;

use crate::shared_access::{Token, ask, read};
use crate::support::{Answer, Client, fixture};

const ACL: &str = "/box?restype=container&comp=acl";
/// Number of races.
const RACES: usize = 1000;

fn document(policies: &[(&str, &str)]) -> String {
    let policy = |(id, limits): &(&str, &str)| {
        format!(
            "<SignedIdentifier><Id>{id}</Id><AccessPolicy>{limits}</AccessPolicy></SignedIdentifier>"
        )
    };
    format!(
        "<SignedIdentifiers>{}</SignedIdentifiers>",
        policies.iter().map(policy).collect::<String>()
    )
}

const EXPIRY: &str = "<Expiry>2100-01-01T00:00:00Z</Expiry>";

async fn set(client: &Client, policies: &[(&str, &str)]) -> Answer {
    client.put(ACL, &[], document(policies)).await.expect(200)
}

/// Returns a token that states no limits.
fn bare(kind: &str) -> Token {
    Token::service(kind, "")
        .with("st", "")
        .with("se", "")
        .with("si", "one")
}

#[tokio::test]
async fn a_policy_and_a_signature_state_each_limit_once() {
    let client = fixture().await.client;
    client.upload("/box/a", "bytes", &[]).await.expect(201);
    let both = format!("{EXPIRY}<Permission>r</Permission>");
    let past = "<Expiry>2020-09-13T00:00:01Z</Expiry><Permission>r</Permission>";
    let future = format!("<Start>2099-01-01</Start>{both}");
    for (limits, token, refused) in [
        (&*both, bare("c"), None),
        (&*both, bare("b"), None),
        ("", Token::service("c", "r").with("si", "one"), None),
        (EXPIRY, bare("c").with("sp", "r"), None),
        (
            "<Permission>r</Permission>",
            bare("c").with("se", "2100-01-01"),
            None,
        ),
        (
            &*both,
            bare("c").with("sp", "r"),
            Some("AuthenticationFailed"),
        ),
        (
            &*both,
            bare("c").with("se", "2100-01-01"),
            Some("AuthenticationFailed"),
        ),
        (
            &*future,
            bare("c").with("st", "2020-01-01"),
            Some("AuthenticationFailed"),
        ),
        (EXPIRY, bare("c"), Some("AuthenticationFailed")),
        (
            "<Permission>r</Permission>",
            bare("c"),
            Some("AuthenticationFailed"),
        ),
        (past, bare("c"), Some("AuthenticationFailed")),
        (&*future, bare("c"), Some("AuthenticationFailed")),
        (
            &*both,
            bare("c").with("si", "two"),
            Some("AuthenticationFailed"),
        ),
        (
            &*both,
            Token::service("c", "r").with("si", "two"),
            Some("AuthenticationFailed"),
        ),
        (
            &*both.replace(">r<", ">w<"),
            bare("c"),
            Some("AuthorizationPermissionMismatch"),
        ),
    ] {
        set(&client, &[("zero", ""), ("one", limits)]).await;
        let resource = if token.value("sr") == "b" {
            "/blob/photos/box/a"
        } else {
            "/blob/photos/box"
        };
        let answer = read(&client, "/box/a", &token.sign(resource)).await;
        match refused {
            Some(code) => answer.refused(403, code),
            None => drop(answer.expect(200)),
        }
    }
    // The signature for an account doesn't cover the name of a policy.
    let account = Token::account("b", "o", "r");
    let query = format!("{}&si=one", account.sign(""));
    read(&client, "/box/a", &query)
        .await
        .refused(403, "AuthenticationFailed");
}

#[tokio::test]
async fn a_signature_is_revoked_with_its_policy() {
    let client = fixture().await.client;
    client.upload("/box/a", "bytes", &[]).await.expect(201);
    let query = bare("c").sign("/blob/photos/box");
    let limits = format!("{EXPIRY}<Permission>rwd</Permission>");
    let source = format!("http://localhost/photos/box/a?{query}");
    let copying = [("host", "localhost"), ("x-ms-copy-source", &*source)];
    let part = format!(
        "--b\r\ncontent-type: application/http\r\n\r\nDELETE /photos/box/b?{query} HTTP/1.1\r\n\r\n\r\n--b--\r\n"
    );
    let batch = async || {
        let fields = [("content-type", "multipart/mixed; boundary=b")];
        let answer = client
            .send(Method::POST, "?comp=batch", &fields, part.clone())
            .await
            .expect(202);
        answer
            .text()
            .lines()
            .find(|line| line.starts_with("HTTP/1.1"))
            .expect("a status")
            .to_owned()
    };
    let refused = async || {
        read(&client, "/box/a", &query)
            .await
            .refused(403, "AuthenticationFailed");
        client
            .put("/box/b", &copying, "")
            .await
            .refused(403, "AuthenticationFailed");
        assert!(batch().await.contains(" 403 "), "{}", batch().await);
    };
    refused().await;
    // The policy of another container is none of this one's.
    client
        .put("/other?restype=container", &[], "")
        .await
        .expect(201);
    client
        .put(
            "/other?restype=container&comp=acl",
            &[],
            document(&[("one", &limits)]),
        )
        .await
        .expect(200);
    refused().await;

    let changed = set(&client, &[("one", &limits)]).await;
    read(&client, "/box/a", &query).await.expect(200);
    client.put("/box/b", &copying, "").await.expect(202);
    assert!(batch().await.contains(" 202 "));
    // A change of the metadata keeps the policies, and so does a change of the policies with the metadata.
    client
        .put(
            "/box?restype=container&comp=metadata",
            &[("x-ms-meta-a", "b")],
            "",
        )
        .await
        .expect(200);
    read(&client, "/box/a", &query).await.expect(200);
    let shown = client.get(ACL).await.expect(200);
    assert_eq!(
        (shown.all("Id"), shown.all("Permission"), shown.all("Start")),
        (vec!["one"], vec!["rwd"], vec![])
    );
    assert_ne!(shown.header("etag"), changed.header("etag"));

    // Neither the container's nor the account's signature may extend itself.
    for query in [
        bare("c").sign("/blob/photos/box"),
        Token::account("b", "sco", "racwdl").sign(""),
    ] {
        for method in ["GET", "PUT"] {
            let answer = ask(&client, method, ACL, &[], &query, None).await;
            answer.refused(403, "AuthorizationPermissionMismatch");
        }
    }
    set(&client, &[]).await;
    refused().await;
    let info = client
        .send(Method::HEAD, "/box?restype=container", &[], "")
        .await
        .expect(200);
    assert_eq!(info.header("x-ms-meta-a"), "b");

    set(&client, &[("one", &limits)]).await;
    client
        .delete("/box?restype=container", &[])
        .await
        .expect(202);
    client
        .put("/box?restype=container", &[], "")
        .await
        .expect(201);
    client.upload("/box/a", "bytes", &[]).await.expect(201);
    refused().await;
}

/// Both change what they have seen. The second would undo the first one's revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_changes_of_the_same_policies_wins() {
    let client = fixture().await.client;
    let mut seen = client
        .get(ACL)
        .await
        .expect(200)
        .header("last-modified")
        .to_owned();
    for round in 0..RACES {
        let race = ["a", "b"].map(|id| {
            let (client, seen) = (client.clone(), seen.clone());
            tokio::spawn(async move {
                client
                    .put(
                        ACL,
                        &[("if-unmodified-since", &seen)],
                        document(&[(id, EXPIRY)]),
                    )
                    .await
            })
        });
        let mut winners = Vec::new();
        for (racer, id) in race.into_iter().zip(["a", "b"]) {
            let answer = racer.await.expect("no panic");
            match (answer.status.as_u16(), answer.code()) {
                (200, _) => winners.push(id),
                (412, "ConditionNotMet") => {}
                _ => panic!("{answer:?}"),
            }
        }
        let shown = client.get(ACL).await.expect(200);
        assert_eq!(
            (winners.len(), shown.all("Id")),
            (1, winners),
            "round {round}"
        );
        shown.header("last-modified").clone_into(&mut seen);
    }
}
