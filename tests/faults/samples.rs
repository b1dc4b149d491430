//! Outcomes of all requests of a load, and what they are checked for: that each counter admitted at most its limit in each
//! second, and that the charges in Redis are those of the responses, none lost and none doubled.

use std::collections::HashMap;

use tonic::Code;

use super::*;
use crate::support::redis::hits;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// When it was to be sent, since the load began.
    pub(super) due: Duration,
    /// Send delay, when the load generator was too busy.
    pub(super) lag: Duration,
    /// Time from when it was due until its response or timeout.
    pub(super) latency: Duration,
    /// The number of its body.
    pub(super) key: usize,
    pub(super) outcome: Outcome,
    pub(super) by: By,
}

/// Outcome at the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ok,
    OverLimit,
    Error(Code),
    /// Nothing, until it gave up.
    Late,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Store,
    /// The policy for a store that fails; the hits of the call may be charged in the store or not.
    Policy,
}

impl Sample {
    pub(super) fn is_error(&self) -> bool {
        matches!(self.outcome, Outcome::Error(_) | Outcome::Late)
    }

    /// Whether it is what the store decided.
    pub(super) fn is_normal(&self) -> bool {
        !self.is_error() && self.by == By::Store
    }

    pub(super) fn answered(&self) -> Duration {
        self.due + self.latency
    }
}

/// Requests in the order in which they were due.
#[derive(Clone, Debug)]
pub(super) struct Samples(Vec<Sample>);

impl Samples {
    pub(super) fn new(mut samples: Vec<Sample>) -> Self {
        samples.sort_by_key(|sample| sample.due);
        Self(samples)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Samples due within a range of time.
    pub(super) fn between(&self, from: Duration, to: Duration) -> Self {
        self.such(|sample| (from..to).contains(&sample.due))
    }

    pub(super) fn since(&self, from: Duration) -> Self {
        self.between(from, Duration::MAX)
    }

    pub(super) fn such(&self, is_such: impl Fn(&Sample) -> bool) -> Self {
        Self(self.0.iter().filter(|sample| is_such(sample)).copied().collect())
    }

    pub(super) fn count(&self, is_such: impl Fn(&Sample) -> bool) -> usize {
        self.0.iter().filter(|sample| is_such(sample)).count()
    }

    pub(super) fn degraded(&self) -> usize {
        self.count(|sample| sample.by == By::Policy)
    }

    /// Errors by what they are.
    pub(super) fn errors(&self) -> BTreeMap<String, usize> {
        let mut errors = BTreeMap::new();
        for sample in self.iter().filter(|sample| sample.is_error()) {
            *errors.entry(format!("{:?}", sample.outcome)).or_default() += 1;
        }
        errors
    }

    /// The latency that 99 % of the requests do not exceed; nothing without requests.
    pub(super) fn p99(&self) -> Duration {
        quantile(self.iter().map(|sample| sample.latency), 0.99)
    }

    pub(super) fn p999(&self) -> Duration {
        quantile(self.iter().map(|sample| sample.latency), 0.999)
    }

    /// The 99th percentile of the send delay.
    pub(super) fn lag(&self) -> Duration {
        quantile(self.iter().map(|sample| sample.lag), 0.99)
    }

    /// The time after `healed` until everything was as `before` the fault: of the responses from then on, at most one
    /// in a thousand is degraded or an error, or as many as before, and their p99 is at most `bound`, or 1.5 times
    /// that of before, if the machine is that slow. None if that time did not come.
    pub(super) fn normal_after(&self, healed: Duration, before: &Self, bound: Duration) -> Option<Duration> {
        let abnormal =
            |samples: &Self| samples.count(|sample| !sample.is_normal()) as f64 / samples.len().max(1) as f64;
        let most = abnormal(before).max(0.001);
        let bound = bound.max(before.p99().mul_f64(1.5));
        let last = self.0.last()?.due;
        let times = (0..).map(|number| healed + Duration::from_millis(20) * number);
        let is_normal = |from: &Duration| {
            let rest = self.since(*from);
            abnormal(&rest) <= most && rest.p99() <= bound
        };
        times.take_while(|from| *from < last).find(is_normal).map(|from| from - healed)
    }

    /// The time after `fault` until responses were prompt: for a while from then on, the p99 is at most `bound`.
    pub(super) fn quick_after(&self, fault: Duration, bound: Duration) -> Option<Duration> {
        let step = Duration::from_millis(5);
        (0..400).map(|number| step * number).find(|after| {
            let from = fault + *after;
            let next = self.between(from, from + Duration::from_millis(300));
            next.len() > 0 && next.p99() <= bound
        })
    }
}

fn quantile(times: impl Iterator<Item = Duration>, share: f64) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let rank = (share * times.len() as f64).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Milliseconds, as people read them.
pub(super) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        0.0..10.0 => format!("{millis:.2} ms"),
        10.0..1_000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.1} s", millis / 1e3),
    }
}

/// The limit of a counter per second; the load exceeds it.
const LIMIT: usize = 20;

/// Admissions per window of the counters.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// Windows without a fault in which Redis decided every request.
    pub(super) whole: usize,
    /// Hits admitted beyond the limit in these windows.
    pub(super) beyond: usize,
    /// Windows without a fault in which Redis was nevertheless too slow for some requests.
    pub(super) mixed: usize,
}

/// Examines the windows that do not overlap `touched`; samples are relative to `origin`.
pub(super) fn admissions(samples: &Samples, origin: Duration, touched: &[Range<Duration>]) -> Admissions {
    let mut admitted = HashMap::<(usize, u64), (usize, bool)>::new();
    for sample in samples.iter() {
        let (sent, answered) = (origin + sample.due, origin + sample.answered());
        for second in sent.as_secs()..=answered.as_secs() {
            let (count, is_mixed) = admitted.entry((sample.key, second)).or_default();
            *is_mixed |= !sample.is_normal();
            // A request in flight at a window's end may belong to either.
            *count += usize::from(sent.as_secs() == answered.as_secs() && sample.outcome == Outcome::Ok);
        }
    }
    let mut windows = Admissions::default();
    for ((_, second), (count, is_mixed)) in admitted {
        let begin = Duration::from_secs(second).saturating_sub(origin);
        let end = begin + Duration::from_secs(1);
        match touched.iter().all(|range| end <= range.start || begin >= range.end) {
            true if is_mixed => windows.mixed += 1,
            true => {
                windows.whole += 1;
                windows.beyond += count.saturating_sub(LIMIT);
            }
            false => {}
        }
    }
    windows
}

/// Charges as Redis has them, and as the answers have them; of all names together, but judged for each.
#[derive(Clone, Copy, Debug, Default)]
struct Charges {
    counted: usize,
    known: usize,
    unknown: usize,
    twice: usize,
    lost: usize,
}

/// Whether charges may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Losses {
    /// Charges that a master had not replicated are lost with it.
    WithTheMaster,
    Never,
}

/// The key of a name's counter.
pub(super) fn key(name: &str) -> String {
    format!("{{d|k={name}}}")
}

/// Compares, and says so in the row. `holder` gives a connection to the server that has a name's counter.
pub(super) fn compare(
    row: &mut ReportRow,
    samples: &Samples,
    names: &[String],
    losses: Losses,
    mut holder: impl FnMut(&str) -> redis::Connection,
) {
    let mut sum = Charges::default();
    for (number, name) in names.iter().enumerate() {
        let cell: Option<Vec<u8>> =
            cmd("GET").arg(key(name)).query(&mut holder(name)).expect("the server has the slot");
        let counted = cell.map_or(0, |cell| hits(&cell)) as usize;
        let mine = samples.such(|sample| sample.key == number);
        let known = mine.count(|sample| sample.is_normal());
        let unknown = mine.len() - known;
        sum.counted += counted;
        sum.known += known;
        sum.unknown += unknown;
        sum.twice += counted.saturating_sub(known + unknown);
        sum.lost += known.saturating_sub(counted);
    }
    let Charges { counted, known, unknown, twice, lost } = sum;
    let of = format!("Redis counts {counted}, callers {known} and perhaps {unknown}");
    row.must("double charges 0", format!("{twice}: {of}"), twice == 0 && counted > 0);
    match losses {
        Losses::Never => row.must("lost charges 0", lost, lost == 0),
        Losses::WithTheMaster => row.note(format!("{lost} charges lost with the master")),
    }
}
