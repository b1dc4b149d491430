//! Configuration that operators change while traffic flows: versions of the rules, lists, switches, and the audit log.
//!
//! ```text
//! admin API ──> Control ──> backend (Redis | this process) ──> Reconciler ──> active rules, lists, overrides
//! ```
//!
//! - A [`Version`] is an immutable set of rule files. One of them is *current*; another one becomes current by
//!   compare-and-set, so that two operators cannot overwrite each other's changes.
//! - The [`Runtime`] holds changes that take effect at once and mostly expire: allow and deny lists, and switches of
//!   single rules.
//! - An [`OverrideEntry`] changes the limit of a rule, or of one of its keys, mostly for a time.
//! - A [`ListedBan`] shows a ban that a counter's store decides on.
//! - Every change is recorded in an [`AuditEntry`].
//! - Every instance reports what it enforces in a heartbeat, its [`Instance`] record.
//! - Instances share figures of their traffic, and log each [`OperatorEvent`] once.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod automatic;
mod backend;
mod bans;
pub mod bounds;
mod change;
mod copier;
mod copies;
mod error;
pub mod events;
mod fleet;
mod handle;
mod instance_id;
mod lists;
mod lock_file;
mod memory;
pub mod metrics;
mod model;
mod overriding;
mod pairs;
pub mod ramp;
mod reconcile;
mod redis;
mod region_record;
mod rule_overrides;
#[doc(hidden)]
pub mod scripts;
mod status;
mod stored;

pub use self::{
    automatic::{Added, AutomaticEntry, AutomaticMode},
    bans::{BanCounts, BanFilter, BanPage, BanPosition, ListedBan, ListedBanMode},
    copier::{ReadRules, Reading, RulesCopier},
    copies::{
        Adopted, CopiedChange, CopiedOverrides, CopyClaim, CopyState, ListsCopy, OverridesHead,
        OverridesPage, RulesCopy, RulesIdentity, StoredField, VersionCopy,
    },
    error::ControlError,
    events::{EventKind, EventPhase, LoggedEvent, Occasion, OperatorEvent, log_events},
    fleet::{InstanceReport, MAX_REPORT_BYTES, Totals},
    handle::Control,
    lists::{SwitchError, check_entry, check_switch, compile as compile_lists},
    model::{
        Action, AuditEntry, BanRemoval, Draft, Files, Instance, List, ListEntry, ListPair, Pair, Runtime,
        Switch, SwitchMode, ValueMatch, Version,
    },
    overriding::OverridePage,
    pairs::{pairs_text, parse_pairs},
    ramp::{EnforcedKeys, Ramp, RampError, RampEvidence, RampState},
    reconcile::{ActiveDomains, Reconciler, Rules},
    region_record::RegionRecord,
    rule_overrides::{JournalError, OverrideEntry, OverrideError},
    status::{ControlPlane, Link, RulesSource, RulesState, RulesStatus},
    stored::is_like_system_author,
};
