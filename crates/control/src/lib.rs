//! Configuration that operators change while traffic flows: versions of the rules, records, and the audit log.
//!
//! ```text
//! admin API ──> Control ──> backend (Redis | this process) ──> Reconciler ──> active rules and records
//! ```
//!
//! - A [`Version`] is an immutable set of rule files. One of them is *current*; another one becomes current by
//!   compare-and-set, so that two operators cannot overwrite each other's changes.
//! - A [`Record`] is a change that takes effect at once and mostly ends: an override of a rule or of one of its keys, an entry
//!   of a list, an automatic entry, or a switch of a rule. The book holds them.
//! - A [`ListedBan`] shows a ban that a counter's store decides on.
//! - Every change is recorded in an [`AuditEntry`].
//! - Every instance reports what it enforces in a heartbeat, its [`Instance`] record.
//! - Instances share figures of their traffic, and log each [`OperatorEvent`] once.

// Numbers here are counts, sizes and revisions, far from their ends; those of users and of the store are checked where they
// are read.
#![allow(clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::float_arithmetic))]

mod automatic;
mod book;
pub mod bounds;
mod copier;
mod copies;
pub mod events;
mod fleet;
mod handle;
mod instances;
mod last_version;
mod listed_bans;
mod lists;
mod memory;
pub mod metrics;
mod model;
mod operations;
mod pairs;
mod ramp;
mod reconcile;
mod record_key;
mod redis;
mod state_file;
mod status;
mod stored;

pub use tollgate_rules::{List, SwitchMode, ValueMatch};

pub use self::automatic::{Added, AutomaticEntry, AutomaticMode};
pub use self::book::{OverrideEntry, Record, RecordKind, RecordPage, RecordSelection, RecordView};
pub use self::copier::{ReadRules, Reading, RulesCopier};
pub use self::copies::{
    Adopted, CopiedChange, CopiedRecords, CopyClaim, CopyState, RecordsHead, RecordsPage, RulesCopy,
    VersionCopy,
};
pub use self::events::{EventKind, LoggedEvent, Occasion, OperatorEvent};
pub use self::fleet::{FleetReply, FleetRound, InstanceReport, MAX_REPORT_BYTES, Totals, log_events};
pub use self::last_version::{VersionFile, VersionOrigin};
pub use self::listed_bans::{BanCounts, BanFilter, BanPage, BanPosition, ListedBan};
pub use self::lists::{ListEntry, Runtime, Switch, check_entry, check_switch, compile as compile_lists};
pub use self::model::{
    Action, AuditEntry, BanRemoval, ControlError, ControlResult, Draft, Files, RegionRecord, Version,
    check_files, is_like_system_author,
};
pub use self::pairs::{ListPair, Pair, pairs_text, parse_pairs};
pub use self::ramp::{EnforcedKeys, Ramp, RampEvidence, RampPlan, RampState};
pub use self::reconcile::{ActiveDomains, Reconciler, Rules};
pub use self::record_key::RecordKey;
#[doc(hidden)]
pub use self::redis::{BOOK_SCRIPT, CONTROL_SCRIPT};
pub use self::status::{ControlPlane, Link, RulesSource, RulesState, RulesStatus};
pub use self::{handle::Control, instances::Instance};
