//! A recording of the first session: an SVG in which the commands appear one after the other, with their real output.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use xtask::Result;

use super::{Exchange, Page, Session};

/// The recording, and the page and section with its commands.
const FILE: &str = "docs/images/session.svg";
const PAGE: (&str, &str) = ("README.md", "A session");

/// Characters in a line.
const COLUMNS: usize = 96;
/// Sizes in pixels.
const LINE: usize = 19;
const MARGIN: usize = 16;
const WIDTH: usize = 800;
/// Seconds between commands.
const PAUSE: usize = 3;

const STYLE: &str = "
    rect { fill: #161b22; stroke: #30363d }
    text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #c9d1d9; white-space: pre }
    .prompt { fill: #7ee787 }
    .command { fill: #ffffff; font-weight: 600 }
    .ok { fill: #7ee787 }
    .refused { fill: #ffa198 }
    @media (prefers-reduced-motion: no-preference) {
      g { animation: appear 0.4s backwards }
      @keyframes appear { from { opacity: 0 } }
    }
  ";

/// Runs the session, and writes the recording.
pub(crate) fn write(repository: &Path) -> Result {
    fs::write(repository.join(FILE), recorded(repository)?)?;
    Ok(())
}

/// Runs the session, and returns the recording.
fn recorded(repository: &Path) -> Result<String> {
    let (page, section) = PAGE;
    let page = Page::parse(&fs::read_to_string(repository.join(page))?, Some(section));
    Ok(svg(&Session::start(&[])?.run(&page)?))
}

fn svg(exchanges: &[Exchange]) -> String {
    let mut body = String::new();
    let mut row = 0;
    for (index, exchange) in exchanges.iter().enumerate() {
        let delay = index * PAUSE;
        let _ = writeln!(body, "  <g style=\"animation-delay: {delay}s\">");
        for (at, line) in wrapped(&format!("$ {}", exchange.command)).iter().enumerate() {
            let prompt = if at == 0 { "<tspan class=\"prompt\">$ </tspan>" } else { "" };
            let line = if at == 0 { &line[2..] } else { line };
            text(&mut body, &mut row, "command", prompt, line);
        }
        for line in &exchange.output {
            for part in wrapped(line) {
                text(&mut body, &mut row, class(line), "", part);
            }
        }
        body.push_str("  </g>\n");
        row += 1;
    }
    let height = 2 * MARGIN + (row - 1) * LINE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\">\n  <title id=\"title\">A session with curl</title>\n  <style>{STYLE}</style>\n  \
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{body}</svg>\n",
        WIDTH - 1,
        height - 1
    )
}

/// Adds a line of text.
fn text(body: &mut String, row: &mut usize, class: &str, prefix: &str, line: &str) {
    let y = MARGIN + *row * LINE + 12;
    let line = line.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(body, "    <text class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\">{prefix}{line}</text>");
    *row += 1;
}

/// Returns the class of a line of output, by its status code.
fn class(line: &str) -> &'static str {
    match line.strip_prefix("HTTP/1.1 ").map(|status| status.as_bytes().first()) {
        Some(Some(b'2' | b'3')) => "ok",
        Some(_) => "refused",
        None => "output",
    }
}

/// Breaks a line after a space, or else between words, so that no value is divided.
fn wrapped(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = line;
    while let Some((limit, _)) = rest.char_indices().nth(COLUMNS) {
        let space = rest[..limit].rfind(' ').filter(|&at| at > COLUMNS / 2);
        let word = || rest[..limit].rfind(|letter: char| !letter.is_ascii_alphanumeric());
        let at = space.or_else(word).map_or(limit, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
        parts.push(&rest[..at]);
        rest = &rest[at..];
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::super::transcript::masked;
    use super::*;

    #[test]
    fn the_recording_is_current() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let committed = fs::read_to_string(repository.join(FILE)).unwrap();
        let fresh = recorded(&repository).unwrap();
        assert_eq!(masked(&committed), masked(&fresh), "run `cargo xtask docs --session`");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let name = "x".repeat(60);
        assert_eq!(wrapped(&format!("{name} {name}")), [format!("{name} "), name.clone()]);
        assert_eq!(wrapped(&format!("{name}-{name}")), [format!("{name}-"), name.clone()]);
        assert_eq!(wrapped("short"), ["short"]);
    }

    #[test]
    fn text_is_escaped_and_coloured_by_status() {
        let exchange =
            |command: &str, output: &str| Exchange { command: command.to_owned(), output: vec![output.to_owned()] };
        let svg = svg(&[exchange("a <b", "HTTP/1.1 412 Precondition Failed"), exchange("c", "d & e")]);
        assert!(
            svg.contains(r#"class="command" x="16" y="28"><tspan class="prompt">$ </tspan>a &lt;b</text>"#),
            "{svg}"
        );
        assert!(svg.contains(r#"class="refused" x="16" y="47">HTTP/1.1 412"#), "{svg}");
        assert!(svg.contains("animation-delay: 3s") && svg.contains("d &amp; e"), "{svg}");
    }
}
