//! Readers of the observations of limiters: bans that began, which operators see and clients are listed for, and thresholds
//! that were reached.

use std::sync::{Arc, Weak};
use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_control::{
    Added, AutomaticEntry, BanCounts, Control, EventKind, ListedBan, Occasion, OperatorEvent, Pair,
    bounds::MAX_BAN_BATCH, metrics,
};
use tollgate_core::clock::{Clock, now_ms};
use tollgate_limiter::{ActiveRules, BegunBan, Observations, ReachedThreshold};
use tollgate_rules::Rules;

use super::Instance;

/// Time between two additions: with [`MAX_BAN_BATCH`] the bound of additions per second.
const BAN_INTERVAL: Duration = Duration::from_secs(1);

/// Intervals between two looks at the list without additions, for its metrics.
const IDLE_INTERVALS: u32 = 5;

/// Time between two looks at the reached thresholds.
const THRESHOLD_INTERVAL: Duration = Duration::from_millis(500);

/// Room among the queued events that thresholds leave for events of other kinds.
const RESERVED_ROOM: usize = 64;

/// Adds bans to the list that operators see and banned clients to the deny list, and raises events of reached thresholds.
pub(super) fn start(observations: Observations, instance: &Instance) -> JoinSet<Infallible> {
    let lister = BanLister {
        observations: observations.clone(),
        control: instance.control.clone(),
        rules: Arc::clone(&instance.rules),
        pending: Vec::new(),
        clients: Vec::new(),
        unlisted: 0,
        listed: BanCounts::default(),
        idle: 0,
        searched: (Weak::new(), false),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(lister.run());
    tasks.spawn(raise_events(observations, instance.control.clone()));
    tasks
}

/// Adds bans to the list of a control store, and clients that were banned again and again to the deny list.
#[derive(Debug)]
struct BanLister {
    observations: Observations,
    control: Control,
    rules: Arc<ActiveRules>,
    /// Bans that the store did not take yet, at most [`MAX_BAN_BATCH`].
    pending: Vec<ListedBan>,
    /// Entries for the deny list that the store did not take yet, at most [`MAX_BAN_BATCH`].
    clients: Vec<AutomaticEntry>,
    unlisted: u64,
    listed: BanCounts,
    idle: u32,
    /// The rules that were searched for bans last, and whether they have any.
    searched: (Weak<Rules>, bool),
}

impl BanLister {
    /// Adds bans as they begin. Never returns.
    async fn run(mut self) -> Infallible {
        let mut ticks = interval(BAN_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.step(now_ms()).await;
        }
    }

    /// Adds the bans that began, if any. They are added later if the store does not respond.
    async fn step(&mut self, now_ms: u64) {
        let room = MAX_BAN_BATCH - self.pending.len().max(self.clients.len());
        for begun in self.observations.take_bans(room) {
            let is_listed = begun.is_listed;
            let ban = listed(begun, now_ms);
            self.clients.extend(is_listed.then(|| AutomaticEntry::of_ban(&ban)).flatten());
            self.pending.push(ban);
        }
        self.list_clients(now_ms).await;
        self.pending.retain(|ban| ban.ends_at_ms > now_ms);
        let unlisted = self.observations.dropped_bans();
        metrics::UNLISTED_BANS.add(unlisted - self.unlisted);
        self.unlisted = unlisted;
        if self.pending.is_empty() && !self.is_update_due() {
            return;
        }
        // A failure is logged and counted with the other calls of the store.
        if let Ok(counts) = self.control.record_bans(self.pending.clone()).await {
            self.pending.clear();
            self.listed = counts;
        }
    }

    /// Adds the clients whose bans have not ended to the deny list, each until the end of its ban, and reports them: by
    /// number in the log, and as events. They are added later if the store does not respond.
    async fn list_clients(&mut self, now_ms: u64) {
        self.clients.retain(|entry| entry.expires_at_ms > now_ms);
        if self.clients.is_empty() {
            return;
        }
        // A failure is logged and counted with the other calls of the store.
        let Ok(results) = self.control.add_automatic(self.clients.clone()).await else { return };
        let mut listed: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut full = 0;
        for (entry, added) in self.clients.drain(..).zip(results) {
            match added {
                Added::Listed => {
                    let key = entry.key_text();
                    listed.entry((entry.domain, entry.rule)).or_default().push(key);
                }
                Added::Known => {}
                Added::Full => full += 1,
            }
        }
        for ((domain, rule), keys) in listed {
            tracing::info!(%domain, %rule, clients = keys.len(), "banned clients listed");
            self.control.raise_event(listing_event(domain, rule, keys));
        }
        metrics::AUTOMATIC_REFUSED.add(full);
        if full > 0 {
            tracing::warn!(clients = full, "no room for automatic list entries");
        }
    }

    /// Whether to read the number of bans, although none began here.
    fn is_update_due(&mut self) -> bool {
        self.idle += 1;
        if self.idle < IDLE_INTERVALS {
            return false;
        }
        self.idle = 0;
        self.listed != BanCounts::default() || self.has_bans()
    }

    /// Whether an active rule has bans.
    fn has_bans(&mut self) -> bool {
        let Some(rules) = self.rules.load() else { return false };
        if !self.searched.0.ptr_eq(&Arc::downgrade(&rules)) {
            let has_bans = rules.domains().any(|domain| domain.root.rules().any(|rule| rule.ban.is_some()));
            self.searched = (Arc::downgrade(&rules), has_bans);
        }
        self.searched.1
    }
}

/// The ban in the form of the list.
fn listed(BegunBan { domain, rule, entries, ban, .. }: BegunBan, now_ms: u64) -> ListedBan {
    let pair = |(key, value): (Box<str>, Box<str>)| Pair { key: key.into(), value: value.into() };
    let descriptor: Vec<Pair> = entries.into_iter().map(pair).collect();
    ListedBan {
        id: ListedBan::id_of(&domain, &rule, &descriptor),
        domain: domain.into(),
        rule: rule.into(),
        descriptor,
        is_truncated: false,
        level: ban.level.get(),
        mode: ban.mode(),
        began_at_ms: now_ms,
        ends_at_ms: ban.ends_at().as_millis(),
        instance: String::new(),
    }
}

/// One event for all clients of a rule, so that an attack by many is one event.
fn listing_event(domain: String, rule: String, keys: Vec<String>) -> OperatorEvent {
    let count = keys.len();
    let plural = if count == 1 { "" } else { "s" };
    OperatorEvent {
        kind: EventKind::AbuseListed,
        message: format!(
            "Rule {rule} of domain {domain}: {count} client{plural} listed after bans in a row."
        ),
        domain,
        rule: Some(rule),
        key: keys.into_iter().next().filter(|_| count == 1),
        figures: vec![("listed_keys", count as u64)],
        occasion: None,
    }
}

/// Raises an event for each threshold of a limit that was reached in a window. Never returns. While the log does not respond,
/// thresholds wait.
async fn raise_events(observations: Observations, control: Control) -> Infallible {
    let mut ticks = interval(THRESHOLD_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let room = control.event_room().saturating_sub(RESERVED_ROOM);
        let now_s = Clock::System.now().as_micros() / 1_000_000;
        for reached in observations.take_thresholds(room) {
            control.raise_event(threshold_event(reached, now_s));
        }
    }
}

/// The window and the threshold, until the window ends.
fn occasion(reached: &ReachedThreshold, now_s: u64) -> Occasion {
    let ReachedThreshold { counted_key, percent, quota, window_ends_at, .. } = reached;
    Occasion {
        id: format!("{counted_key:016x} {percent} {} {window_ends_at}", quota.window.seconds()),
        lifetime: Duration::from_secs(u64::from(*window_ends_at).saturating_sub(now_s)),
    }
}

fn threshold_event(reached: ReachedThreshold, now_s: u64) -> OperatorEvent {
    let occasion = Some(occasion(&reached, now_s));
    let ReachedThreshold { domain, rule, key, counted_key: _, percent, used, quota, window_ends_at } =
        reached;
    let window = quota.window;
    let message = format!("{percent}% of {} hits per {window} are used: {used} hits.", quota.limit);
    OperatorEvent {
        kind: EventKind::ThresholdReached,
        domain: domain.into(),
        rule: Some(rule.into()),
        key: Some(key),
        message,
        figures: vec![
            ("threshold_percent", percent.into()),
            ("used_hits", used),
            ("limit_hits", quota.limit),
            ("window_seconds", window.seconds().into()),
            ("window_ends_at_ms", u64::from(window_ends_at) * 1_000),
        ],
        occasion,
    }
}
