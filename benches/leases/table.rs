//! Rows of a Markdown table, and medians with their spread.

/// Returns a row.
pub(crate) fn row(name: &str, cells: &[String]) -> String {
    format!("| {name} | {} |", cells.join(" | "))
}

/// Returns ratios, round by round.
pub(crate) fn ratio(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one / other).collect()
}

/// Returns the median of at least one number.
pub(crate) fn median(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

/// Returns the median with its spread.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    match sorted(values).as_slice() {
        [] => "–".to_owned(),
        [only] => format!("{only:.digits$}"),
        [least, .., most] => format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(values)),
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}
