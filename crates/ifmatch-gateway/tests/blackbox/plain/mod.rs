//! The plain dialect: HTTP as in RFC 9110.

mod conditions;
mod listing;
pub(crate) mod reads;
mod writes;

use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    writes::add(suite);
    reads::add(suite);
    listing::add_names(suite);
    listing::add(suite);
    conditions::add(suite);
    reads::add_ranges(suite);
}
