//! Conflicts: who loses and why, in `/-/conflicts` and beside the leases.

use serde_json::json;
use support::azure::Azure;
use support::{Client, Gateway};

const ID: &str = "936da01f-9abd-4d9d-80c7-02af85c822a8";

#[tokio::test]
async fn a_conflict_shows_what_was_sent_and_what_was_there() {
    let gateway = Gateway::on_folder(&["--require-conditions"]);
    let client = Client::new(gateway.address());
    let tag = client
        .put("/c/a%20b", &[("if-none-match", "*")], "one")
        .await
        .expect(201)
        .etag()
        .to_owned();
    for _ in 0..3 {
        client
            .put(
                "/c/a%20b",
                &[("if-match", "\"old\""), ("user-agent", "deploy/1")],
                "two",
            )
            .await
            .expect(412);
    }
    client.put("/c/other", &[], "two").await.expect(428);
    client
        .get("/c/a%20b", &[("if-none-match", &tag)])
        .await
        .expect(304);
    client
        .get("/c/a%20b", &[("if-match", "\"old\"")])
        .await
        .expect(412);
    let found = client.get("/-/conflicts", &[]).await.expect(200).json();
    assert_eq!(
        (&found["total"], &found["window"]),
        (&json!(5), &json!(600)),
        "{found}"
    );
    let paths = found["worst"].as_array().unwrap().iter();
    let worst: Vec<_> = paths
        .map(|path| {
            json!([
                path["path"],
                path["count"],
                path["uncertain"],
                path["statuses"]
            ])
        })
        .collect();
    assert_eq!(
        worst,
        [
            json!(["/c/a%20b", 4, 0, { "412": 4 }]),
            json!(["/c/other", 1, 0, { "428": 1 }])
        ]
    );
    let loser = json!({ "client": "127.0.0.1", "user_agent": "deploy/1", "product": "deploy/1", "count": 3, "uncertain": 0 });
    assert_eq!(
        (&found["clients"][0], &found["worst"][0]["clients"][0]),
        (&loser, &loser),
        "{found}"
    );
    let of_client = client
        .get("/-/conflicts?client=127.0.0.1&user_agent=deploy%2F1", &[])
        .await
        .expect(200)
        .json();
    assert_eq!(
        (
            &of_client["worst"][0]["count"],
            of_client["recent"].as_array().map(Vec::len)
        ),
        (&json!(3), Some(3))
    );
    let lost = client
        .get("/-/conflicts?path=%2Fc%2Fa%2520b&limit=2", &[])
        .await
        .expect(200)
        .json()["recent"]
        .clone();
    assert_eq!(lost.as_array().map(Vec::len), Some(2), "{lost}");
    let lost = &lost[1];
    assert_eq!(
        (&lost["method"], &lost["status"], &lost["by_lease"]),
        (&json!("PUT"), &json!(412), &json!(false))
    );
    assert_eq!(lost["conditions"], json!({ "if-match": "\"old\"" }));
    assert_eq!(
        (&lost["current"], &lost["user_agent"]),
        (&json!(tag), &json!("deploy/1"))
    );
    client.get("/-/conflicts?limit=0", &[]).await.expect(400);
    client.get("/-/conflicts?x=1", &[]).await.expect(400);
}

#[tokio::test]
async fn the_clients_that_a_lease_keeps_waiting_are_listed_with_it() {
    let gateway = Gateway::on_folder(&[]);
    let client = Client::new(gateway.address());
    let azure = Azure::development(client.clone());
    azure.create_container("docs").await.expect(201);
    azure.put("/docs/a", &[], "one").await.expect(201);
    let lease = [
        ("x-ms-lease-duration", "-1"),
        ("x-ms-proposed-lease-id", ID),
    ];
    azure.lease("/docs/a", "acquire", &lease).await.expect(201);
    let other = [("x-ms-lease-duration", "60")];
    azure.lease("/docs/a", "acquire", &other).await.expect(409);
    client
        .put("/docs/a", &[("user-agent", "plain/1")], "two")
        .await
        .expect(412);
    client
        .put("/docs/a", &[("user-agent", "plain/1")], "two")
        .await
        .expect(412);
    let listed = client.get("/-/leases", &[]).await.expect(200).json()["leases"][0].clone();
    let waiting = listed["waiting"].as_array().unwrap();
    let counts: Vec<_> = waiting
        .iter()
        .map(|one| one["count"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (waiting.len(), counts.iter().sum::<u64>()),
        (2, 3),
        "{listed}"
    );
    assert!(
        waiting
            .iter()
            .any(|one| one["user_agent"] == "plain/1" && one["count"] == 2),
        "{listed}"
    );

    // A break that names a lease leaves a later one alone.
    let token = listed["token"].as_u64().unwrap();
    let break_it =
        |token: u64| json!({ "action": "break", "period": 0, "token": token }).to_string();
    let json = [("content-type", "application/json")];
    let path = "/-/leases/docs/a";
    client
        .request(http::Method::POST, path, &json, break_it(token - 1))
        .await
        .expect(409);
    assert_eq!(
        client.get(path, &[]).await.expect(200).json()["state"],
        "leased"
    );
    client
        .request(http::Method::POST, path, &json, break_it(token))
        .await
        .expect(200);
    let broken = client.get(path, &[]).await.expect(200).json();
    assert_eq!(
        (&broken["state"], &broken["waiting"]),
        (&json!("broken"), &json!([]))
    );
}
