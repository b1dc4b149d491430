//! Adds clients that were banned again and again to the deny list, each until the end of its ban.

use std::collections::BTreeMap;

use tollgate_control::{
    Added, AutomaticEntry, Control, EventKind, OperatorEvent, bounds::MAX_BAN_BATCH, metrics,
};

/// Entries for the deny list that the control store did not take yet.
#[derive(Debug, Default)]
pub(super) struct ListedClients(Vec<AutomaticEntry>);

impl ListedClients {
    /// Room for further entries.
    pub(super) const fn room(&self) -> usize {
        MAX_BAN_BATCH.saturating_sub(self.0.len())
    }

    pub(super) fn push(&mut self, entry: AutomaticEntry) {
        self.0.push(entry);
    }

    /// Adds the entries that have not ended, and reports them: by number in the log, and as events. They are added later if
    /// the store does not respond.
    pub(super) async fn list(&mut self, control: &Control, now_ms: u64) {
        self.0.retain(|entry| entry.expires_at_ms > now_ms);
        if self.0.is_empty() {
            return;
        }
        // A failure is logged and counted with the other calls of the store.
        let Ok(results) = control.add_automatic(self.0.clone()).await else { return };
        let mut listed: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut full = 0_u64;
        for (entry, added) in self.0.drain(..).zip(results) {
            match added {
                Added::Listed => {
                    let key = entry.key_text();
                    listed.entry((entry.domain, entry.rule)).or_default().push(key);
                }
                Added::Known => {}
                Added::Full => full = full.saturating_add(1),
            }
        }
        for ((domain, rule), keys) in listed {
            tracing::info!(%domain, %rule, clients = keys.len(), "banned clients listed");
            control.raise_event(event(domain, rule, keys));
        }
        metrics::automatic_refused(full);
        if full > 0 {
            tracing::warn!(clients = full, "no room for automatic list entries");
        }
    }
}

/// One event for all clients of a rule, so that an attack by many is one event.
fn event(domain: String, rule: String, keys: Vec<String>) -> OperatorEvent {
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
        figures: vec![("listed_keys", u64::try_from(count).unwrap_or(u64::MAX))],
        occasion: None,
    }
}
