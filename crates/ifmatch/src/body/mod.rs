//! The bodies that the layer passes on: the request's to the inner service, and the response's to the client.

mod reader;
mod request;
mod response;

pub(crate) use reader::{ReadEnd, Reader};
pub(crate) use request::Received;
pub use request::RequestBody;
pub use response::ResponseBody;
pub(crate) use response::{Buffered, Rest};
