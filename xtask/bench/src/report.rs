//! The tables of a run: medians of the rounds with their spread.

use std::fs;
use std::path::Path;

use support::statistics::spread;
use xtask::{Result, plot};

use crate::load::Round;

/// Rounds of one row and column.
pub(crate) type Cell = Vec<Round>;

/// Returns a Markdown table with one number per row and column.
pub(crate) fn table(title: &str, rows: &[&str], columns: &[&str], cell: impl Fn(usize, usize) -> String) -> String {
    let mut lines = vec![
        String::new(),
        format!("| {title} | {} |", columns.join(" | ")),
        format!("|---|{}", "---|".repeat(columns.len())),
    ];
    for (row, name) in rows.iter().enumerate() {
        let cells: Vec<String> = (0..columns.len()).map(|column| cell(row, column)).collect();
        lines.push(format!("| {name} | {} |", cells.join(" | ")));
    }
    lines.join("\n")
}

/// Draws a table of ratios, and returns the line that names the file. A single round has no spread to draw.
pub(crate) fn draw(table: &str, file: &Path) -> Result<String> {
    let Some(svg) = plot::of_table(table) else { return Ok(String::new()) };
    fs::write(file, svg)?;
    Ok(format!("\n{}", file.display()))
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
    spread(cell.iter().zip(other).map(|(one, other)| one.rate / other.rate), 2)
}

/// Returns the ratio of requests per CPU second, round by round. If the client is the bottleneck, the rates say nothing.
pub(crate) fn yields(cell: &Cell, other: &Cell) -> String {
    spread(cell.iter().zip(other).map(|(one, other)| other.cpu / one.cpu), 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_has_its_spread() {
        assert_eq!(spread([3.0, 1.0, 2.04, 9.0, 2.0], 1), "2.0 (1.0–9.0)");
        assert_eq!(spread([1.5], 2), "1.50");
    }

    #[test]
    fn ratios_are_drawn() {
        let file = std::env::temp_dir().join(format!("ifmatch-plot-{}.svg", std::process::id()));
        let cell = |median: f64| spread([median - 0.5, median, median + 0.5], 2);
        let drawn = draw(&table("ratio", &["304"], &["a / b"], |_, _| cell(1.5)), &file).unwrap();
        let svg = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(drawn.contains("ifmatch-plot") && svg.contains(">304</text>"), "{drawn}\n{svg}");
        assert_eq!(draw(&table("ratio", &["304"], &["a / b"], |_, _| "1.50".to_owned()), &file).unwrap(), "");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let cell = |rates: [f64; 3]| rates.map(|rate| Round { rate, cpu: 30.0 / rate }).to_vec();
        let (one, other) = (cell([10.0, 20.0, 30.0]), cell([10.0, 20.0, 60.0]));
        assert_eq!(rates(&one, &other), "1.00 (0.50–1.00)");
        assert_eq!(yields(&one, &other), "1.00 (0.50–1.00)");
    }
}
