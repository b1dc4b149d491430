//! Regions that enforce limits of `scope: global` or `scope: primary` together.
//!
//! - [`Regions`]: the region table, which is read again when it changes.
//! - [`state`]: the active weights, and changes of them; [`announcements`]: what other regions state of theirs.
//! - [`tables`]: the region's tables in its control store.
//! - [`loans`]: parts of the shares that regions lend to each other.
//! - [`primary`]: decisions of one region for all of them.
//! - [`peers`]: exchange of messages with the other regions.
//!
//! Each region's counters enforce its share of every global limit, so that no region depends on another one.

// Counts, sizes and times far from their ends; those of users and of the wire are checked where they are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

mod announcements;
mod loans;
pub mod metrics;
mod peers;
mod primary;
mod server;
mod settings;
mod state;
pub mod tables;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, mem, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio::{sync::watch, task::spawn_blocking};
use tollgate_core::{RecordId, clock::Clock};
use tollgate_limiter::OwnShares;
use tollgate_rules::{RegionTable, Rule, Rules, Scope, TableSize, config::read_regions};
use tollgate_runtime::bounded_file::{self, Polled};
use tollgate_runtime::redact;

use self::primary::PrimaryCalls;
use self::state::{State, lacks_own};

pub use self::metrics::RegionCounts;
pub use self::server::{RegionServer, ServerParts};
pub use self::settings::{PeerSettings, RegionSettings};
pub use self::state::{RegionView, RegionsView};

/// Interval between two polls of the file. Its content is compared: a mounted file changes by a symlink in a parent
/// directory, which a watch on the file does not report.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum length of the file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The regions, as of now. Clones share them.
#[derive(Clone, Debug)]
pub struct Regions {
    file: Arc<Path>,
    shares: OwnShares,
    /// Calls to which the role of the own region in limits with `scope: primary` is passed on.
    calls: PrimaryCalls,
    state: Arc<Mutex<State>>,
    /// Generation of the active table.
    generation: Arc<watch::Sender<u64>>,
}

impl Regions {
    /// Reads the table for the first time. Own shares are kept in `shares`, and the role of the own region in `calls`.
    ///
    /// # Errors
    /// Every problem of the table.
    pub fn load(settings: &RegionSettings, shares: OwnShares, calls: PrimaryCalls) -> Result<Self, String> {
        let RegionSettings { name, table: file, peers } = settings;
        let table = read(file).and_then(|bytes| parse(file, &bytes))?;
        let lacks_own = || format!("{}: {}", file_name(file), lacks_own(name));
        let state = State::new(name, table, peers.is_some()).ok_or_else(lacks_own)?;
        let generation = Arc::new(watch::Sender::new(state.table.generation()));
        let state = Arc::new(Mutex::new(state));
        let regions = Self { file: file.as_path().into(), shares, calls, state, generation };
        regions.publish(&regions.state.lock());
        Ok(regions)
    }

    /// Size of the table, for the validation of rules.
    pub fn table_size(&self) -> TableSize {
        size(&self.state.lock().table)
    }

    /// The region that writes the rules, unless it is this one or each region has its own.
    pub fn writing(&self) -> Option<String> {
        let state = self.state.lock();
        state.table.writing().filter(|region| **region != *state.own).map(str::to_owned)
    }

    /// The primary region, if it is another one.
    fn other_primary(&self) -> Option<String> {
        let state = self.state.lock();
        state.table.primary().filter(|region| **region != *state.own).map(str::to_owned)
    }

    /// Whether this region writes the rules of all.
    fn is_writing(&self) -> bool {
        let state = self.state.lock();
        state.table.writing() == Some(&*state.own)
    }

    /// Generation of the active table.
    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Changes of the active table.
    fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// The regions as operators see them.
    pub fn view(&self) -> RegionsView {
        self.state.lock().view()
    }

    /// Reads the file again when it changes; completes only after a panic.
    pub async fn follow(self) {
        // No read fails without a reason.
        let mut polled = Polled::new(Err(String::new()));
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let regions = self.clone();
            let read_again = move || {
                regions.poll(&mut polled);
                polled
            };
            match spawn_blocking(read_again).await {
                Ok(after) => polled = after,
                Err(_) => return,
            }
        }
    }

    fn poll(&self, polled: &mut Polled<Result<Vec<u8>, String>>) {
        if let Some(content) = polled.changed(read(&self.file)) {
            self.reload(content.clone());
        }
    }

    /// Activates a changed file, or records its problem.
    fn reload(&self, content: Result<Vec<u8>, String>) {
        let table = content.and_then(|bytes| parse(&self.file, &bytes));
        let mut state = self.state.lock();
        let proposed = match table {
            Ok(table) if table == state.table => Ok(()),
            Ok(table) => {
                let generation = table.generation();
                let proposed = state.propose(table);
                proposed
                    .inspect(|()| tracing::info!(generation, "region table activated"))
                    .map_err(|problem| format!("{}: {problem}", file_name(&self.file)))
            }
            Err(error) => Err(error),
        };
        state.file_error = proposed.err();
        if let Some(error) = &state.file_error {
            metrics::RELOAD_FAILURES.add(1);
            tracing::error!(%error, "invalid region table; keeping the active one");
        }
        self.publish(&state);
    }

    /// Takes over the record of the region's tables, `""` for none, and returns the one that has to replace it. `is_running` is
    /// whether other instances of the region have the table.
    fn take_over(&self, record: &str, is_running: bool) -> Option<String> {
        let mut state = self.state.lock();
        let was_settled = state.demarcation.is_settled();
        let taken = state.demarcation.take_over(record, is_running);
        state.demarcation.finish(Clock::System.now());
        let (generation, unfinished) = (state.table.generation(), state.demarcation.unfinished());
        if !was_settled && unfinished > 0 {
            tracing::info!(generation, unfinished, "region table waits for other regions");
        }
        self.publish(&state);
        drop(state);
        taken
            .inspect_err(|error| {
                if !was_settled {
                    tracing::error!(%error, "cannot read region tables; joining other regions");
                }
            })
            .unwrap_or_default()
    }

    /// Takes over the record of the primary region, `""` for none, and returns the one that has to replace it.
    fn take_over_primary(&self, record: &str) -> Option<String> {
        let mut state = self.state.lock();
        let State { own, table, primacy, .. } = &mut *state;
        let new = primacy.take_over(own, table, record);
        self.publish(&state);
        new
    }

    /// Lets the own region decide at once if it is the primary one: without a store that outlives the process there is no
    /// record, and its counters begin unused.
    fn has_no_records(&self) {
        let mut state = self.state.lock();
        state.primacy.is_pending = false;
        self.publish(&state);
    }

    /// Whether the record of the region's tables, or its absence, was taken over.
    fn is_settled(&self) -> bool {
        self.state.lock().demarcation.is_settled()
    }

    fn publish(&self, state: &State) {
        metrics::table(state.table.generation(), state.demarcation.unfinished());
        self.shares.set(state.demarcation.shares());
        self.calls.set_role(state.primacy.role(&state.own, &state.table));
        let generation = state.table.generation();
        self.generation.send_if_modified(|known| mem::replace(known, generation) != generation);
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let read = bounded_file::read_up_to(file, MAX_FILE_BYTES);
    read.map_err(|error| format!("{}: {error}", redact::path(file)))
}

fn parse(file: &Path, bytes: &[u8]) -> Result<RegionTable, String> {
    read_regions(&file_name(file), bytes).map_err(|report| report.to_string())
}

/// Name of the file in problems.
fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Size of the table at `file`, for validation without a server.
///
/// # Errors
/// Every problem of the table.
pub fn size_of(file: &Path) -> Result<TableSize, String> {
    read(file).and_then(|bytes| parse(file, &bytes)).map(|table| size(&table))
}

fn size(table: &RegionTable) -> TableSize {
    let sharing = u32::try_from(table.sharing()).unwrap_or(u32::MAX);
    TableSize::Regions { sharing, has_primary: table.primary().is_some() }
}

/// Rules with their domains, by the path of their counters.
type RuleIndex = HashMap<[u8; RecordId::LENGTH], Vec<(Box<str>, Arc<Rule>)>>;

/// Rules of one version, and their index.
type IndexedRules = (Arc<Rules>, Arc<RuleIndex>);

/// Rules of one scope, which are indexed once for each version. Clones share them.
#[derive(Clone, Debug)]
struct ScopedRules {
    scope: Scope,
    latest: Arc<Mutex<Option<IndexedRules>>>,
}

impl ScopedRules {
    fn new(scope: Scope) -> Self {
        Self { scope, latest: Arc::default() }
    }

    /// The rules of a version.
    fn index(&self, rules: &Arc<Rules>) -> Arc<RuleIndex> {
        let mut latest = self.latest.lock();
        if let Some((known, index)) = &*latest
            && Arc::ptr_eq(known, rules)
        {
            return Arc::clone(index);
        }
        let mut index = RuleIndex::new();
        for domain in rules.domains() {
            for rule in domain.root.rules().filter(|rule| rule.scope == self.scope) {
                let path = rule.record_id().path();
                index.entry(path).or_default().push((domain.name.clone(), Arc::clone(rule)));
            }
        }
        let index = Arc::new(index);
        *latest = Some((Arc::clone(rules), Arc::clone(&index)));
        index
    }
}
