//! Counter deltas, for push exporters such as StatsD.
//!
//! The exported part of each count is recorded beside it, so that a delta which could not be sent is part of the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::series::{self, KINDS, Series};
use super::striped_counter::publish;

/// Name of a metric, and the function that reads its value.
pub type Reader<T> = (&'static str, fn() -> T);

/// The counts that deltas are made of, and their names.
#[derive(Debug)]
pub struct DeltaSources {
    /// Prefix and suffix of the names of the counters of a series, in the order of [`Series::counted`].
    pub series: [(&'static str, &'static str); KINDS],
    /// The name between these of a domain and a path, without `:`, `|` and control characters.
    pub series_name: fn(&str, &str) -> String,
    /// Names and totals of other counters.
    pub counters: &'static [Reader<u64>],
    /// Name of a histogram of times, and the middle and number of observations of each of its buckets, in nanoseconds.
    pub times: Reader<Vec<(u64, u64)>>,
    /// Name and value of a gauge.
    pub gauge: Reader<u64>,
}

/// Deltas since they were last confirmed; for one exporter in a process.
#[derive(Debug)]
pub struct Deltas {
    sources: &'static DeltaSources,
    /// The exported part of each counter.
    counters: Vec<Arc<AtomicU64>>,
    /// The exported observations of each bucket.
    buckets: Vec<Arc<AtomicU64>>,
}

/// Delta of one metric.
#[derive(Debug)]
pub struct Delta {
    /// The metric's name, without `:`, `|` and control characters.
    pub name: String,
    /// The amount.
    pub measure: Measure,
    /// To be confirmed once the delta was sent.
    pub receipt: Receipt,
}

/// Amount of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Increase of a counter, never zero.
    Count(u64),
    /// Value of a gauge.
    Gauge(u64),
    /// Observations in one bucket of a histogram, never zero.
    Times {
        /// The middle of the bucket.
        time: Duration,
        /// Number of observations.
        calls: u64,
    },
}

/// Confirmation that a delta was sent. Dropped unconfirmed, the delta is part of the next one.
#[derive(Debug)]
#[must_use]
pub struct Receipt(Record);

/// Record of the exported part that a receipt updates, with the amount.
#[derive(Debug)]
enum Record {
    Series { series: Arc<Series>, at: usize, amount: u64 },
    Total { exported: Arc<AtomicU64>, amount: u64 },
    None,
}

impl Receipt {
    /// A receipt that adds one to `confirmed` once it is confirmed.
    pub fn counted_by(confirmed: &Arc<AtomicU64>) -> Self {
        Self(Record::Total { exported: Arc::clone(confirmed), amount: 1 })
    }

    /// Records that the delta was sent.
    pub fn confirm(self) {
        match self.0 {
            Record::Series { series, at, amount } => series.confirm(at, amount),
            Record::Total { exported, amount } => {
                exported.fetch_add(amount, Ordering::Relaxed);
            }
            Record::None => {}
        }
    }
}

impl Deltas {
    /// Deltas since the start of the process.
    pub fn new(sources: &'static DeltaSources) -> Self {
        series::keep_evicted();
        let (_, times) = sources.times;
        let counters = sources.counters.iter().map(|_| Arc::default()).collect();
        let buckets = times().iter().map(|_| Arc::default()).collect();
        Self { sources, counters, buckets }
    }

    /// All deltas by now. Each but the gauge is returned again until it is confirmed, so that there must be one reader at a
    /// time.
    pub fn read(&self) -> impl Iterator<Item = Delta> + '_ {
        publish();
        let evicted = series::evicted();
        // Weak, since sending may take long: eviction must see which series are not used any more.
        let live: Vec<_> = series::all().iter().map(Arc::downgrade).collect();
        let all = evicted.into_iter().chain(live.into_iter().filter_map(|series| series.upgrade()));
        all.flat_map(|series| of_series(self.sources, &series)).chain(self.of_totals())
    }

    fn of_totals(&self) -> impl Iterator<Item = Delta> + '_ {
        let counters = self.sources.counters.iter().zip(&self.counters);
        let counters = counters.filter_map(|((name, total), exported)| {
            let amount = increase(total(), exported)?;
            Some(delta(
                name,
                Measure::Count(amount),
                Record::Total { exported: Arc::clone(exported), amount },
            ))
        });
        let (times_name, times) = self.sources.times;
        let times =
            times().into_iter().zip(&self.buckets).filter_map(move |((nanoseconds, count), exported)| {
                let (calls, time) = (increase(count, exported)?, Duration::from_nanos(nanoseconds));
                let record = Record::Total { exported: Arc::clone(exported), amount: calls };
                Some(delta(times_name, Measure::Times { time, calls }, record))
            });
        let (gauge_name, gauge) = self.sources.gauge;
        counters.chain(times).chain([delta(gauge_name, Measure::Gauge(gauge()), Record::None)])
    }
}

fn of_series(sources: &'static DeltaSources, series: &Arc<Series>) -> impl Iterator<Item = Delta> + use<> {
    let amounts = series.not_exported();
    let name = match amounts {
        [0, 0, 0, 0, 0, 0] => String::new(),
        _ => (sources.series_name)(&series.domain, &series.path),
    };
    let series = Arc::clone(series);
    let kinds = sources.series.into_iter().zip(amounts).enumerate().filter(|(_, (_, amount))| *amount > 0);
    kinds.map(move |(at, ((before, after), amount))| {
        let record = Record::Series { series: Arc::clone(&series), at, amount };
        delta(&format!("{before}.{name}.{after}"), Measure::Count(amount), record)
    })
}

fn delta(name: &str, measure: Measure, record: Record) -> Delta {
    Delta { name: name.to_owned(), measure, receipt: Receipt(record) }
}

/// The part of a total that was not exported, if any.
fn increase(total: u64, exported: &AtomicU64) -> Option<u64> {
    Some(total.saturating_sub(exported.load(Ordering::Relaxed))).filter(|more| *more > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SOURCES: DeltaSources = DeltaSources {
        series: [
            ("r", "hits"),
            ("r", "within"),
            ("r", "near"),
            ("r", "over"),
            ("r", "shadow"),
            ("t", "degraded"),
        ],
        series_name: |domain, path| format!("{domain}.{path}"),
        counters: &[("loads", || 3)],
        times: ("took", || vec![(5, 0), (15, 2)]),
        gauge: ("open", || 1),
    };

    /// The amounts of a domain's metrics, confirmed or not.
    fn read(domain: &str, confirmed: bool) -> Vec<(String, u64)> {
        let deltas = Deltas::new(&SOURCES);
        let of_domain = deltas.read().filter(|delta| delta.name.contains(domain));
        of_domain
            .map(|delta| {
                let Measure::Count(amount) = delta.measure else { panic!("{delta:?}") };
                if confirmed {
                    delta.receipt.confirm();
                }
                (delta.name, amount)
            })
            .collect()
    }

    #[test]
    fn an_unconfirmed_delta_is_part_of_the_next_one_and_a_confirmed_one_is_not() {
        let counters = series::of_rule("changes", "a").0.counters();
        counters.add([5, 3, 0, 2, 0, 1]);
        let name = |last: &str| format!("r.changes.a.{last}");
        let degraded = "t.changes.a.degraded".to_owned();
        let first = [(name("hits"), 5), (name("within"), 3), (name("over"), 2), (degraded.clone(), 1)];
        assert_eq!(read("changes", false), first);
        counters.add([1, 1, 1, 0, 0, 0]);
        let second =
            [(name("hits"), 6), (name("within"), 4), (name("near"), 1), (name("over"), 2), (degraded, 1)];
        assert_eq!(read("changes", true), second);
        assert_eq!(read("changes", true), []);
        counters.add([1, 0, 0, 0, 0, 0]);
        assert_eq!(read("changes", true), [(name("hits"), 1)]);
    }

    #[test]
    fn totals_are_exported_once_and_a_gauge_each_time() {
        let deltas = Deltas::new(&SOURCES);
        let of_totals = || deltas.read().filter(|delta| !delta.name.contains('.'));
        let measures: Vec<_> = of_totals()
            .map(|delta| {
                delta.receipt.confirm();
                delta.measure
            })
            .collect();
        let times = Measure::Times { time: Duration::from_nanos(15), calls: 2 };
        assert_eq!(measures, [Measure::Count(3), times, Measure::Gauge(1)]);
        assert_eq!(of_totals().map(|delta| delta.measure).collect::<Vec<_>>(), [Measure::Gauge(1)]);
    }

    #[test]
    fn the_counts_of_an_evicted_series_are_exported_once() {
        series::keep_evicted();
        let (series, _) = series::of_rule("evicted", "rule");
        series.counters().add([7, 0, 0, 0, 0, 0]);
        series::keep(vec![Arc::clone(&series)]);
        let deltas = Deltas::new(&SOURCES);
        let of_series = |delta: &Delta| delta.name.contains("evicted.rule.hits");
        // The test keeps the series, so it is found in both the registry and the evicted ones.
        let found: Vec<_> = deltas.read().filter(of_series).collect();
        assert_eq!(found.len(), 2);
        found.into_iter().take(1).for_each(|delta| delta.receipt.confirm());
        assert_eq!(deltas.read().filter(of_series).count(), 0);
        assert!(!series::evicted().iter().any(|waiting| Arc::ptr_eq(waiting, &series)));
    }
}
