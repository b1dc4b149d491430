//! Adaptive deny list: counts what each client's key does, and decides which keys abuse their limits.
//!
//! ```text
//! worker ──> observer (table of keys) ──> collector ──> report ──> detector, on one instance ──> entries
//! ```
//!
//! - An [`AbuseObserver`] counts, on each worker, the requests of domains with abuse rules. Requests are counted exactly;
//!   keys are bounded: when a table is full, its lightest quarter is dropped, so that a key is counted too little, and
//!   never too much.
//! - The [`AbuseCollector`] takes the tables of all workers and makes an [`AbuseReport`] of the keys that matter.
//! - The [`AbuseDetector`] of one instance adds the reports of all, and returns the keys that meet a rule.
//!
//! Denials by lists and by shadow or degraded limits do not count: neither is the client's doing.

mod collector;
mod detector;
mod report;
mod table;
#[cfg(test)]
mod tests;

pub use self::{
    collector::{AbuseCollector, AbuseObserver},
    detector::{AbuseDetector, Abuser, Detected, Refusal},
    report::{AbuseReport, InstanceReport, ReportedKey},
};
