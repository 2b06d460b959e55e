//! The bodies that the layer passes on: the request's to the inner service, and the response's to the client.

mod reader;
mod request;
mod response;

pub(crate) use reader::{PartlyReadBody, ReadEnd};
pub(crate) use request::ReceivedBody;
pub use request::RequestBody;
pub use response::ResponseBody;
pub(crate) use response::{BodyRest, BufferedBody};
