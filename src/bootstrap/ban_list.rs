//! Adds the bans that began in this process to the list that operators see, and the clients to the deny list.

use std::{
    convert::Infallible,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval};
use tollgate_control::{
    AutomaticEntry, BanCounts, Control, ListedBan, ListedBanMode, Pair, bounds::MAX_BAN_BATCH, metrics,
};
use tollgate_core::clock::Clock;
use tollgate_limiter::{ActiveRules, BegunBan, BegunBans};
use tollgate_rules::Rules;

use super::listed_clients::ListedClients;

/// Time between two additions: with [`MAX_BAN_BATCH`] the bound of additions per second.
const INTERVAL: Duration = Duration::from_secs(1);

/// Intervals between two looks at the list without additions, for its metrics.
const IDLE_INTERVALS: u32 = 5;

/// Adds bans to the list of a control store.
#[derive(Debug)]
pub(super) struct BanLister {
    begun: BegunBans,
    control: Control,
    rules: Arc<ActiveRules>,
    /// Bans that the store did not take yet, at most [`MAX_BAN_BATCH`].
    pending: Vec<ListedBan>,
    /// Clients of bans for the deny list.
    clients: ListedClients,
    unlisted: u64,
    listed: BanCounts,
    idle: u32,
    /// The rules that were searched for bans last, and whether they have any.
    searched: (Weak<Rules>, bool),
}

impl BanLister {
    pub(super) fn new(begun: BegunBans, control: Control, rules: Arc<ActiveRules>) -> Self {
        Self {
            begun,
            control,
            rules,
            pending: Vec::new(),
            clients: ListedClients::default(),
            unlisted: 0,
            listed: BanCounts::default(),
            idle: 0,
            searched: (Weak::new(), false),
        }
    }

    /// Adds bans as they begin. Never returns.
    pub(super) async fn run(mut self) -> Infallible {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.step(Clock::System.now().as_micros() / 1_000).await;
        }
    }

    /// Adds the bans that began, if any. They are added later if the store does not respond.
    async fn step(&mut self, now_ms: u64) {
        let room = MAX_BAN_BATCH.saturating_sub(self.pending.len()).min(self.clients.room());
        for begun in self.begun.take(room) {
            let is_listed = begun.is_listed;
            let ban = listed(begun, now_ms);
            if let Some(entry) = is_listed.then(|| AutomaticEntry::of_ban(&ban)).flatten() {
                self.clients.push(entry);
            }
            self.pending.push(ban);
        }
        self.clients.list(&self.control, now_ms).await;
        self.pending.retain(|ban| ban.ends_at_ms > now_ms);
        let unlisted = self.begun.dropped();
        metrics::unlisted_bans(unlisted.saturating_sub(self.unlisted));
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

    /// Whether to read the number of bans, although none began here.
    fn is_update_due(&mut self) -> bool {
        self.idle = self.idle.saturating_add(1);
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
        mode: if ban.is_enforced { ListedBanMode::Enforce } else { ListedBanMode::Watch },
        began_at_ms: now_ms,
        ends_at_ms: ban.ends_at().as_micros() / 1_000,
        instance: String::new(),
    }
}
