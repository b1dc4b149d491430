//! Active weights of the regions, and changes of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tollgate_core::hash_of;
use tollgate_loans::shares::{Demarcation, WeightTable};
use tollgate_proto::tollgate::region::v1::{CounterLoanRequest, CounterReply};
use tollgate_rules::RegionTable;
use tonic::transport::Channel;

use super::metrics::{RegionCounts, counts_of};
use super::primary::Primacy;

/// The active region table, and weights before it that may still count.
#[derive(Debug)]
pub(super) struct State {
    pub(super) own: Box<str>,
    pub(super) table: RegionTable,
    pub(super) demarcation: Demarcation,
    /// Problem of the file, since it was last changed.
    pub(super) file_error: Option<String>,
    /// Exchanges with the other regions, by name.
    pub(super) announced: BTreeMap<Box<str>, Announced>,
    /// Role of the own region in limits with `scope: primary`.
    pub(super) primacy: Primacy,
    /// Connections to other regions, by name.
    pub(super) channels: BTreeMap<Box<str>, Channel>,
}

/// Regions as operators see them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionsView {
    /// The own region.
    pub region: String,
    /// Generation of the active table.
    pub generation: u64,
    /// Region that decides limits with `scope: primary`.
    pub primary: Option<String>,
    /// Whether it is the own region, which waits until all others have announced the table.
    pub primary_pending: bool,
    /// Hits that the own region's share of a limit denied, while others have shares of it, since the start of the process.
    pub share_denials: u64,
    /// Problem of the table's file; the active table stays.
    pub file_error: Option<String>,
    /// Changes of weights that other regions have not announced: raised shares do not apply yet.
    pub unfinished_changes: usize,
    /// Other regions that have not announced the active table.
    pub waiting_for: Vec<String>,
    /// All regions.
    pub regions: Vec<RegionView>,
}

/// A region as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionView {
    /// Its name.
    pub name: String,
    /// URL of its service between regions.
    pub address: String,
    /// Its weight.
    pub weight: u32,
    /// Its part of each global limit, 0 to 1, once all changes are finished.
    pub share: f64,
    /// Whether an operator has given it up.
    pub lost: bool,
    /// Whether it is the own region.
    pub own: bool,
    /// Whether the last exchange of messages with it succeeded; `None` for the own region and before the first one.
    pub up: Option<bool>,
    /// Generation of its table, as it announced it.
    pub generation: Option<u64>,
    /// Time since its last announcement, in milliseconds.
    pub announced_ms_ago: Option<u64>,
    /// Whether its table of the same generation has other weights.
    pub differs: bool,
    /// Offset of its clock from that of this region, in milliseconds; positive if it is ahead.
    pub clock_offset_ms: Option<i64>,
    /// Time of the last exchange of messages, in milliseconds.
    pub round_trip_ms: Option<u64>,
    /// Reason why the last exchange failed.
    pub error: Option<String>,
    /// Messages about limits exchanged with it; `None` for the own region.
    #[serde(flatten)]
    pub counts: Option<RegionCounts>,
}

impl State {
    /// The state with a first table; `None` if the table lacks the own region. `has_record` is whether tables are recorded
    /// in the region's store.
    pub(super) fn new(own: &str, table: RegionTable, has_record: bool) -> Option<Self> {
        let demarcation = Demarcation::new(weight_table(&table, own)?);
        let primacy = Primacy::start(own, &table, has_record);
        Some(Self {
            own: own.into(),
            table,
            demarcation,
            file_error: None,
            announced: BTreeMap::new(),
            primacy,
            channels: BTreeMap::new(),
        })
    }

    /// Lets the own region decide as the primary one once no other region calls the former one. Returns whether it begins.
    pub(super) fn settle_primary(&mut self) -> bool {
        let begins = self.primacy.is_pending && self.demarcation.waiting_for().next().is_none();
        self.primacy.is_pending &= !begins;
        begins
    }

    /// Replaces the table. Until every region has announced it, the smaller share of both applies.
    ///
    /// # Errors
    /// The reason why the table does not replace the active one.
    pub(super) fn propose(&mut self, table: RegionTable) -> Result<(), String> {
        let weights = weight_table(&table, &self.own).ok_or_else(|| lacks_own(&self.own))?;
        self.demarcation.propose(weights)?;
        self.primacy.change(&self.own, &self.table, &table);
        self.table = table;
        self.announced.retain(|name, _| self.table.region(name).is_some());
        Ok(())
    }

    #[allow(clippy::float_arithmetic)] // Shown to people.
    pub(super) fn view(&self) -> RegionsView {
        let total = self.demarcation.table().weights.total() as f64;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let known = |name: &str| self.announced.get(name);
        let regions = self.table.regions().iter().map(|region| (region, known(&region.name)));
        let regions = regions.map(|(region, known)| RegionView {
            name: region.name.to_string(),
            address: region.address.to_string(),
            weight: region.weight,
            share: if region.is_lost { 0.0 } else { f64::from(region.weight) / total },
            lost: region.is_lost,
            own: region.name == self.own,
            up: known.map(|known| known.is_up),
            generation: self.demarcation.state_of(&region.name).map(|state| state.generation),
            announced_ms_ago: known.and_then(|known| known.at.map(|at| millis(at.elapsed()))),
            differs: self.demarcation.differs(&region.name),
            clock_offset_ms: known.filter(|known| known.is_up).map(|known| known.clock_offset_us / 1_000),
            round_trip_ms: known.filter(|known| known.is_up).map(|known| millis(known.round_trip)),
            error: known.and_then(|known| known.error.clone()),
            counts: (region.name != self.own).then(|| counts_of(&region.name)),
        });
        RegionsView {
            region: self.own.to_string(),
            generation: self.table.generation(),
            primary: self.table.primary().map(str::to_owned),
            primary_pending: self.primacy.is_pending,
            share_denials: tollgate_limiter::metrics::share_denials(),
            file_error: self.file_error.clone(),
            unfinished_changes: self.demarcation.unfinished(),
            waiting_for: self.demarcation.waiting_for().map(str::to_owned).collect(),
            regions: regions.collect(),
        }
    }
}

/// The weights of a table as the region `own` has them; `None` if the table lacks it.
fn weight_table(table: &RegionTable, own: &str) -> Option<WeightTable> {
    let mut text: String = table
        .regions()
        .iter()
        .map(|region| format!("{} {} {}\n", region.name, region.weight, region.is_lost))
        .collect();
    // A table without one has the digest of former versions.
    if let Some(primary) = table.primary() {
        text.push_str(primary);
    }
    let (generation, digest) = (table.generation(), hash_of(text.as_bytes()));
    table.weights(own).map(|weights| WeightTable { generation, digest, weights })
}

/// Problem of a table without the own region.
pub(super) fn lacks_own(own: &str) -> String {
    format!("regions: has no region `{own}`; expected the region of --region")
}

/// Loan request that waits to be sent.
#[derive(Debug)]
pub(super) struct OutgoingLoanRequest {
    pub(super) request: CounterLoanRequest,
    /// Receiver of the reply; dropped without one.
    pub(super) reply: oneshot::Sender<CounterReply>,
}

/// Exchange of messages with another region.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced {
    /// Time of its last announcement.
    pub(super) at: Option<Instant>,
    /// Whether the last exchange succeeded.
    pub(super) is_up: bool,
    /// Reason of the last failure, until an exchange succeeds.
    pub(super) error: Option<String>,
    /// Offset of its clock from that of this region, in microseconds; positive if it is ahead.
    pub(super) clock_offset_us: i64,
    pub(super) round_trip: Duration,
    /// Loan requests to be sent to it.
    pub(super) loan_requests: Option<mpsc::Sender<OutgoingLoanRequest>>,
    pub(super) messages: SecondCount,
    pub(super) calls: SecondCount,
    pub(super) loan_requests_received: SecondCount,
    pub(super) loan_requests_sent: SecondCount,
}

/// Messages, calls or loan requests of a region within a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecondCount {
    since: Option<Instant>,
    count: u32,
}

impl SecondCount {
    /// Counts another one at `now`. Whether it is within the maximum.
    pub(super) fn admits(&mut self, max: u32, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            *self = Self { since: Some(now), count: 0 };
        }
        self.count += 1;
        self.count <= max
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
    use tollgate_core::clock::Timestamp;
    use tollgate_core::quota::{Quota, Unit, Window};
    use tollgate_loans::shares::TableState;
    use tollgate_rules::config::read_regions;

    use super::*;
    use tollgate_fixtures::region_table;

    fn table(generation: u32, weights: &[(&str, u32)]) -> RegionTable {
        read_regions("regions.yaml", region_table(generation, "", weights).as_bytes()).expect("valid")
    }

    fn share(state: &State, now: u64) -> u32 {
        let quota = Quota { limit: 100, window: Window::of(Unit::Minute) };
        let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
        state.demarcation.shares().share(100, &policy, || Timestamp::from_micros(now * 1_000_000), || 0)
    }

    #[test]
    fn a_table_with_a_lower_generation_or_without_the_own_region_is_refused() {
        let mut state = State::new("us", table(2, &[("us", 1), ("eu", 1)]), false).expect("a state");
        for (refused, expected) in [
            (table(2, &[("us", 9), ("eu", 1)]), "generation: 2 is not above the active 2"),
            (table(1, &[("us", 9), ("eu", 1)]), "generation: 1 is not above"),
            (table(3, &[("ap", 9), ("eu", 1)]), "has no region `us`"),
        ] {
            let error = state.propose(refused).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!((state.view().generation, share(&state, 0)), (2, 50));
        assert!(State::new("ap", table(1, &[("us", 1)]), false).is_none());
    }

    #[test]
    fn a_lower_share_applies_at_once_and_a_higher_one_a_window_after_every_region_announced_it() {
        let mut state = State::new("us", table(1, &[("us", 1), ("eu", 1)]), false).expect("a state");
        state.propose(table(2, &[("us", 3), ("eu", 1)])).expect("accepted");
        assert_eq!((share(&state, 1_000), state.demarcation.unfinished()), (50, 1));
        state.propose(table(3, &[("us", 1), ("eu", 3)])).expect("accepted");
        assert_eq!(share(&state, 1_000), 25);
        state.propose(table(4, &[("us", 3), ("eu", 1)])).expect("accepted");
        assert_eq!(share(&state, 1_000), 25, "a region may not have received the change before");
        let lowered = |lowered| TableState { lowered, ..state.demarcation.state() };
        let (early, last) = (lowered(3), lowered(4));
        let at = Timestamp::from_micros(2_000_000_000);
        assert!(!state.demarcation.announced("eu", early, at) && state.demarcation.announced("eu", last, at));
        assert_eq!((share(&state, 2_075), state.demarcation.unfinished()), (25, 0));
        assert_eq!(share(&state, 2_076), 75);
    }
}
