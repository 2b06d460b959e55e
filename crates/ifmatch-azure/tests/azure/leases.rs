//! Leases of containers.

use crate::support::fixture;

/// A former holder of the container's lease may not delete it late.
#[tokio::test]
async fn a_container_is_not_deleted_with_the_fencing_token_of_a_former_holder() {
    let client = fixture().await.client;
    let lease = async |fields: &[(&str, &str)]| {
        client
            .put("/box?restype=container&comp=lease", fields, "")
            .await
    };
    let acquire = [
        ("x-ms-lease-action", "acquire"),
        ("x-ms-lease-duration", "-1"),
    ];
    let former = lease(&acquire).await.expect(201);
    let release = [
        ("x-ms-lease-action", "release"),
        ("x-ms-lease-id", former.header("x-ms-lease-id")),
    ];
    lease(&release).await.expect(200);
    let holder = lease(&acquire).await.expect(201);
    let id = ("x-ms-lease-id", holder.header("x-ms-lease-id"));
    let delete = async |token: &str| {
        client
            .delete("/box?restype=container", &[id, ("lease-token", token)])
            .await
    };
    delete(former.header("lease-token"))
        .await
        .refused(412, "LeaseTokenSuperseded");
    delete(holder.header("lease-token")).await.expect(202);
}
