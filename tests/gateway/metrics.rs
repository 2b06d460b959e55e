//! The metrics after known requests.

use std::time::Duration;

use support::{Answer, Client, Gateway};

#[tokio::test]
async fn requests_are_counted_by_outcome() {
    let gateway = Gateway::start(["serve", "--store", "memory://", "--require-conditions"]);
    let client = Client::new(gateway.address());
    let tag = client.put("/c/a", &[("if-none-match", "*")], "12345").await.expect(201).etag().to_owned();
    client.put("/c/a", &[("if-none-match", "*")], "x").await.expect(412);
    client.put("/c/a", &[], "x").await.expect(428);
    client.get("/c/a", &[("if-none-match", &tag)]).await.expect(304);
    client.get("/c/a", &[]).await.expect(200);
    client.get("/c/none", &[]).await.expect(404);
    client.request(http::Method::from_bytes(b"BREW").unwrap(), "/c/a", &[], "").await.expect(405);

    let metrics = settled(&client).await;
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"ifmatch_requests_total{method="PUT",status="2xx"} 1"#,
        r#"ifmatch_requests_total{method="PUT",status="4xx"} 2"#,
        r#"ifmatch_requests_total{method="GET",status="3xx"} 1"#,
        r#"ifmatch_requests_total{method="GET",status="4xx"} 1"#,
        r#"ifmatch_requests_total{method="other",status="4xx"} 1"#,
        r#"ifmatch_conditions_total{outcome="met",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="not_modified",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-none-match"} 1"#,
        r#"ifmatch_conditions_total{outcome="failed",header="if-match"} 0"#,
        r#"ifmatch_conditions_total{outcome="required"} 1"#,
        r#"ifmatch_store_errors_total{kind="unavailable"} 0"#,
        r#"ifmatch_request_duration_seconds_count{method="PUT"} 3"#,
        r"ifmatch_requests_in_flight 1",
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line} is missing in\n{}", metrics.text());
    }
    assert!(value(&metrics, r#"ifmatch_register_seconds_count{operation="swap",outcome="done"}"#) >= 1.0);
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="in"}"#) >= 5.0);
    assert!(value(&metrics, r#"ifmatch_body_bytes_total{direction="out"}"#) >= 5.0);
    assert!(value(&metrics, "ifmatch_connections") >= 1.0);
    assert!(metrics.text().contains("ifmatch_build_info{version="));
}

/// A request is counted once its response has been sent, which the client may notice before the gateway.
async fn settled(client: &Client) -> Answer {
    for _ in 0..3_000 {
        let metrics = client.get("/-/metrics", &[]).await.expect(200);
        if value(&metrics, r#"ifmatch_requests_total{method="other",status="4xx"}"#) >= 1.0
            && value(&metrics, "ifmatch_requests_in_flight") <= 1.0
        {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the requests were never counted");
}

fn value(metrics: &Answer, name: &str) -> f64 {
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is missing in\n{}", metrics.text())).parse().expect("a number")
}
