//! Messages on their way through the proxy: heads, bodies, interim responses and upgrades.

pub(crate) mod attempts;
pub(crate) mod framing;
pub(crate) mod headers;
pub(crate) mod interim;
pub(crate) mod outgoing;
pub(crate) mod request_body;
pub(crate) mod response_body;
pub(crate) mod upgrade;
