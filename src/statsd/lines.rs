//! Formats deltas as lines.

use std::time::Duration;

use cadence::{
    Counted, Gauged, Metric, MetricBuilder, MetricResult, NopMetricSink, StatsdClient, Timed,
    ext::{MetricValue, ToTimerValue},
};
use tollgate_metrics::{Delta, Measure};

use super::{
    rewrite::Rewrite,
    settings::{StatsdFormat, StatsdSettings},
};

/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: f64 = 1_000_000.0;

/// Formatter of lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// Formats only. Its sink discards lines, because the sender must know the lines of each packet.
    client: StatsdClient,
    style: Style,
}

#[derive(Debug)]
enum Style {
    /// The format of envoyproxy/ratelimit: tags are the end of the name.
    Plain { tags: String },
    /// Separate tags, and rewritten names.
    Dogstatsd { tags: Vec<(String, String)>, rewrites: Vec<Rewrite> },
}

/// A timer value with a fraction, as most are below a millisecond.
struct Milliseconds(f64);

impl ToTimerValue for Milliseconds {
    fn try_to_value(self) -> MetricResult<MetricValue> {
        Ok(MetricValue::Float(self.0))
    }
}

impl Lines {
    pub(super) fn new(settings: &StatsdSettings) -> Self {
        let mut tags: Vec<_> = settings.tags.iter().map(|(key, value)| (key.clone(), clean(value))).collect();
        tags.sort();
        let style = match settings.format {
            StatsdFormat::Plain => {
                Style::Plain { tags: tags.iter().map(|(key, value)| format!(".__{key}={value}")).collect() }
            }
            StatsdFormat::Dogstatsd => Style::Dogstatsd { tags, rewrites: settings.rewrites.clone() },
        };
        Self { client: StatsdClient::from_sink("", NopMetricSink), style }
    }

    /// The line for a delta, without a line feed.
    pub(super) fn of(&self, delta: &Delta) -> String {
        match &self.style {
            Style::Plain { tags } => self.write(&format!("{}{tags}", delta.name), delta.measure, &[]),
            Style::Dogstatsd { tags, rewrites } => {
                match rewrites.iter().find_map(|rewrite| rewrite.apply(&delta.name)) {
                    None => self.write(&delta.name, delta.measure, tags),
                    Some((name, made)) => {
                        let made = made.into_iter().map(|(key, value)| (key, value.replace([',', '|'], "_")));
                        let tags: Vec<_> = tags.iter().cloned().chain(made).collect();
                        self.write(&name, delta.measure, &tags)
                    }
                }
            }
        }
    }

    fn write(&self, name: &str, measure: Measure, tags: &[(String, String)]) -> String {
        match measure {
            Measure::Count(count) => text(self.client.count_with_tags(name, count), tags),
            Measure::Gauge(value) => text(self.client.gauge_with_tags(name, value), tags),
            Measure::Times { time, calls } => {
                let builder = self.client.time_with_tags(name, milliseconds(time));
                match calls {
                    1 => text(builder, tags),
                    _ => text(builder.with_sampling_rate(rate(calls)), tags),
                }
            }
        }
    }
}

fn text<'a, T: Metric + From<String>>(
    builder: MetricBuilder<'a, '_, T>,
    tags: &'a [(String, String)],
) -> String {
    let builder = tags.iter().fold(builder, |builder, (key, value)| builder.with_tag(key, value));
    // The sink does not fail.
    builder.try_send().map(|metric| metric.as_metric_str().to_owned()).unwrap_or_default()
}

/// A tag value as in envoyproxy/ratelimit: separators are replaced.
fn clean(value: &str) -> String {
    value.replace(['.', ':', '|'], "_")
}

#[allow(clippy::float_arithmetic)] // For display only.
fn milliseconds(time: Duration) -> Milliseconds {
    Milliseconds(time.as_nanos() as f64 / NANOS_PER_MILLI)
}

/// The sampling rate that stands for a number of calls. Servers use its inverse, and some round that down.
#[allow(clippy::float_arithmetic)]
fn rate(calls: u64) -> f64 {
    let calls = calls as f64;
    let mut rate = calls.recip();
    while rate.recip() < calls {
        rate = rate.next_down();
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy_stats;
    use tollgate_metrics::Deltas;

    fn settings(format: StatsdFormat, rewrites: &[&str]) -> StatsdSettings {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        StatsdSettings {
            target: "udp://localhost:8125".parse().expect("a server"),
            interval: Duration::from_secs(10),
            tags: vec![pair("zone", "eu-1"), pair("host", "a.b:c")],
            format,
            rewrites: rewrites.iter().map(|text| text.parse().expect("a rewrite")).collect(),
        }
    }

    fn change(name: &str, measure: Measure) -> Delta {
        let any = Deltas::new(&legacy_stats::DELTAS).read().last().expect("the gauge");
        Delta { name: name.to_owned(), measure, ..any }
    }

    #[test]
    fn plain_lines_have_sorted_tags_after_the_name() {
        let lines = Lines::new(&settings(StatsdFormat::Plain, &[]));
        let of = |measure| lines.of(&change("a.b", measure));
        assert_eq!(of(Measure::Count(7)), "a.b.__host=a_b_c.__zone=eu-1:7|c");
        assert_eq!(of(Measure::Gauge(0)), "a.b.__host=a_b_c.__zone=eu-1:0|g");
        let times = |calls| Measure::Times { time: Duration::from_nanos(37_500), calls };
        assert_eq!(of(times(1)), "a.b.__host=a_b_c.__zone=eu-1:0.0375|ms");
        assert_eq!(of(times(100)), "a.b.__host=a_b_c.__zone=eu-1:0.0375|ms|@0.01");
    }

    #[test]
    fn dogstatsd_lines_have_separate_tags_and_the_first_matching_rewrite_applies() {
        let rewrites = ["^x y", r"^a\.(.*)\.(\w+)$ new.$2 k:$1", "^a never"];
        let lines = Lines::new(&settings(StatsdFormat::Dogstatsd, &rewrites));
        let of = |name| lines.of(&change(name, Measure::Count(7)));
        assert_eq!(of("a.p,q.total"), "new.total:7|c|#host:a_b_c,zone:eu-1,k:p_q");
        assert_eq!(of("b"), "b:7|c|#host:a_b_c,zone:eu-1");
        let times = Measure::Times { time: Duration::from_millis(175), calls: 4 };
        assert_eq!(lines.of(&change("t", times)), "t:175|ms|@0.25|#host:a_b_c,zone:eu-1");
    }

    #[test]
    fn a_rate_yields_the_exact_number_of_calls_however_a_server_rounds() {
        for calls in (2..5_000).chain([49 * 49, 999_983, 123_456_789]) {
            let rate: f64 = format!("{}", rate(calls)).parse().expect("a number");
            assert_eq!((rate.recip().floor() as u64, rate.recip().round() as u64), (calls, calls));
        }
    }
}
