//! The tables of a run: medians of the rounds with their spread.

use statistics::{row, spread};

use crate::load::Round;

/// Rounds of one row and column.
pub(crate) type Cell = Vec<Round>;

/// Returns a Markdown table with one number per row and column.
pub(crate) fn table(
    title: &str,
    rows: &[&str],
    columns: &[&str],
    cell: impl Fn(usize, usize) -> String,
) -> String {
    let mut lines = vec![
        String::new(),
        format!("| {title} | {} |", columns.join(" | ")),
        format!("|---|{}", "---|".repeat(columns.len())),
    ];
    for (line, name) in rows.iter().enumerate() {
        let cells: Vec<String> = (0..columns.len())
            .map(|column| cell(line, column))
            .collect();
        lines.push(row(name, &cells));
    }
    lines.join("\n")
}

/// Returns the requests per second, in thousands.
pub(crate) fn rate(cell: &Cell) -> String {
    spread(cell.iter().map(|round| round.rate / 1e3), 1)
}

/// Returns the server's CPU time per request, in microseconds.
pub(crate) fn cpu(cell: &Cell) -> String {
    spread(cell.iter().map(|round| round.cpu), 1)
}

/// Returns the ratio of the rates, round by round.
pub(crate) fn rates(cell: &Cell, other: &Cell) -> String {
    spread(
        cell.iter()
            .zip(other)
            .map(|(one, other)| one.rate / other.rate),
        2,
    )
}

/// Returns the ratio of requests per CPU second, round by round. If the client is the bottleneck, the rates say nothing.
pub(crate) fn yields(cell: &Cell, other: &Cell) -> String {
    spread(
        cell.iter()
            .zip(other)
            .map(|(one, other)| other.cpu / one.cpu),
        2,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let cell = |rates: [f64; 3]| {
            rates
                .map(|rate| Round {
                    rate,
                    cpu: 30.0 / rate,
                })
                .to_vec()
        };
        let (one, other) = (cell([10.0, 20.0, 30.0]), cell([10.0, 20.0, 60.0]));
        assert_eq!(rates(&one, &other), "1.00 (0.50–1.00)");
        assert_eq!(yields(&one, &other), "1.00 (0.50–1.00)");
    }
}
