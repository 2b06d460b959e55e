//! The plain dialect: HTTP as in RFC 9110.

mod conditions;
mod listing;
mod names;
pub(crate) mod ranges;
mod reads;
mod writes;

use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    writes::add(suite);
    reads::add(suite);
    names::add(suite);
    listing::add(suite);
    conditions::add(suite);
    ranges::add(suite);
}
