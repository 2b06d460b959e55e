//! Tables in data files: one case a line, columns between bars, `#` for comments.

/// The rows of a table, each as its columns.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| format!("{line} ").split("| ").map(|column| column.trim().to_owned()).collect()).collect()
}

/// The rows of a table whose columns are apart by white space, and whose first row names them.
pub(crate) fn words(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).skip(1);
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The field lines of a column: `name: value ;; name: value`, or `-`.
pub(crate) fn fields(column: &str) -> Vec<(String, String)> {
    let lines = column.split(";;").map(str::trim).filter(|line| *line != "-");
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line}"));
            (name.trim().to_owned(), value.trim().replace("<>", ""))
        })
        .collect()
}

/// Fields as clients take them.
pub(crate) fn borrowed(fields: &[(String, String)]) -> Vec<(&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
