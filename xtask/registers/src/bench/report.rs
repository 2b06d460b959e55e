//! Tables of the results: medians of the rounds with their spread.

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
        println!("\n| {engine} | swaps/s, thousands | server's CPU per swap, µs | median, ms | 99 %, ms |");
        println!("|---|---|---|---|---|");
        for (name, rounds) in &self.rows {
            let show = |value: fn(&Round) -> f64, digits| spread(rounds.iter().map(value), digits);
            let times = (show(|round| round.median, 2), show(|round| round.slow, 2));
            println!(
                "| {name} | {} | {} | {} | {} |",
                show(|round| round.rate / 1e3, 1),
                show(|round| round.cpu, 1),
                times.0,
                times.1
            );
        }
        println!("\n| ratio of swaps/s, round by round | |\n|---|---|");
        for (one, other) in &self.ratios {
            let ratios = self.rounds(one).zip(self.rounds(other)).map(|(one, other)| one.rate / other.rate);
            println!("| {one} / {other} | {} |", spread(ratios, 2));
        }
    }

    fn rounds(&self, name: &str) -> impl Iterator<Item = &Round> {
        self.rows.iter().filter(move |(known, _)| known == name).flat_map(|(_, rounds)| rounds)
    }
}

/// Returns the median with its spread, or a dash if the values are unknown.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => "–".to_owned(),
        [only] => format!("{only:.digits$}"),
        [least, .., most] => format!("{:.digits$} ({least:.digits$}–{most:.digits$})", values[values.len() / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_has_its_spread_and_unknown_values_are_dashes() {
        assert_eq!(spread([3.0, 1.0, 2.04, 9.0, 2.0].into_iter(), 1), "2.0 (1.0–9.0)");
        assert_eq!(spread([0.0].into_iter(), 1), "–");
    }
}
