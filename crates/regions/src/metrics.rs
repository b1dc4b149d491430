//! Metrics of regions.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_core::clock::micros;
use tollgate_metrics::{Computed, Counter, CounterFamily, Declared, Gauge, Metric, Page};
use tollgate_proto::tollgate::region::v1::primary_reply::Result as PrimaryOutcome;

tollgate_core::named! {
    /// Reason of a refused message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Refusal {
        /// The message lacks its sender.
        Malformed = "malformed",
        /// The sender is not another region of the table.
        UnknownRegion = "unknown_region",
        /// The certificate is not one of the sender's region.
        Certificate = "certificate",
        /// The sender exceeds the bounds of messages.
        Flood = "flood",
    }
}

/// Metrics of regions.
pub static METRICS: &[&dyn Metric] =
    &[&GENERATION, &UNFINISHED, &RELOAD_FAILURES, &PEERS, &RESULTS, &REFUSED];

static GENERATION: Gauge = Gauge::new("tollgate_region_generation", "Generation of the active region table.");

static UNFINISHED: Gauge = Gauge::new(
    "tollgate_region_changes_unfinished",
    "Changes of weights that other regions have not announced, so that raised shares do not apply yet.",
);

pub(super) static RELOAD_FAILURES: Counter = Counter::new(
    "tollgate_region_table_reload_failures_total",
    "Changes of the region table's file that were refused.",
);

pub(super) static REFUSED: CounterFamily<1> = CounterFamily::new(
    "tollgate_region_refused_messages_total",
    &["reason"],
    "Messages of other regions that were refused.",
);

const fn gauge(name: &'static str, help: &'static str) -> Declared {
    Declared::gauge(name, &["region"], help)
}

const fn counter(name: &'static str, help: &'static str) -> Declared {
    Declared::counter(name, &["region"], help)
}

/// Metrics of the exchange of messages with each other region.
static PEERS: Computed<9> = Computed::group(
    [
        gauge("tollgate_region_up", "Whether the last exchange of messages with the region succeeded."),
        counter("tollgate_region_exchanges_total", "Exchanges of messages with the region that succeeded."),
        counter(
            "tollgate_region_exchange_failures_total",
            "Exchanges of messages with the region that failed.",
        ),
        counter(
            "tollgate_region_exchange_seconds_total",
            "Time of the exchanges that succeeded, in seconds.",
        ),
        gauge(
            "tollgate_region_clock_offset_seconds",
            "Offset of the clock of the region from that of this one, in seconds, at the last exchange; positive if it is ahead.",
        ),
        counter("tollgate_region_borrowed_hits_total", "Hits of limits that the region lent, or returned."),
        counter("tollgate_region_lent_hits_total", "Hits of limits that were lent to the region."),
        counter(
            "tollgate_region_loan_request_seconds_total",
            "Time from loan requests to the region to their replies, in seconds.",
        ),
        counter(
            "tollgate_region_primary_call_seconds_total",
            "Time from calls to the primary region to their replies, in seconds.",
        ),
    ],
    write_peers,
);

/// Values of [`PEERS`], in their order.
#[allow(clippy::float_arithmetic)] // Seconds are exported as such.
const PEER_VALUES: [fn(&PeerCounts) -> f64; 9] = [
    |counts| f64::from(u8::from(counts.is_up)),
    |counts| counts.exchanges as f64,
    |counts| counts.failures as f64,
    |counts| counts.micros as f64 / 1e6,
    |counts| counts.clock_offset_us as f64 / 1e6,
    |counts| counts.named.borrowed_hits as f64,
    |counts| counts.named.lent_hits as f64,
    |counts| counts.loan_request_micros as f64 / 1e6,
    |counts| counts.call_micros as f64 / 1e6,
];

fn write_peers(declared: &[Declared; 9], page: &mut Page) {
    let counts = COUNTS.lock();
    if counts.is_empty() {
        return;
    }
    for (declared, value) in declared.iter().zip(PEER_VALUES) {
        page.begin(declared);
        counts.iter().for_each(|(region, counts)| page.sample(declared, &[region], value(counts)));
    }
}

/// Results of a loan request to another region: all that was wanted, a part of it, nothing, no reply, or a region with another
/// table.
const LOAN_RESULTS: [&str; 5] = ["granted", "part", "refused", "timeout", "generation"];

/// Results of a call to the primary region: decided, decided after the caller's deadline, not decided and not charged, failed
/// with an unknown outcome, or not sent.
const CALL_RESULTS: [&str; 5] = ["decided", "late", "declined", "failed", "not_sent"];

/// Results of calls that were answered.
const ANSWERS_NAMED: [(PrimaryOutcome, &str); 7] = [
    (PrimaryOutcome::Decided, "decided"),
    (PrimaryOutcome::Role, "role"),
    (PrimaryOutcome::Rule, "rule"),
    (PrimaryOutcome::Malformed, "malformed"),
    (PrimaryOutcome::Busy, "busy"),
    (PrimaryOutcome::NotCharged, "not_charged"),
    (PrimaryOutcome::Unknown, "unknown"),
];

const fn results(name: &'static str, help: &'static str) -> Declared {
    Declared::counter(name, &["region", "result"], help)
}

/// Messages about limits by result.
static RESULTS: Computed<3> = Computed::group(
    [
        results(
            "tollgate_region_loan_requests_total",
            "Loan requests for a part of the region's share of a limit, by result.",
        ),
        results(
            "tollgate_region_primary_calls_total",
            "Calls to the primary region about limits of `scope: primary`, by result.",
        ),
        results(
            "tollgate_region_primary_answers_total",
            "Calls of the region that this one, as the primary region, answered, by result.",
        ),
    ],
    |declared, page| {
        let counts = COUNTS.lock();
        for (declared, of) in declared.iter().zip(RESULT_COUNTS).filter(|_| !counts.is_empty()) {
            page.begin(declared);
            for (region, counts) in counts.iter() {
                let results = of(&counts.named).iter();
                results.for_each(|(name, count)| page.sample(declared, &[region, name], count));
            }
        }
    },
);

/// Counts by result.
type CountsByResult = fn(&RegionCounts) -> &BTreeMap<String, u64>;

/// Counts of [`RESULTS`], in their order.
const RESULT_COUNTS: [CountsByResult; 3] =
    [|counts| &counts.loan_requests, |counts| &counts.primary_calls, |counts| &counts.primary_answers];

/// Messages about limits that were exchanged with another region since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionCounts {
    /// Loan requests for a part of its share, by result.
    pub loan_requests: BTreeMap<String, u64>,
    /// Hits of limits that it lent, or returned.
    pub borrowed_hits: u64,
    /// Hits of limits that were lent to it.
    pub lent_hits: u64,
    /// Calls to it as the primary region, by result.
    pub primary_calls: BTreeMap<String, u64>,
    /// Its calls that were answered here, as in the primary region, by result.
    pub primary_answers: BTreeMap<String, u64>,
}

impl Default for RegionCounts {
    /// Counts every result at zero.
    fn default() -> Self {
        let none = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0)).collect();
        Self {
            loan_requests: none(&LOAN_RESULTS),
            borrowed_hits: 0,
            lent_hits: 0,
            primary_calls: none(&CALL_RESULTS),
            primary_answers: none(&ANSWERS_NAMED.map(|(_, name)| name)),
        }
    }
}

/// The counts of another region.
pub(super) fn counts_of(region: &str) -> RegionCounts {
    COUNTS.lock().get(region).map(|counts| counts.named.clone()).unwrap_or_default()
}

/// Counts a call to the primary region, by one of [`CALL_RESULTS`].
pub(super) fn called(region: &str, result: &'static str, time: Duration) {
    count(region, |counts| {
        increment(&mut counts.named.primary_calls, result);
        counts.call_micros += micros(time);
    });
}

/// Counts a call of another region that was answered.
pub(super) fn answered(region: &str, outcome: PrimaryOutcome) {
    if let Some((_, name)) = ANSWERS_NAMED.into_iter().find(|(named, _)| *named == outcome) {
        count(region, |counts| increment(&mut counts.named.primary_answers, name));
    }
}

fn increment(counts: &mut BTreeMap<String, u64>, name: &str) {
    debug_assert!(counts.contains_key(name), "no result is named {name}");
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    }
}

/// Counts a loan request by one of [`LOAN_RESULTS`], with the amount gained.
pub(super) fn loan_requested(region: &str, result: &'static str, gained: u32, time: Duration) {
    count(region, |counts| {
        increment(&mut counts.named.loan_requests, result);
        counts.named.borrowed_hits += u64::from(gained);
        counts.loan_request_micros += micros(time);
    });
}

/// Counts what was lent to a region.
pub(super) fn lent(region: &str, hits: u32) {
    count(region, |counts| counts.named.lent_hits += u64::from(hits));
}

/// Counts of one other region.
#[derive(Clone, Debug, Default)]
struct PeerCounts {
    is_up: bool,
    exchanges: u64,
    failures: u64,
    micros: u64,
    clock_offset_us: i64,
    call_micros: u64,
    loan_request_micros: u64,
    named: RegionCounts,
}

/// By region; as many as tables had regions with different names.
static COUNTS: Mutex<BTreeMap<Box<str>, PeerCounts>> = Mutex::new(BTreeMap::new());

fn count(region: &str, change: impl FnOnce(&mut PeerCounts)) {
    change(COUNTS.lock().entry(region.into()).or_default());
}

/// Records the active table.
pub(super) fn table(generation: u64, unfinished: usize) {
    RELOAD_FAILURES.export();
    Refusal::ALL.into_iter().for_each(|refusal| REFUSED.export([refusal.name()]));
    GENERATION.set(generation as f64);
    UNFINISHED.set(unfinished as f64);
}

/// Counts an exchange that succeeded, with its time and the difference of the clocks in microseconds.
pub(super) fn exchanged(region: &str, clock_offset_us: i64, time: Duration) {
    count(region, |counts| {
        (counts.is_up, counts.clock_offset_us) = (true, clock_offset_us);
        counts.exchanges += 1;
        counts.micros += micros(time);
    });
}

/// Counts an exchange that failed: the region does not reply.
pub(super) fn exchange_failed(region: &str) {
    count(region, |counts| {
        counts.is_up = false;
        counts.failures += 1;
    });
}
