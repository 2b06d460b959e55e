//! The session in README.md, run with curl.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::command::Run;

/// Address in the document.
const DOCUMENTED: &str = "127.0.0.1:10000";

/// Runs the session against a gateway, and compares the first line of each response. Returns the time of the first response.
pub(super) fn run(root: &Path, address: &str) -> Result<Instant> {
    let text = fs::read_to_string(root.join("README.md"))?;
    let folder = std::env::temp_dir().join(format!("ifmatch-session-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut first = None;
    // The tag in the document, and that of this session.
    let mut tags: Option<(&str, String)> = None;
    for Exchange { command, status, tag } in exchanges(&text) {
        let mut command = command.replace(DOCUMENTED, address);
        if let Some((documented, found)) = &tags {
            command = command.replace(documented, found);
        }
        println!("$ {command}");
        let quiet = command.replace("curl ", "curl --silent --show-error ");
        let response = Run::new("sh", &folder).args(["-c", &quiet]).output()?;
        let Some(status) = status else { continue };
        first.get_or_insert_with(Instant::now);
        // A response may follow `100 Continue`.
        if !response.lines().any(|line| line.trim_end() == status) {
            return Err(format!("README.md promises {status}, but the response is\n{response}").into());
        }
        if let (None, Some(documented), Some(found)) = (&tags, tag, response.lines().find_map(etag)) {
            tags = Some((documented, found.to_owned()));
        }
    }
    fs::remove_dir_all(folder)?;
    first.ok_or_else(|| "README.md has no session".into())
}

/// A command and the head of its response.
#[derive(Debug, PartialEq)]
struct Exchange<'a> {
    command: &'a str,
    /// Absent if the command is not a request.
    status: Option<&'a str>,
    tag: Option<&'a str>,
}

/// Returns the exchanges of the document's session.
fn exchanges(text: &str) -> Vec<Exchange<'_>> {
    let session = text.split("\n## A session\n").nth(1).and_then(|rest| rest.split("\n```").nth(1)).unwrap_or_default();
    session
        .split("\n$ ")
        .skip(1)
        .filter_map(|exchange| {
            let mut lines = exchange.lines();
            Some(Exchange { command: lines.next()?, status: lines.next(), tag: lines.find_map(etag) })
        })
        .collect()
}

/// Returns the tag in a line of a response.
fn etag(line: &str) -> Option<&str> {
    line.strip_prefix("etag: ").map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_of_the_readme_is_found() {
        let text = include_str!("../../../../README.md");
        let exchanges = exchanges(text);
        let requests: Vec<_> = exchanges.iter().filter(|exchange| exchange.command.starts_with("curl ")).collect();
        assert_eq!(requests[0].status, Some("HTTP/1.1 201 Created"), "{exchanges:?}");
        assert!(requests[0].tag.is_some(), "{exchanges:?}");
        for request in requests {
            assert!(request.status.is_some_and(|status| status.starts_with("HTTP/1.1 ")), "{request:?}");
        }
    }
}
