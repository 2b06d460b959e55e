//! Bad requests to the endpoints, as bytes on the wire. Those to blobs are cases of tests/blackbox.

use support::raw::exchange;

use crate::serve;

#[test]
fn the_endpoints_reject_bad_requests_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = serve(folder.path(), &[]);
    for (sent, status) in [
        ("GET /-/health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        ("GET /-/health HTTP/1.1\r\n\r\n", 400),
        ("GET /-/health HTTP/1.0\r\n\r\n", 200),
        ("POST /-/leases/c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
    ] {
        exchange(gateway.address(), sent).expect(status);
    }
}
