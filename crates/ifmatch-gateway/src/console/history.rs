//! The last ten minutes of requests, for the plots.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ifmatch_cache::Outcome;

use crate::gateway::state::AppState;
use crate::metrics::samples::Samples;

const INTERVAL: Duration = Duration::from_secs(5);
/// Number of samples: ten minutes.
const KEPT: usize = 121;
/// Size of a plot in its own units.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 60.0;

/// Counts at a time: requests, 304s, hits of the cache, and its requests.
type Sample = [f64; 4];

/// Samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

/// Samples until the console is gone.
pub(crate) async fn watch(state: Arc<AppState>, history: Weak<History>) {
    while let Some(history) = history.upgrade() {
        let sample = sample(&state);
        history.add(sample);
        drop(history);
        tokio::time::sleep(INTERVAL).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a plot needs no more digits")]
fn sample(state: &AppState) -> Sample {
    let text = state.metrics.render();
    let samples = Samples::parse(&text);
    let cache = state.cache.as_ref().map(ifmatch_cache::CacheHandle::metrics);
    let hits = cache.as_ref().map_or(0, |cache| {
        let is_hit = |outcome: &Outcome| ["hit", "stale", "revalidated"].contains(&outcome.name());
        Outcome::ALL.into_iter().filter(is_hit).map(|outcome| cache.count(outcome)).sum()
    });
    [
        samples.sum("ifmatch_requests_total", &[]),
        samples.sum("ifmatch_conditions_total", &[("outcome", "not_modified")]),
        hits as f64,
        cache.map_or(0, |cache| cache.requests()) as f64,
    ]
}

impl History {
    fn add(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns the points of the requests per second, and the highest rate.
    pub(super) fn requests(&self) -> (String, f64) {
        let rates = self.steps(|step| step[0] / INTERVAL.as_secs_f64());
        let highest = rates.iter().copied().fold(1.0, f64::max);
        (points(&rates, highest), highest)
    }

    /// Returns the points of the share of requests that the cache has answered.
    pub(super) fn hits(&self) -> String {
        points(&self.steps(|step| if step[3] > 0.0 { step[2] / step[3] } else { 0.0 }), 1.0)
    }

    /// Returns a value for each interval. Before the start there was none of anything.
    fn steps(&self, value: impl Fn(Sample) -> f64) -> Vec<f64> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let known = pairs.map(|(one, next)| value(std::array::from_fn(|at| (next[at] - one[at]).max(0.0))));
        std::iter::repeat_n(0.0, KEPT - samples.len().max(1)).chain(known).collect()
    }
}

/// Returns the points of an SVG polyline. The latest is at the right.
#[expect(clippy::cast_precision_loss, reason = "a plot has few points")]
fn points(values: &[f64], highest: f64) -> String {
    let step = WIDTH / (KEPT - 2) as f64;
    let point = |(at, value): (usize, &f64)| {
        format!("{:.1},{:.1}", at as f64 * step, HEIGHT - 1.0 - (value / highest).min(1.0) * (HEIGHT - 2.0))
    };
    values.iter().enumerate().map(point).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_spans_ten_minutes_and_stays_the_same_without_requests() {
        let history = History::default();
        let mut points = vec![history.requests().0];
        for _ in 0..KEPT {
            history.add([7.0, 0.0, 0.0, 0.0]);
            points.push(history.requests().0);
        }
        assert!(points.windows(2).all(|pair| pair[0] == pair[1]), "{points:?}");
        history.add([57.0, 0.0, 0.0, 0.0]);
        let (points, highest) = history.requests();
        assert_eq!((points.split(' ').count(), highest), (KEPT - 1, 10.0));
        assert!(points.starts_with("0.0,59.0 ") && points.ends_with(" 240.0,1.0"), "{points}");
    }
}
