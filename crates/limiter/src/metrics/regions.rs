//! Denials of rules with `scope: global` by the own region's share.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tollgate_metrics::{Computed, Sink, Striped, publish, series::OTHER};
use tollgate_rules::{Rule, Rules, Scope};

/// Maximum number of rules that have series of their own.
const MAX_RULES: usize = 2_000;

pub(super) static SHARE_DENIALS: Computed<1> = Computed::counter(
    "tollgate_rule_share_denials_total",
    &["domain", "rule"],
    "Hits that the own region's share of a limit denied, while other regions have shares of it.",
    |[declared], page| {
        publish();
        let mut all = ALL.lock();
        // At zero, as any series that may appear.
        all.entry((OTHER.into(), OTHER.into())).or_default();
        page.begin(declared);
        for ((domain, rule), count) in &*all {
            page.sample(declared, &[domain, rule], count.load(Ordering::Relaxed));
        }
    },
);

/// Hits of all rules that the own region's share of a limit denied, since the start of the process.
pub fn share_denials() -> u64 {
    publish();
    ALL.lock().values().fold(0, |sum, count| sum.saturating_add(count.load(Ordering::Relaxed)))
}

/// Domain and path of a rule.
type Name = (Box<str>, Box<str>);

static ALL: Mutex<BTreeMap<Name, Arc<AtomicU64>>> = Mutex::new(BTreeMap::new());

/// Counters of the global rules of one version of the rules, by their index. They exist from the activation on, so that a
/// first denial is seen as a change.
#[derive(Default)]
pub(super) struct ShareCounters(HashMap<usize, Arc<Striped<1>>>);

impl fmt::Debug for ShareCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareCounters")
    }
}

impl ShareCounters {
    pub(super) fn for_rules(rules: &Rules) -> Self {
        let mut all = ALL.lock();
        let global = rules.domains().flat_map(|domain| {
            let rules = domain.root.rules().filter(|rule| rule.scope == Scope::Global);
            rules.map(move |rule| (&*domain.name, rule))
        });
        let counters = global.map(|(domain, rule)| {
            let mut name: Name = (domain.into(), rule.path().into());
            if all.len() >= MAX_RULES && !all.contains_key(&name) {
                // Series of rules of former versions, which count nothing more.
                all.retain(|_, count| Arc::strong_count(count) > 1);
                if all.len() >= MAX_RULES {
                    name = (OTHER.into(), OTHER.into());
                }
            }
            let sink: Arc<dyn Sink> = Arc::<AtomicU64>::clone(all.entry(name).or_default());
            (rule.index().as_usize(), Striped::new([sink]))
        });
        Self(counters.collect())
    }

    /// Counts hits that the share of a rule's limit denied.
    pub(super) fn denied(&self, rule: &Rule, hits: u64) {
        if let Some(counter) = self.0.get(&rule.index().as_usize()) {
            counter.add([hits]);
        }
    }
}
