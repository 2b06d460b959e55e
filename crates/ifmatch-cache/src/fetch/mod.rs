//! Requests to the origin: shared by the clients that wait for them, and stored on their way.
//!
//! - A **plan** (`ForwardPlan`) comes from the lookup: why to ask the origin, which stored response to validate or complete, and the
//!   flight key. After a wait, another lookup may replace it.
//! - A **flight** is a request to the origin that others can wait for: those for the same URI with an equal flight key. It lasts until the
//!   body has arrived, so later requests join it, too. An invalidation keeps new ones from joining.
//! - Its **leader** (`FlightLeader`) asks the origin, in a task that goes on without its client, and tells the others the outcome. A
//!   leader that is dropped without an outcome lets them ask for themselves; one that is late is joined by another of the same flight.
//! - Its **followers** wait. One that the outcome doesn't answer joins or leads another flight, and finally asks for itself.
//! - A **tally** (`RequestTally`) counts the outcome of a client's request once, when it is dropped. The outcome is "abandoned" until
//!   another is set. Background requests have none.
//!
//! `forward` has a client's request, from its plan to its response; `single_flight` has the flights. `origin` is one request to the origin,
//! with the conditions of `revalidation`, and `fill` moves its body into the store. `resume` requests the rest of a body.

mod fill;
pub(crate) mod forward;
mod head;
pub(crate) mod origin;
pub(crate) mod resume;
pub(crate) mod revalidation;
pub(crate) mod single_flight;
