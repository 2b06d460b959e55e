//! Tables in data files: one row per line, columns separated by bars, comments after `#`.

/// Returns the rows of a table.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| format!("{line} ").split("| ").map(|column| column.trim().to_owned()).collect()).collect()
}

/// Returns the rows of a table with columns separated by whitespace, without the header row.
pub(crate) fn words(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).skip(1);
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Parses a column with headers: `name: value ;; name: value`, or `-`.
pub(crate) fn fields(column: &str) -> Vec<(String, String)> {
    let lines = column.split(";;").map(str::trim).filter(|line| *line != "-");
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("not a header: {line}"));
            (name.trim().to_owned(), value.trim().replace("<>", ""))
        })
        .collect()
}

/// Borrows headers.
pub(crate) fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
