//! Output on terminals: lines, colours, text of others, and the banner.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write, stdout};

use ifmatch_gateway_config::error::Error;
use ifmatch_gateway_config::settings::LogFormat;
use serde_json::json;

/// Escape sequences for styles, which are empty without colours.
#[derive(Clone, Copy)]
pub struct TextStyle {
    /// Starts bold text.
    pub(crate) bold: &'static str,
    /// Starts dim text.
    pub dim: &'static str,
    /// Starts red, bold text.
    pub(crate) alarm: &'static str,
    /// Ends each style.
    pub plain: &'static str,
}

impl TextStyle {
    /// Returns the styles, with or without colours.
    pub fn new(colours: bool) -> Self {
        if colours {
            Self {
                bold: "\u{1b}[1m",
                dim: "\u{1b}[2m",
                alarm: "\u{1b}[1;31m",
                plain: "\u{1b}[0m",
            }
        } else {
            Self {
                bold: "",
                dim: "",
                alarm: "",
                plain: "",
            }
        }
    }
}

/// Returns a number with its noun, such as "1 body" or "2 bodies".
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Returns text of others, such as the name of a file, with its control characters escaped: a terminal would obey them.
pub(crate) fn printable(text: &str) -> String {
    let shown = |character: char| {
        if character.is_control() {
            character.escape_default().collect()
        } else {
            String::from(character)
        }
    };
    text.chars().map(shown).collect()
}

/// Cuts text of others to this number of characters, with a mark of the cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let text = printable(text);
    match text.char_indices().nth(width) {
        None => text,
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
    }
}

/// Prints a line on stdout.
///
/// # Errors
/// Fails if the reader has closed the pipe.
pub fn print_line(line: &str) -> Result<(), Error> {
    print_text(&format!("{line}\n"))
}

/// Prints text on stdout.
///
/// # Errors
/// Fails if the reader has closed the pipe.
pub fn print_text(text: &str) -> Result<(), Error> {
    stdout()
        .lock()
        .write_all(text.as_bytes())
        .map_err(|error| Error::runtime(format!("can't write to stdout: {error}")))
}

/// Prints the name of the program and the `rest` of the banner, as text or with a JSON object for each line. Errors are ignored,
/// since a closed stdout isn't a reason to stop.
pub fn print_banner(
    format: LogFormat,
    rest: impl FnOnce(&mut dyn Write, TextStyle) -> io::Result<()>,
) {
    let out = stdout();
    let style = TextStyle::new(format == LogFormat::Text && supports_colour(&out));
    let out = &mut out.lock();
    let written = match format {
        LogFormat::Text => print_title(out, style).and_then(|()| rest(out, style)),
        LogFormat::Json => print_objects(out, |text| {
            print_title(text, style).and_then(|()| rest(text, style))
        }),
    };
    if let Err(error) = written.and_then(|()| out.flush()) {
        tracing::debug!(%error, "cannot print the banner");
    }
}

/// Prints an object for each line of a text, as the log does.
fn print_objects(
    out: &mut dyn Write,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut text = Vec::new();
    print(&mut text)?;
    for line in String::from_utf8_lossy(&text)
        .lines()
        .filter(|line| !line.is_empty())
    {
        writeln!(out, "{}", json!({ "level": "INFO", "message": line }))?;
    }
    Ok(())
}

/// Prints the name and the version of the program.
fn print_title(out: &mut dyn Write, style: TextStyle) -> io::Result<()> {
    writeln!(
        out,
        "{}ifmatch{} {}",
        style.bold,
        style.plain,
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns `true` if `out` is a terminal and `NO_COLOR` isn't set (<https://no-color.org>).
pub fn supports_colour(out: &impl IsTerminal) -> bool {
    out.is_terminal() && !disables(std::env::var_os("NO_COLOR").as_deref())
}

/// Returns `true` if this value of `NO_COLOR` disables colours: any text except the empty one.
fn disables(no_color: Option<&OsStr>) -> bool {
    no_color.is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[2Jä\n\u{9b}"), "a\\u{1b}[2Jä\\n\\u{9b}");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(
            [cut("äöü", 3), cut("äöüx", 3), cut("a\n", 3)],
            ["äöü", "äö…", "a\\n"]
        );
    }

    #[test]
    fn an_object_is_printed_for_each_line() {
        let mut out = Vec::new();
        print_objects(&mut out, |text| {
            write!(text, "a \"quoted\" name\n\nlistening on http://[::1]:1\n")
        })
        .unwrap();
        let lines: Vec<serde_json::Value> = out
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[1],
            json!({ "level": "INFO", "message": "listening on http://[::1]:1" })
        );
    }

    #[test]
    fn any_non_empty_value_disables_colours() {
        for (no_color, expected) in [
            (None, false),
            (Some(""), false),
            (Some("1"), true),
            (Some("0"), true),
        ] {
            assert_eq!(disables(no_color.map(OsStr::new)), expected, "{no_color:?}");
        }
    }
}
