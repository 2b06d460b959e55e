//! Leases as human-readable text.

use serde_json::Value;

/// The header of the [rows](row).
pub(super) const HEADING: &str = "STATE      REMAINING  DURATION   TOKEN             HOLDER            PATH";

/// Returns a row of the table.
pub(super) fn row(lease: &Value) -> String {
    format!(
        "{:<9}  {:<9}  {:<9}  {:<16}  {:<16}  {}",
        text(lease, "state"),
        remaining(lease),
        duration(lease),
        token(lease),
        text(lease, "holder"),
        text(lease, "path")
    )
}

/// Returns all fields of one lease.
pub(super) fn one(lease: &Value) -> String {
    let lines = [
        ("path", text(lease, "path").to_owned()),
        ("state", text(lease, "state").to_owned()),
        ("remaining", remaining(lease)),
        ("duration", duration(lease)),
        ("token", token(lease)),
        ("holder", text(lease, "holder").to_owned()),
    ];
    lines.iter().map(|(name, value)| format!("{name:<9}  {value}")).collect::<Vec<_>>().join("\n")
}

fn text<'a>(lease: &'a Value, name: &str) -> &'a str {
    lease[name].as_str().unwrap_or("-")
}

fn remaining(lease: &Value) -> String {
    match (text(lease, "state"), lease["remaining"].as_u64()) {
        ("leased" | "breaking", Some(seconds)) => format!("{seconds}s"),
        ("leased" | "breaking", None) => "no end".to_owned(),
        _ => "-".to_owned(),
    }
}

fn duration(lease: &Value) -> String {
    match lease["duration"].as_u64() {
        Some(seconds) => format!("{seconds}s"),
        None if lease["infinite"] == true => "infinite".to_owned(),
        None => "-".to_owned(),
    }
}

fn token(lease: &Value) -> String {
    lease["token"].as_u64().map_or_else(|| "-".to_owned(), |token| token.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_align_with_the_header() {
        let lease = json!({ "path": "docs/a b", "state": "leased", "infinite": false, "duration": 15, "remaining": 9, "token": 1_763_730_000_000_000_u64, "holder": "host-7" });
        let row = row(&lease);
        for (heading, value) in [
            ("STATE", "leased"),
            ("REMAINING", "9s"),
            ("DURATION", "15s"),
            ("TOKEN", "1763"),
            ("HOLDER", "host-7"),
            ("PATH", "docs/a b"),
        ] {
            assert!(row[HEADING.find(heading).unwrap()..].starts_with(value), "{heading}: {row}");
        }
    }

    #[test]
    fn infinite_and_absent_leases_are_shown() {
        let endless = json!({ "path": "docs", "state": "leased", "infinite": true, "duration": null, "remaining": null, "token": 1 });
        assert!(one(&endless).contains("no end") && one(&endless).contains("infinite"));
        let none = json!({ "path": "docs", "state": "available", "infinite": false, "duration": null, "remaining": null, "token": null });
        assert_eq!(one(&none).matches('-').count(), 4, "{}", one(&none));
    }
}
