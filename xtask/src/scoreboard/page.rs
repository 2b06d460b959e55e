//! The tables of docs/scoreboard.md.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use super::Score;
use crate::Result;
use crate::workspace::Workspace;

/// The page.
const PAGE: &str = "docs/scoreboard.md";
/// The lines around the generated part.
const START: &str = "<!-- written by cargo xtask scoreboard -->";
const END: &str = "<!-- end -->";

/// Columns: a heading, and the checks that must all say yes.
const COLUMNS: [(&str, &[&str]); 9] = [
    ("strong tags, new with every write", &["GET names a strong tag", "a write changes the tag"]),
    (
        "a stale write is rejected",
        &[
            "If-Match with an old tag rejects PUT",
            "If-Match with an old tag rejects DELETE",
            "If-Match with another tag rejects PUT",
        ],
    ),
    ("one of 16 writers wins", &["of 16 writers of one version, one succeeds"]),
    (
        "one of 16 creators wins",
        &["If-None-Match: * rejects PUT of an existing resource", "of 16 creators, one succeeds"],
    ),
    ("dates guard writes", &["If-Unmodified-Since with an earlier date rejects PUT"]),
    ("304", &["If-None-Match with the current tag: 304 to GET"]),
    ("304 to the weak tag", &["If-None-Match with the weak tag: 304"]),
    ("ranges", &["a range from the start", "a range to the end", "the last bytes"]),
    (
        "`If-Range`",
        &[
            "If-Range with the current tag: the range",
            "If-Range with an old tag: all of the new content",
            "If-Range with another tag: all of the content",
        ],
    ),
];

/// Writes the results between the marks of the page.
pub(super) fn write(workspace: &Workspace, scores: &[Score]) -> Result {
    let file = workspace.root().join(PAGE);
    let text = fs::read_to_string(&file)?;
    let parts = text.split_once(START).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} lacks {START} or {END}"))?;
    let (table, dangers) = (table(scores), dangers(scores)?);
    fs::write(&file, format!("{before}{START}\n\n{table}\n{dangers}\n{END}{after}"))?;
    println!("written: {PAGE}");
    Ok(())
}

/// Returns the table of all servers.
pub(super) fn table(scores: &[Score]) -> String {
    let headings: Vec<&str> = COLUMNS.iter().map(|(heading, _)| *heading).collect();
    let row = |Score { name, report, .. }: &Score| {
        let cells: Vec<&str> = COLUMNS.iter().map(|(_, checks)| cell(report, checks)).collect();
        let counts: Vec<String> = ["yes", "differs", "no"].iter().map(|result| report[result].to_string()).collect();
        format!("| **{name}** | {} | {} |\n", cells.join(" | "), counts.join(" / "))
    };
    let rows: String = scores.iter().map(row).collect();
    let line = "---|".repeat(COLUMNS.len() + 1);
    format!("| server | {} | yes / differs / NO |\n|---|{line}\n{rows}", headings.join(" | "))
}

/// Returns the worst result of some checks.
fn cell(report: &Value, checks: &[&str]) -> &'static str {
    let results: Vec<&str> = checks.iter().map(|name| result(report, name)).collect();
    let order = [("no", "**NO**"), ("differs", "differs"), ("unchecked", "–"), ("yes", "yes")];
    let worst = order.iter().find(|(result, _)| results.contains(result));
    worst.map_or("?", |(_, shown)| *shown)
}

fn result<'a>(report: &'a Value, name: &str) -> &'a str {
    let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = checks.iter().find(|check| check["check"] == name);
    found.and_then(|check| check["result"].as_str()).unwrap_or_default()
}

/// Returns each check that says NO, by server.
fn dangers(scores: &[Score]) -> Result<String> {
    let mut text = String::new();
    for Score { name, version, report } in scores {
        writeln!(text, "### {name}\n\n{version}\n")?;
        let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |result: &'static str| checks.iter().filter(move |check| check["result"] == result);
        for check in of("no") {
            writeln!(text, "- **NO**: {}", line(check))?;
        }
        for check in of("differs") {
            writeln!(text, "- differs: {}", line(check))?;
        }
        if of("no").chain(of("differs")).next().is_none() {
            writeln!(text, "All checks say yes.")?;
        }
        writeln!(text)?;
    }
    Ok(text.trim_end().to_owned() + "\n")
}

fn line(check: &Value) -> String {
    let part = |name: &str| check[name].as_str().unwrap_or_default();
    format!("{} (§{}): {}", part("check"), part("section"), part("detail"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_shows_the_worst_result() {
        let check = |name: &str, result: &str| json!({ "check": name, "result": result });
        let report = json!({ "checks": [check("a", "yes"), check("b", "differs"), check("c", "no")] });
        assert_eq!(cell(&report, &["a"]), "yes");
        assert_eq!(cell(&report, &["a", "b"]), "differs");
        assert_eq!(cell(&report, &["c", "b", "a"]), "**NO**");
        assert_eq!(cell(&report, &["none"]), "?");
    }

    #[test]
    fn the_columns_name_checks_that_exist() {
        let root = Workspace::load().unwrap().root().join("crates/ifmatch-gateway/src/commands/check");
        let text: String =
            ["cases.txt", "tags.rs", "races.rs"].map(|file| fs::read_to_string(root.join(file)).unwrap()).concat();
        for name in COLUMNS.iter().flat_map(|(_, checks)| *checks) {
            let methods = ["PUT", "GET", "DELETE"].map(|method| name.replacen(method, "{method}", 1));
            assert!(text.contains(name) || methods.iter().any(|name| text.contains(name)), "{name}");
        }
    }
}
