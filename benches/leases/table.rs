//! Rows of a Markdown table.

/// Returns a row.
pub(crate) fn row(name: &str, cells: &[String]) -> String {
    format!("| {name} | {} |", cells.join(" | "))
}

/// Returns ratios, round by round.
pub(crate) fn ratio(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one / other).collect()
}
