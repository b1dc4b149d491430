//! Traffic from three regions, and what is checked of its decisions.

use std::sync::atomic::AtomicU64;

use tokio::time::{sleep_until, timeout};

use super::*;

/// Distribution of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Equal in all regions.
    Uniform,
    /// Equal in the first two regions, and none in the last one.
    Two,
    /// Only in the first region.
    One,
    /// Nine tenths in one region.
    Hot(usize),
    /// Nine tenths in one region, after each such time in another one.
    Shifting(Duration),
}

impl Pattern {
    /// The region of a request at this time.
    pub(super) fn region(self, since: Duration) -> usize {
        let hot = match self {
            Self::Uniform => return fastrand::usize(..3),
            Self::One => return 0,
            Self::Two => return fastrand::usize(..2),
            Self::Hot(region) => region,
            Self::Shifting(time) => usize::try_from(since.as_micros() / time.as_micros()).expect("short") % 3,
        };
        match fastrand::u32(..20) {
            0 => (hot + 1) % 3,
            1 => (hot + 2) % 3,
            _ => hot,
        }
    }
}

/// A limit as its decisions are checked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// Hits of each window of this many seconds.
    Fixed(f64),
    /// The estimate of a sliding window of this many seconds.
    Sliding(f64),
    /// Hits of each span: a burst, and a rate for each second.
    Bucket { burst: f64, rate: f64 },
    /// Nothing: a rule to compare with.
    None,
}

/// A rule under traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) key: &'static str,
    pub(super) limit: f64,
    pub(super) bound: Bound,
    /// Requests for each second.
    pub(super) rate: f64,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    region: usize,
    /// Seconds since 1970.
    sent: f64,
    received: f64,
    passes: bool,
}

/// Decisions of the regions, and of one counter that all requests share.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) decided: Vec<Decided>,
    pub(super) ideal: Vec<Decided>,
    pub(super) failed: u64,
}

impl Outcome {
    /// The decisions of requests before a time in seconds since 1970, and the others.
    pub(super) fn split(self, at: f64) -> [Self; 2] {
        let (mut before, mut after) = (Self { failed: self.failed, ..Self::default() }, Self::default());
        (before.decided, after.decided) = self.decided.into_iter().partition(|one| one.sent < at);
        (before.ideal, after.ideal) = self.ideal.into_iter().partition(|one| one.sent < at);
        [before, after]
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.decided.extend(&other.decided);
        self.ideal.extend(&other.ideal);
        self.failed += other.failed;
    }
}

/// Seconds since 1970.
pub(super) fn now() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64()
}

async fn decide(
    (region, mut client): (usize, Client),
    key: &'static str,
    value: &str,
    failed: &AtomicU64,
) -> Option<Decided> {
    let sent = now();
    let limit = Duration::from_secs(5);
    let call = timeout(limit, client.call_within(limit, request("web", &[&[(key, value)]]))).await;
    let received = now();
    let Ok(Ok(answer)) = call else {
        failed.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    Some(Decided { region, sent, received, passes: answer.overall_code() == Code::Ok })
}

/// Sends a stream's requests at random times, each to a region and to the ideal counter.
pub(super) async fn send(
    stream: Stream,
    pattern: Pattern,
    clients: &[Client],
    ideal: &Client,
    value: &str,
    duration: Duration,
) -> Outcome {
    let (begun, failed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let (mut tasks, mut next, mut outcome) = (JoinSet::new(), 0.0, Outcome::default());
    let mut collect = |joined: [Option<Decided>; 2]| {
        let [decided, ideal] = joined;
        outcome.decided.extend(decided);
        outcome.ideal.extend(ideal);
    };
    loop {
        next += -(1.0 - fastrand::f64()).ln() / stream.rate;
        if next >= duration.as_secs_f64() {
            break;
        }
        sleep_until((begun + Duration::from_secs_f64(next)).into()).await;
        let region = pattern.region(begun.elapsed());
        let client = (region, clients[region].clone());
        let (ideal, value, failed) = (ideal.clone(), value.to_owned(), Arc::clone(&failed));
        tasks.spawn(async move {
            let region = decide(client, stream.key, &value, &failed);
            let (region, ideal) = tokio::join!(region, decide((0, ideal), stream.key, &value, &failed));
            [region, ideal]
        });
        while let Some(done) = tasks.try_join_next() {
            collect(done.expect("no panic"));
        }
    }
    while let Some(done) = tasks.join_next().await {
        collect(done.expect("no panic"));
    }
    outcome.failed = failed.load(Ordering::Relaxed);
    outcome.decided.sort_by(|one, next| one.received.total_cmp(&next.received));
    outcome.ideal.sort_by(|one, next| one.received.total_cmp(&next.received));
    outcome
}

/// Hits that passed.
pub(super) fn passed(decided: &[Decided]) -> usize {
    decided.iter().filter(|decided| decided.passes).count()
}

/// Hits that passed in each region.
pub(super) fn passed_by_region(decided: &[Decided]) -> [usize; 3] {
    let mut sums = [0; 3];
    for one in decided.iter().filter(|decided| decided.passes) {
        sums[one.region] += 1;
    }
    sums
}

/// The time that decisions took, below which this part of them is, in milliseconds.
pub(super) fn quantile(decided: &[Decided], part: f64) -> f64 {
    let mut times: Vec<f64> = decided.iter().map(|one| one.received - one.sent).collect();
    times.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let at = (part * times.len() as f64) as usize;
    times.get(at.min(times.len().saturating_sub(1))).map_or(0.0, |seconds| seconds * 1_000.0)
}

/// The mean time that decisions took, in milliseconds.
pub(super) fn mean(decided: &[Decided]) -> f64 {
    let sum: f64 = decided.iter().map(|one| one.received - one.sent).sum();
    sum * 1_000.0 / decided.len().max(1) as f64
}

/// By how many hits the limit was certainly exceeded at the worst moment: what may belong to either of two windows counts
/// for none of them.
pub(super) fn excess(stream: &Stream, decided: &[Decided]) -> f64 {
    let passed: Vec<&Decided> = decided.iter().filter(|decided| decided.passes).collect();
    match stream.bound {
        Bound::None => 0.0,
        Bound::Fixed(window) => {
            windows(&passed, window).map(|(_, _, count)| count - stream.limit).fold(0.0, f64::max)
        }
        Bound::Sliding(window) => {
            let mut previous = (f64::NEG_INFINITY, 0.0);
            let mut open = (f64::NEG_INFINITY, 0.0);
            let mut worst: f64 = 0.0;
            for (label, received, count) in windows(&passed, window) {
                if label > open.0 {
                    previous = open;
                }
                open = (label, count);
                let former = if previous.0 == label - 1.0 { previous.1 } else { 0.0 };
                let left = 1.0 - (received / window - label);
                // The estimate is of whole hits.
                worst = worst.max((former * left).floor() + count - stream.limit);
            }
            worst
        }
        Bound::Bucket { burst, rate } => {
            // The excess of a span is the growth of "hits less what the rate admits".
            let (mut least, mut worst): (f64, f64) = (f64::INFINITY, 0.0);
            for (index, one) in passed.iter().enumerate() {
                let count = index as f64;
                least = least.min(count - rate * one.sent);
                worst = worst.max(count + 1.0 - rate * one.received - least - burst);
            }
            worst
        }
    }
}

/// Each decision that certainly belongs to one window: the window's number, when it was received, and the window's hits so
/// far.
fn windows(passed: &[&Decided], window: f64) -> impl Iterator<Item = (f64, f64, f64)> {
    let (mut open, mut count) = (f64::NEG_INFINITY, 0.0);
    passed.iter().filter_map(move |one| {
        let label = (one.received / window).floor();
        if label != (one.sent / window).floor() {
            return None;
        }
        if label != open {
            (open, count) = (label, 0.0);
        }
        count += 1.0;
        Some((label, one.received, count))
    })
}

#[test]
fn excesses_are_found() {
    let at = |times: &[f64]| -> Vec<Decided> {
        times.iter().map(|at| Decided { region: 0, sent: *at, received: *at + 0.001, passes: true }).collect()
    };
    let stream = |bound| Stream { key: "k", limit: 2.0, bound, rate: 1.0 };
    let found = |bound, times: &[f64]| excess(&stream(bound), &at(times));
    assert_eq!(found(Bound::Fixed(1.0), &[0.1, 0.2, 1.1, 1.2]), 0.0);
    assert_eq!(found(Bound::Fixed(1.0), &[0.1, 0.2, 1.1, 1.2, 1.3]), 1.0);
    assert_eq!(found(Bound::Fixed(1.0), &[0.1, 0.2, 0.9999]), 0.0, "it may be of the next window");
    assert_eq!(found(Bound::Sliding(1.0), &[0.1, 0.2, 1.6, 1.8]), 0.0);
    assert_eq!(found(Bound::Sliding(1.0), &[0.1, 0.2, 1.1, 1.2]), 1.0);
    let bucket = Bound::Bucket { burst: 2.0, rate: 1.0 };
    assert!(found(bucket, &[0.0, 0.1, 1.2, 2.2]) < 0.1);
    assert!(found(bucket, &[0.0, 0.1, 0.2]) > 0.7);
}
