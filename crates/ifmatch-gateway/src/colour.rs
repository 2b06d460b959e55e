//! Colours on terminals.

use std::ffi::OsStr;
use std::io::IsTerminal;

/// Returns `true` if `out` is a terminal and `NO_COLOR` is not set (<https://no-color.org>).
pub(crate) fn is_wanted(out: &impl IsTerminal) -> bool {
    out.is_terminal() && !refuses(std::env::var_os("NO_COLOR").as_deref())
}

/// Returns `true` if this value of `NO_COLOR` disables colours: any text except the empty one.
fn refuses(no_color: Option<&OsStr>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_but_the_empty_one_refuses_colours() {
        for (no_color, expected) in [(None, false), (Some(""), false), (Some("1"), true), (Some("0"), true)] {
            assert_eq!(refuses(no_color.map(OsStr::new)), expected, "{no_color:?}");
        }
    }
}
