//! Metrics of regions.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tollgate_metrics::{Computed, Counter, CounterFamily, Declared, Gauge, Metric, MetricKind, Page};
use tollgate_store::StoreError;

use super::peers::Refusal;
use crate::proto::tollgate::region::v1::{
    counter_reply::Result as Outcome, primary_reply::Result as PrimaryOutcome,
};

/// Metrics of regions.
pub static METRICS: &[&dyn Metric] =
    &[&GENERATION, &UNFINISHED, &RELOAD_FAILURES, &PEERS, &LOAN_REQUESTS, &CALLS, &ANSWERS, &REFUSED];

static GENERATION: Gauge = Gauge::new("tollgate_region_generation", "Generation of the active region table.");

static UNFINISHED: Gauge = Gauge::new(
    "tollgate_region_changes_unfinished",
    "Changes of weights that other regions have not announced, so that raised shares do not apply yet.",
);

static RELOAD_FAILURES: Counter = Counter::new(
    "tollgate_region_table_reload_failures_total",
    "Changes of the region table's file that were refused.",
);

static REFUSED: CounterFamily<1> = CounterFamily::new(
    "tollgate_region_refused_messages_total",
    &["reason"],
    "Messages of other regions that were refused.",
);

const fn declare(name: &'static str, kind: MetricKind, help: &'static str) -> Declared {
    Declared { name, kind, labels: &["region"], help }
}

/// Metrics of the exchange of messages with each other region.
static PEERS: Computed<9> = Computed::group(
    [
        declare(
            "tollgate_region_up",
            MetricKind::Gauge,
            "Whether the last exchange of messages with the region succeeded.",
        ),
        declare(
            "tollgate_region_exchanges_total",
            MetricKind::Counter,
            "Exchanges of messages with the region that succeeded.",
        ),
        declare(
            "tollgate_region_exchange_failures_total",
            MetricKind::Counter,
            "Exchanges of messages with the region that failed.",
        ),
        declare(
            "tollgate_region_exchange_seconds_total",
            MetricKind::Counter,
            "Time of the exchanges that succeeded, in seconds.",
        ),
        declare(
            "tollgate_region_clock_offset_seconds",
            MetricKind::Gauge,
            "Offset of the clock of the region from that of this one, in seconds, at the last exchange; positive if it is ahead.",
        ),
        declare(
            "tollgate_region_borrowed_hits_total",
            MetricKind::Counter,
            "Hits of limits that the region lent, or returned.",
        ),
        declare(
            "tollgate_region_lent_hits_total",
            MetricKind::Counter,
            "Hits of limits that were lent to the region.",
        ),
        declare(
            "tollgate_region_loan_request_seconds_total",
            MetricKind::Counter,
            "Time from loan requests to the region to their replies, in seconds.",
        ),
        declare(
            "tollgate_region_primary_call_seconds_total",
            MetricKind::Counter,
            "Time from calls to the primary region to their replies, in seconds.",
        ),
    ],
    write,
);

/// Result of a loan request to another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoanRequestResult {
    /// All that was wanted.
    Granted,
    /// A part of it.
    Part,
    /// Nothing.
    Refused,
    /// No reply.
    Timeout,
    /// The region tables differ.
    Generation,
}

impl LoanRequestResult {
    const ALL: [Self; 5] = [Self::Granted, Self::Part, Self::Refused, Self::Timeout, Self::Generation];

    const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Part => "part",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Generation => "generation",
        }
    }

    /// Result of a loan request that was not answered.
    pub(super) const fn of_refusal(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Generation => Self::Generation,
            _ => Self::Refused,
        }
    }
}

static LOAN_REQUESTS: Computed<1> = Computed::counter(
    "tollgate_region_loan_requests_total",
    &["region", "result"],
    "Loan requests for a part of the region's share of a limit, by result.",
    |[declared], page| {
        write_results(declared, page, LoanRequestResult::ALL.map(LoanRequestResult::name), |counts| {
            counts.loan_requests
        });
    },
);

/// Result of a call to the primary region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// Decided in time.
    Decided,
    /// Decided after the caller's deadline.
    Late,
    /// Not decided, and nothing was charged.
    Declined,
    /// Failed; the outcome is unknown.
    Failed,
    /// The call was not sent.
    NotSent,
}

impl CallResult {
    const ALL: [Self; 5] = [Self::Decided, Self::Late, Self::Declined, Self::Failed, Self::NotSent];

    const fn name(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Late => "late",
            Self::Declined => "declined",
            Self::Failed => "failed",
            Self::NotSent => "not_sent",
        }
    }

    /// Result of a call that was sent.
    pub(super) const fn of<T>(result: &Result<T, StoreError>, is_late: bool) -> Self {
        match result {
            Ok(_) if is_late => Self::Late,
            Ok(_) => Self::Decided,
            Err(error) if error.charged_nothing() => Self::Declined,
            Err(_) => Self::Failed,
        }
    }
}

static CALLS: Computed<1> = Computed::counter(
    "tollgate_region_primary_calls_total",
    &["region", "result"],
    "Calls to the primary region about limits of `scope: primary`, by result.",
    |[declared], page| {
        write_results(declared, page, CallResult::ALL.map(CallResult::name), |counts| counts.calls);
    },
);

/// Results of calls that were answered, in their order.
const ANSWERS_NAMED: [(PrimaryOutcome, &str); 7] = [
    (PrimaryOutcome::Decided, "decided"),
    (PrimaryOutcome::Role, "role"),
    (PrimaryOutcome::Rule, "rule"),
    (PrimaryOutcome::Malformed, "malformed"),
    (PrimaryOutcome::Busy, "busy"),
    (PrimaryOutcome::NotCharged, "not_charged"),
    (PrimaryOutcome::Unknown, "unknown"),
];

static ANSWERS: Computed<1> = Computed::counter(
    "tollgate_region_primary_answers_total",
    &["region", "result"],
    "Calls of the region that this one, as the primary region, answered, by result.",
    |[declared], page| {
        write_results(declared, page, ANSWERS_NAMED.map(|(_, name)| name), |counts| counts.answers);
    },
);

/// Writes a sample for each region and result.
fn write_results<const N: usize>(
    declared: &Declared,
    page: &mut Page,
    names: [&str; N],
    of: impl Fn(&PeerCounts) -> [u64; N],
) {
    let counts = COUNTS.lock().clone();
    if counts.is_empty() {
        return;
    }
    page.begin(declared);
    for (region, counts) in &counts {
        for (name, count) in names.into_iter().zip(of(counts)) {
            page.sample(declared, &[region, name], count);
        }
    }
}

/// Messages about limits that were exchanged with another region since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The counts of another region.
pub(super) fn counts_of(region: &str) -> RegionCounts {
    let counts = COUNTS.lock().get(region).copied().unwrap_or_default();
    let named = |names: &[&str], counts: &[u64]| -> BTreeMap<String, u64> {
        names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    RegionCounts {
        loan_requests: named(&LoanRequestResult::ALL.map(LoanRequestResult::name), &counts.loan_requests),
        borrowed_hits: counts.borrowed,
        lent_hits: counts.lent,
        primary_calls: named(&CallResult::ALL.map(CallResult::name), &counts.calls),
        primary_answers: named(&ANSWERS_NAMED.map(|(_, name)| name), &counts.answers),
    }
}

/// Counts a call to the primary region.
pub(super) fn called(region: &str, result: CallResult, time: Duration) {
    count(region, |counts| {
        increment(&mut counts.calls, result as usize);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counts.call_micros += micros;
    });
}

/// Counts a call of another region that was answered.
pub(super) fn answered(region: &str, outcome: PrimaryOutcome) {
    let at = ANSWERS_NAMED.iter().position(|(named, _)| *named == outcome);
    count(region, |counts| at.into_iter().for_each(|at| increment(&mut counts.answers, at)));
}

fn increment(counts: &mut [u64], at: usize) {
    if let Some(count) = counts.get_mut(at) {
        *count += 1;
    }
}

/// Counts a loan request, with the amount gained.
pub(super) fn loan_requested(region: &str, result: LoanRequestResult, gained: u32, time: Duration) {
    count(region, |counts| {
        increment(&mut counts.loan_requests, result as usize);
        counts.borrowed += u64::from(gained);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counts.loan_request_micros += micros;
    });
}

/// Counts what was lent to a region.
pub(super) fn lent(region: &str, hits: u32) {
    count(region, |counts| counts.lent += u64::from(hits));
}

/// Counts of one other region.
#[derive(Clone, Copy, Debug, Default)]
struct PeerCounts {
    is_up: bool,
    exchanges: u64,
    failures: u64,
    micros: u64,
    clock_offset_us: i64,
    /// In the order of [`LoanRequestResult`].
    loan_requests: [u64; 5],
    /// In the order of [`CallResult`].
    calls: [u64; 5],
    call_micros: u64,
    /// In the order of [`ANSWERS_NAMED`].
    answers: [u64; 7],
    borrowed: u64,
    lent: u64,
    loan_request_micros: u64,
}

/// By region; as many as tables had regions with different names.
static COUNTS: Mutex<BTreeMap<Box<str>, PeerCounts>> = Mutex::new(BTreeMap::new());

#[allow(clippy::float_arithmetic)] // Seconds are exported as such.
fn write(declared: &[Declared; 9], page: &mut Page) {
    let counts = COUNTS.lock().clone();
    if counts.is_empty() {
        return;
    }
    let [up, exchanges, failures, seconds, offset, borrowed, lent, loan_request_seconds, call_seconds] =
        declared;
    for (declared, value) in [
        (up, (|counts| f64::from(u8::from(counts.is_up))) as fn(&PeerCounts) -> f64),
        (exchanges, |counts| counts.exchanges as f64),
        (failures, |counts| counts.failures as f64),
        (seconds, |counts| counts.micros as f64 / 1e6),
        (offset, |counts| counts.clock_offset_us as f64 / 1e6),
        (borrowed, |counts| counts.borrowed as f64),
        (lent, |counts| counts.lent as f64),
        (loan_request_seconds, |counts| counts.loan_request_micros as f64 / 1e6),
        (call_seconds, |counts| counts.call_micros as f64 / 1e6),
    ] {
        page.begin(declared);
        counts.iter().for_each(|(region, counts)| page.sample(declared, &[region], value(counts)));
    }
}

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

/// Counts a refused change of the table.
pub(super) fn reload_failed() {
    RELOAD_FAILURES.add(1);
}

/// Counts a refused message.
pub(super) fn refused(refusal: Refusal) {
    REFUSED.increment([refusal.name()]);
}

/// Records that a region replied, and the difference of the clocks in microseconds.
pub(super) fn up(region: &str, clock_offset_us: i64) {
    count(region, |counts| (counts.is_up, counts.clock_offset_us) = (true, clock_offset_us));
}

/// Records that a region does not reply.
pub(super) fn down(region: &str) {
    count(region, |counts| counts.is_up = false);
}

/// Counts an exchange that succeeded.
pub(super) fn exchanged(region: &str, time: Duration) {
    count(region, |counts| {
        counts.exchanges += 1;
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        counts.micros += micros;
    });
}

/// Counts an exchange that failed.
pub(super) fn exchange_failed(region: &str) {
    count(region, |counts| counts.failures += 1);
}
