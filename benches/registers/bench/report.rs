//! Tables of the results: medians of the rounds with their spread.

use statistics::spread;

use super::Round;

/// Results by row and round, and the pairs of rows to compare.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<(String, Vec<Round>)>,
    ratios: Vec<(String, String)>,
}

impl Table {
    /// Adds the result of a round.
    pub(super) fn push(&mut self, name: &str, round: Round) {
        match self.rows.iter_mut().find(|(known, _)| known == name) {
            Some((_, rounds)) => rounds.push(round),
            None => self.rows.push((name.to_owned(), vec![round])),
        }
    }

    /// Compares the rates of two rows.
    pub(super) fn compare(&mut self, one: &str, other: &str) {
        self.ratios.push((one.to_owned(), other.to_owned()));
    }

    pub(super) fn print(&self, engine: &str) {
        println!(
            "\n| {engine} | calls/s, thousands | server's CPU per call, µs | median, ms | 99 %, ms |"
        );
        println!("|---|---|---|---|---|");
        for (name, rounds) in &self.rows {
            let show = |value: fn(&Round) -> f64, digits| known(rounds.iter().map(value), digits);
            println!(
                "| {name} | {} | {} | {} | {} |",
                show(|round| round.rate / 1e3, 1),
                show(|round| round.cpu, 1),
                show(|round| round.median, 2),
                show(|round| round.slow, 2)
            );
        }
        println!("\n| ratio of calls/s, round by round | |\n|---|---|");
        for (one, other) in &self.ratios {
            let ratios = self
                .rounds(one)
                .zip(self.rounds(other))
                .map(|(one, other)| one.rate / other.rate);
            println!("| {one} / {other} | {} |", known(ratios, 2));
        }
    }

    fn rounds(&self, name: &str) -> impl Iterator<Item = &Round> {
        self.rows
            .iter()
            .filter(move |(known, _)| known == name)
            .flat_map(|(_, rounds)| rounds)
    }
}

/// Returns the median of the known values, with its spread.
fn known(values: impl Iterator<Item = f64>, digits: usize) -> String {
    spread(values.filter(|value| *value > 0.0), digits)
}
