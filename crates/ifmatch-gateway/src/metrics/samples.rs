//! The current values of the metrics, as their text says. The counters themselves can only be written.

use std::collections::HashMap;

/// The samples of a text in the Prometheus format, by name.
#[derive(Debug, Default)]
pub(crate) struct Samples<'a>(HashMap<&'a str, Vec<(&'a str, f64)>>);

impl<'a> Samples<'a> {
    /// Parses the gateway's own metrics.
    pub(crate) fn parse(text: &'a str) -> Self {
        let mut samples = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((sample, value)) = line.rsplit_once(' ') else { continue };
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            if let Ok(value) = value.parse() {
                samples.0.entry(name).or_default().push((labels, value));
            }
        }
        samples
    }

    /// Returns the sum of the samples with this name and all of these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |found: &str| labels.iter().all(|(label, value)| found.contains(&format!("{label}=\"{value}\"")));
        self.0.get(name).into_iter().flatten().filter(|(found, _)| has(found)).map(|(_, value)| value).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_selected_by_name_and_labels() {
        let text = "# HELP a x\na{of=\"x\",as=\"y\"} 2\na{of=\"z\",as=\"y\"} 3\nab 7\n\n";
        let samples = Samples::parse(text);
        for (name, labels, sum) in [
            ("a", &[][..], 5.0),
            ("a", &[("of", "x")], 2.0),
            ("a", &[("as", "y"), ("of", "z")], 3.0),
            ("ab", &[], 7.0),
            ("b", &[], 0.0),
        ] {
            assert!((samples.sum(name, labels) - sum).abs() < 1e-9, "{name} {labels:?}");
        }
    }
}
