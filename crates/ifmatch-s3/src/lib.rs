//! The S3 dialect, spoken by unmodified S3 clients, over the same blobs as all other dialects.
//!
//! `s3s` speaks the protocol: XML, chunked bodies, and signatures. What it lacks or mistakes is mended around it. A request passes
//! through these modules:
//!
//! 1. `service` takes the request. `signature` checks what `s3s` leaves out of the signature, which `s3s` then verifies.
//! 2. `s3s` selects the operation, and asks `authorization` who may do what. `request_rules` refuses operations that `s3s` mistakes for
//!    others, and what would be ignored.
//! 3. `s3s` reads the body through `bodies`, which bounds and verifies it.
//! 4. `operations` carries the operation out on the store.
//! 5. `answer` corrects what `s3s` writes. Failures are in `error`, with their codes.
//!
//! The store decides everything: `conditions` reads a request's condition, which becomes its write's. The operations also share
//! `backend`, the store with its accounts, and `convert`, its values in S3's form.

mod answer;
mod authorization;
mod backend;
mod bodies;
mod conditions;
mod convert;
mod error;
mod operations;
mod request_rules;
mod service;
mod signature;

pub use answer::RequestId;
pub use service::S3Service;
pub use signature::is_presigned;
