//! The last ten minutes of requests, for the plots.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::endpoints::cache::{HITS, count_of};
use crate::endpoints::overview::RequestCounts;
use crate::metrics::MetricSamples;
use crate::state::AppState;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(5);
/// Number of intervals in a minute.
const MINUTE: usize = 12;
/// Number of samples kept: at both ends of each interval of ten minutes.
const KEPT: usize = 10 * MINUTE + 1;
/// Size of a plot in its own units, as in `plot.html`.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 60.0;

/// Counts since the start, or between two samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CountSample {
    pub(super) requests: f64,
    pub(super) not_modified: f64,
    pub(super) conflicts: f64,
    pub(super) client_errors: f64,
    pub(super) server_errors: f64,
    pub(super) bytes_out: f64,
    pub(super) cache_hits: f64,
    pub(super) cache_requests: f64,
    pub(super) bytes_not_fetched: f64,
}

/// Samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<CountSample>>);

/// Samples until the console is gone.
pub(crate) async fn watch(state: Arc<AppState>, history: Weak<History>) {
    while let Some(history) = history.upgrade() {
        let sample = sample(&state);
        history.add(sample);
        drop(history);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the counts since the start.
#[expect(clippy::cast_precision_loss, reason = "a plot needs no more digits")]
fn sample(state: &AppState) -> CountSample {
    let text = state.metrics.render();
    let requests = RequestCounts::of(&MetricSamples::parse(&text));
    let cache = state.cache.as_ref().map(|cache| cache.handle.metrics());
    let hits = cache.as_ref().map_or(0, |cache| count_of(cache, &HITS));
    CountSample {
        requests: requests.total,
        not_modified: requests.not_modified,
        conflicts: state.conflicts.total() as f64,
        client_errors: requests.client_errors,
        server_errors: requests.server_errors,
        bytes_out: requests.bytes_out,
        cache_hits: hits as f64,
        cache_requests: cache.as_ref().map_or(0, ifmatch_cache::Metrics::requests) as f64,
        bytes_not_fetched: cache.map_or(0, |cache| cache.bytes) as f64,
    }
}

impl CountSample {
    /// Returns what was counted since another sample.
    fn since(self, other: Self) -> Self {
        let since = |of: fn(Self) -> f64| (of(self) - of(other)).max(0.0);
        Self {
            requests: since(|of| of.requests),
            not_modified: since(|of| of.not_modified),
            conflicts: since(|of| of.conflicts),
            client_errors: since(|of| of.client_errors),
            server_errors: since(|of| of.server_errors),
            bytes_out: since(|of| of.bytes_out),
            cache_hits: since(|of| of.cache_hits),
            cache_requests: since(|of| of.cache_requests),
            bytes_not_fetched: since(|of| of.bytes_not_fetched),
        }
    }
}

impl History {
    /// Adds a sample in place of the oldest one.
    fn add(&self, sample: CountSample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns what was counted in the last ten minutes, or since the start, and the number of seconds.
    pub(super) fn lately(&self) -> (CountSample, f64) {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
            return (CountSample::default(), 0.0);
        };
        let steps = u32::try_from(samples.len() - 1).unwrap_or(u32::MAX);
        (last.since(*first), (INTERVAL * steps).as_secs_f64())
    }

    /// Returns the line of the requests per second, and the highest rate. Before the start there were none.
    pub(super) fn requests(&self) -> (String, f64) {
        plot(&self.counts(|step| step.requests / INTERVAL.as_secs_f64()))
    }

    /// Returns the line of the conflicts in the minute before each moment, and the most.
    pub(super) fn conflicts(&self) -> (String, f64) {
        let counts = self.counts(|step| step.conflicts);
        let minute = |at: usize| &counts[at.saturating_sub(MINUTE - 1)..=at];
        let minutes = (0..counts.len()).map(|at| minute(at).iter().sum());
        plot(&minutes.collect::<Vec<_>>())
    }

    /// Returns a value for each interval of the ten minutes, which is 0 before the start.
    fn counts(&self, value: impl Fn(CountSample) -> f64) -> Vec<f64> {
        let steps = self.steps(|step| Some(value(step)));
        steps.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns the line of the share of requests that the cache has answered. It has gaps where there were none.
    pub(super) fn hits(&self) -> String {
        line(
            &self.steps(|step| {
                (step.cache_requests > 0.0).then(|| step.cache_hits / step.cache_requests)
            }),
            1.0,
        )
    }

    /// Returns a value for each interval of the ten minutes, oldest first.
    fn steps(&self, value: impl Fn(CountSample) -> Option<f64>) -> Vec<Option<f64>> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let known = pairs.map(|(one, next)| value(next.since(*one)));
        std::iter::repeat_n(None, KEPT - samples.len().max(1))
            .chain(known)
            .collect()
    }
}

/// Returns a line without gaps, and its highest value, which is at least 1.
fn plot(values: &[f64]) -> (String, f64) {
    let highest = values.iter().copied().fold(1.0, f64::max);
    let values: Vec<_> = values.iter().copied().map(Some).collect();
    (line(&values, highest), highest)
}

/// Returns the path of an SVG line. The latest value is at the right.
#[expect(clippy::cast_precision_loss, reason = "a plot has few points")]
fn line(values: &[Option<f64>], highest: f64) -> String {
    let step = WIDTH / (KEPT - 2) as f64;
    let point = |(at, value): (usize, &Option<f64>)| {
        let height = HEIGHT - 1.0 - ((*value)? / highest).min(1.0) * (HEIGHT - 2.0);
        let command = if at == 0 || values[at - 1].is_none() {
            'M'
        } else {
            'L'
        };
        Some(format!("{command}{:.1},{height:.1}", at as f64 * step))
    };
    values
        .iter()
        .enumerate()
        .filter_map(point)
        .collect::<Vec<_>>()
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(requests: f64, cache_hits: f64, cache_requests: f64) -> CountSample {
        CountSample {
            requests,
            cache_hits,
            cache_requests,
            ..CountSample::default()
        }
    }

    fn history(samples: &[CountSample]) -> History {
        let history = History::default();
        for sample in samples {
            history.add(*sample);
        }
        history
    }

    #[test]
    fn a_plot_spans_ten_minutes_and_stays_the_same_without_requests() {
        let before = history(&[]).requests();
        let idle = history(&[sample(7.0, 0.0, 0.0); KEPT]);
        assert_eq!(
            (
                idle.requests(),
                history(&[sample(7.0, 0.0, 0.0); 3]).requests()
            ),
            (before.clone(), before)
        );
        idle.add(sample(57.0, 0.0, 0.0));
        let (line, highest) = idle.requests();
        assert_eq!((line.matches('L').count(), highest), (KEPT - 2, 10.0));
        let (lately, seconds) = idle.lately();
        assert_eq!((lately.requests, seconds), (50.0, 600.0));
        assert!(
            line.starts_with("M0.0,59.0L") && line.ends_with("L240.0,1.0"),
            "{line}"
        );
    }

    #[test]
    fn ten_conflicts_at_once_are_ten_in_their_minute() {
        let of = |conflicts| CountSample {
            conflicts,
            ..CountSample::default()
        };
        let history = history(&[of(5.0), of(15.0)]);
        for _ in 0..MINUTE - 1 {
            history.add(of(15.0));
        }
        let (line, highest) = history.conflicts();
        let at_top = line.ends_with("L240.0,1.0");
        assert_eq!((at_top, highest), (true, 10.0), "{line}");
        history.add(of(15.0));
        let (line, _) = history.conflicts();
        assert!(line.ends_with("L240.0,59.0"), "a minute later: {line}");
    }

    #[test]
    fn the_share_of_hits_has_gaps_without_requests() {
        let of = |samples: &[(f64, f64)]| {
            let samples: Vec<_> = samples
                .iter()
                .map(|(hits, requests)| sample(0.0, *hits, *requests))
                .collect();
            history(&samples).hits()
        };
        assert_eq!(of(&[(0.0, 0.0), (0.0, 0.0)]), "");
        let gap = of(&[(0.0, 0.0), (1.0, 1.0), (1.0, 2.0), (1.0, 2.0), (2.0, 3.0)]);
        let commands: String = gap.chars().filter(char::is_ascii_alphabetic).collect();
        assert_eq!(commands, "MLM", "{gap}");
        assert!(gap.ends_with("M240.0,1.0"), "{gap}");
    }
}
