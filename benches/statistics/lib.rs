//! Medians with their spread, and the Markdown tables of benchmarks.

/// Returns the median of at least one number: of an even count, the larger one in the middle.
pub fn median(values: &[f64]) -> f64 {
    sorted(values.iter().copied())[values.len() / 2]
}

/// Returns the median with its spread, or a dash without numbers.
pub fn spread(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    match sorted(values).as_slice() {
        [] => "–".to_owned(),
        [only] => format!("{only:.digits$}"),
        all @ [least, .., most] => format!(
            "{:.digits$} ({least:.digits$}–{most:.digits$})",
            all[all.len() / 2]
        ),
    }
}

/// Returns ratios, round by round.
pub fn ratio(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter()
        .zip(other)
        .map(|(one, other)| one / other)
        .collect()
}

/// Returns a row of a table.
pub fn row(name: &str, cells: &[String]) -> String {
    format!("| {name} | {} |", cells.join(" | "))
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_has_its_spread() {
        assert_eq!(spread([3.0, 1.0, 2.04, 9.0, 2.0], 1), "2.0 (1.0–9.0)");
        assert_eq!(spread([1.5], 2), "1.50");
    }
}
