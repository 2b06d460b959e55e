//! The tables of benches/scoreboard.md.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use super::Score;
use super::servers::Part;
use xtask::Result;
use xtask::workspace::Workspace;

/// The page, below the root of the workspace.
const PAGE: &str = "benches/scoreboard.md";
/// The line after a generated part.
const END: &str = "<!-- end -->";

/// A column: a heading, and the checks that must all say yes.
type Column = (&'static str, &'static [&'static str]);

const OF_HTTP: [Column; 9] = [
    (
        "strong tags, new with every write",
        &["GET names a strong tag", "a write changes the tag"],
    ),
    (
        "a stale write is rejected",
        &[
            "If-Match with an old tag rejects PUT",
            "If-Match with an old tag rejects DELETE",
            "If-Match with another tag rejects PUT",
        ],
    ),
    (
        "one of 16 writers wins",
        &["one of 16 concurrent replacements succeeds"],
    ),
    (
        "one of 16 creators wins",
        &[
            "If-None-Match: * rejects PUT of an existing resource",
            "one of 16 concurrent creates succeeds",
        ],
    ),
    (
        "dates guard writes",
        &["If-Unmodified-Since with an earlier date rejects PUT"],
    ),
    ("304", &["If-None-Match with the current tag: 304 to GET"]),
    (
        "304 to the weak tag",
        &["If-None-Match with the weak tag: 304"],
    ),
    (
        "ranges",
        &[
            "a range from the start",
            "a range to the end",
            "the last bytes",
        ],
    ),
    (
        "`If-Range`",
        &[
            "If-Range with the current tag: the range",
            "If-Range with an old tag: all of the new content",
            "If-Range with another tag: all of the content",
        ],
    ),
];

const OF_S3: [Column; 5] = [
    (
        "a write changes the version",
        &[
            "a write changes the version",
            "a write returns the version of the next read",
        ],
    ),
    (
        "a second creation is rejected",
        &["a creation is rejected if the object exists"],
    ),
    (
        "a stale write is rejected",
        &[
            "a replacement of an old version is rejected",
            "a replacement of an absent object is rejected",
        ],
    ),
    (
        "one of 16 creators wins",
        &["one of 16 concurrent creates succeeds"],
    ),
    (
        "one of 16 writers wins",
        &["one of 16 concurrent replacements succeeds"],
    ),
];

impl Part {
    /// Returns the line before the part of the page.
    fn start(self) -> &'static str {
        match self {
            Self::Http => "<!-- written by cargo xtask scoreboard -->",
            Self::S3 => "<!-- written by cargo xtask scoreboard --s3 -->",
        }
    }

    fn columns(self) -> &'static [Column] {
        match self {
            Self::Http => &OF_HTTP,
            Self::S3 => &OF_S3,
        }
    }
}

/// Writes the results between the marks of the page.
pub(super) fn write(workspace: &Workspace, part: Part, scores: &[&Score]) -> Result {
    let (file, start) = (workspace.root().join(PAGE), part.start());
    let text = fs::read_to_string(&file)?;
    let parts = text
        .split_once(start)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{PAGE} lacks {start} or {END}"))?;
    let (table, findings) = (table(part, scores), findings(scores)?);
    fs::write(
        &file,
        format!("{before}{start}\n\n{table}\n{findings}\n{END}{after}"),
    )?;
    println!("written: {PAGE}");
    Ok(())
}

/// Returns the table of the servers of a part.
pub(super) fn table(part: Part, scores: &[&Score]) -> String {
    let columns = part.columns();
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |Score { name, report, .. }: &&Score| {
        let cells: Vec<&str> = columns
            .iter()
            .map(|(_, checks)| cell(report, checks))
            .collect();
        let counts: Vec<String> = ["yes", "differs", "no"]
            .iter()
            .map(|result| report[result].to_string())
            .collect();
        format!(
            "| **{name}** | {} | {} |\n",
            cells.join(" | "),
            counts.join(" / ")
        )
    };
    let rows: String = scores.iter().map(row).collect();
    let line = "---|".repeat(columns.len() + 1);
    format!(
        "| server | {} | yes / differs / NO |\n|---|{line}\n{rows}",
        headings.join(" | ")
    )
}

/// Returns the worst result of some checks.
fn cell(report: &Value, checks: &[&str]) -> &'static str {
    let results: Vec<&str> = checks.iter().map(|name| result(report, name)).collect();
    let order = [
        ("no", "**NO**"),
        ("differs", "differs"),
        ("unchecked", "–"),
        ("yes", "yes"),
    ];
    let worst = order.iter().find(|(result, _)| results.contains(result));
    worst.map_or("?", |(_, shown)| *shown)
}

fn result<'a>(report: &'a Value, name: &str) -> &'a str {
    let checks = report["checks"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = checks.iter().find(|check| check["check"] == name);
    found
        .and_then(|check| check["result"].as_str())
        .unwrap_or_default()
}

/// Returns each check that says NO or differs, by server.
fn findings(scores: &[&Score]) -> Result<String> {
    let mut text = String::new();
    for Score {
        name,
        version,
        report,
        ..
    } in scores
    {
        writeln!(text, "### {name}\n\n{version}\n")?;
        let checks = report["checks"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let of =
            |result: &'static str| checks.iter().filter(move |check| check["result"] == result);
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
    format!(
        "{} (§{}): {}",
        part("check"),
        part("section"),
        part("detail")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_shows_the_worst_result() {
        let check = |name: &str, result: &str| json!({ "check": name, "result": result });
        let report =
            json!({ "checks": [check("a", "yes"), check("b", "differs"), check("c", "no")] });
        assert_eq!(cell(&report, &["a"]), "yes");
        assert_eq!(cell(&report, &["a", "b"]), "differs");
        assert_eq!(cell(&report, &["c", "b", "a"]), "**NO**");
        assert_eq!(cell(&report, &["none"]), "?");
    }

    #[test]
    fn the_columns_name_checks_that_exist() {
        let root = Workspace::load()
            .unwrap()
            .root()
            .join("crates/ifmatch-gateway-commands/src/check");
        let text: String = ["cases.txt", "tags.rs", "races.rs", "store.rs"]
            .map(|file| fs::read_to_string(root.join(file)).unwrap())
            .concat();
        for name in OF_HTTP.iter().chain(&OF_S3).flat_map(|(_, checks)| *checks) {
            let methods =
                ["PUT", "GET", "DELETE"].map(|method| name.replacen(method, "{method}", 1));
            assert!(
                text.contains(name) || methods.iter().any(|name| text.contains(name)),
                "{name}"
            );
        }
    }
}
