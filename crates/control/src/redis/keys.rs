//! Names of keys.

use tollgate_store::key::slot_of;

/// Hash tag of all keys.
const TAG: &str = "tollgate-rules";

/// The keys of one installation.
#[derive(Debug)]
pub(super) struct Keys {
    /// Common prefix.
    start: String,
    /// Keys of every operation.
    fixed: [Vec<u8>; 6],
    /// Keys of every operation on overrides of rules.
    overrides: [Vec<u8>; 6],
    automatic: [Vec<u8>; 3],
    bans: [Vec<u8>; 3],
    channel: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let start = format!("{prefix}{{{TAG}}}:");
        let named = |name: &str| named(&start, name);
        let fixed = ["head", "audit", "entries", "switches", "instances", "seen"].map(named);
        let overrides = [
            "head",
            "override-audit",
            "overrides",
            "override-revisions",
            "override-removals",
            "override-ends",
        ];
        let overrides = overrides.map(named);
        let automatic = ["automatic", "automatic-entries", "automatic-audit"].map(named);
        let bans = ["bans", "ban-records", "watched-bans"].map(named);
        Self { fixed, overrides, automatic, bans, channel: named("changes"), start }
    }

    /// A key of this name.
    pub(super) fn named(&self, name: &str) -> Vec<u8> {
        named(&self.start, name)
    }

    pub(super) const fn fixed(&self) -> &[Vec<u8>; 6] {
        &self.fixed
    }

    pub(super) const fn overrides(&self) -> &[Vec<u8>; 6] {
        &self.overrides
    }

    /// Keys of what a whole copy of overrides has gathered.
    pub(super) fn gathered_overrides(&self) -> [Vec<u8>; 3] {
        ["copied-overrides", "copied-override-revisions", "copied-override-ends"].map(|name| self.named(name))
    }

    /// Keys of automatic entries, as the script's operations on them take them.
    pub(super) const fn automatic(&self) -> &[Vec<u8>; 3] {
        &self.automatic
    }

    /// Key of the audit log of automatic entries.
    pub(super) fn automatic_audit(&self) -> &[u8] {
        let [_, _, audit] = &self.automatic;
        audit
    }

    /// Keys of the list of active bans, as the script's operations on it take them.
    pub(super) const fn bans(&self) -> &[Vec<u8>; 3] {
        &self.bans
    }

    pub(super) fn channel(&self) -> &[u8] {
        &self.channel
    }

    pub(super) fn version(&self, number: u64) -> Vec<u8> {
        self.named(&format!("version:{number}"))
    }

    /// Slot of all keys in a cluster.
    pub(super) const fn slot() -> u16 {
        slot_of(TAG.as_bytes())
    }
}

fn named(start: &str, name: &str) -> Vec<u8> {
    format!("{start}{name}").into_bytes()
}
