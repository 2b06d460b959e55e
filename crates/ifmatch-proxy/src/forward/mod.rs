//! Messages on their way through the proxy: heads, bodies, interim responses and upgrades.
//!
//! 1. `request_body` takes the client's content, and lends it to one connection after the other.
//! 2. `headers` makes the header fields for the server, and `outgoing` the request, for HTTP/1.1 or HTTP/2.
//! 3. `interim` passes interim responses on. `framing` validates the final one.
//! 4. `attempts` decides whether to send the request again.
//! 5. `headers` makes the client's header fields, and `response_body` the body. After a 101, `upgrade` connects both sides.

pub(crate) mod attempts;
pub(crate) mod framing;
pub(crate) mod headers;
pub(crate) mod interim;
pub(crate) mod outgoing;
pub(crate) mod request_body;
pub(crate) mod response_body;
pub(crate) mod upgrade;
