//! What is counted for each rule, with the reference's meanings.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use parking_lot::RwLock;

use super::striped::Striped;
use crate::{
    algorithm::Verdict,
    descriptor::{Entry, Hits},
    verdict::Limited,
};

/// Paths with a request's values in them that metrics name at the most; what comes later is counted under the
/// rule's own path. Values are the caller's to choose, and each path costs memory for good.
const MAX_VALUE_PATHS: usize = 1_000;

/// The longest such path in bytes, for the same reason.
const LONGEST_VALUE_PATH: usize = 256;

/// Bytes of all such paths with their domains: each is exported five times, and all of that is to stay below a megabyte.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// The path of limits that requests bring along. There is one in a domain, so the bound does not apply.
const BROUGHT_ALONG: &str = "(request)";

/// The series of one path: each one's name is the reference's, in `tollgate_rule_…_total`.
#[derive(Clone)]
pub struct RuleCounters {
    /// Total, within, near and over the limit, and over a limit that is only watched.
    series: Arc<Striped<5>>,
}

impl fmt::Debug for RuleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleCounters")
    }
}

/// The series of paths that contain a request's values, and of those that belong to no rule.
static BY_PATH: LazyLock<RwLock<Paths>> = LazyLock::new(RwLock::default);

#[derive(Default)]
struct Paths {
    series: HashMap<String, Arc<RuleCounters>>,
    /// Bytes of the keys.
    bytes: usize,
}

impl Paths {
    fn has_room_for(&self, key: &str) -> bool {
        self.series.len() < MAX_VALUE_PATHS && self.bytes.saturating_add(key.len()) <= MAX_VALUE_BYTES
    }
}

impl RuleCounters {
    fn new(domain: &str, path: &str) -> Self {
        let series = |name: &'static str| metrics::counter!(name, "domain" => domain.to_owned(), "rule" => path.to_owned());
        Self {
            series: Striped::new([
                series("tollgate_rule_total_hits_total"),
                series("tollgate_rule_within_limit_total"),
                series("tollgate_rule_near_limit_total"),
                series("tollgate_rule_over_limit_total"),
                series("tollgate_rule_shadow_mode_total"),
            ]),
        }
    }

    /// Counts what a decision came to. Hits that straddle a threshold are counted in parts on either side.
    fn record(&self, limit: u32, near: u64, is_shadow: bool, hits: Hits, verdict: &Verdict) {
        let charged = hits.charged();
        if charged == 0 {
            return;
        }
        // Those of the hits that had room, and the part of them that lies above the threshold.
        let fitting = charged.saturating_sub(verdict.over);
        let near_hits = match verdict.admitted {
            true => verdict.used.saturating_sub(near).min(fitting),
            false => u64::from(limit).saturating_sub(near).min(fitting),
        };
        let (within, over) = if verdict.admitted { (charged, 0) } else { (0, verdict.over) };
        let watched = if is_shadow { verdict.over } else { 0 };
        self.series.add([charged, within, near_hits, over, watched]);
    }
}

/// Counts what one descriptor came to.
pub fn hits(domain: &str, entries: &[Entry<'_>], limited: &Limited<'_>, hits: Hits, near_limit_ratio: f64) {
    let near = near_limit(limited.quota.limit, near_limit_ratio);
    let record = |counters: &RuleCounters| {
        counters.record(limited.quota.limit, near, limited.is_shadow(), hits, &limited.verdict);
    };
    match limited.rule {
        None => {
            by_path(domain, BROUGHT_ALONG).as_deref().map(record);
        }
        Some(rule) => {
            let own = || rule.derived.counters.get_or_init(|| RuleCounters::new(domain, &rule.path()));
            let of_values = rule.has_metric_of_values().then(|| by_path(domain, &rule.metric_path(entries)));
            record(of_values.flatten().as_deref().unwrap_or_else(own));
        }
    }
}

/// The series of a path, unless there are too many already.
fn by_path(domain: &str, path: &str) -> Option<Arc<RuleCounters>> {
    if path.len() > LONGEST_VALUE_PATH {
        dropped();
        return None;
    }
    // A domain's length keeps the two parts apart.
    let key = format!("{}:{domain}{path}", domain.len());
    let may_come = |paths: &Paths| path == BROUGHT_ALONG || paths.has_room_for(&key);
    {
        let paths = BY_PATH.read();
        if let Some(known) = paths.series.get(&key) {
            return Some(Arc::clone(known));
        }
        if !may_come(&paths) {
            dropped();
            return None;
        }
    }
    let mut paths = BY_PATH.write();
    // Another worker may have added it meanwhile, or taken the last place.
    if let Some(known) = paths.series.get(&key) {
        return Some(Arc::clone(known));
    }
    if !may_come(&paths) {
        dropped();
        return None;
    }
    let counters = Arc::new(RuleCounters::new(domain, path));
    paths.bytes = paths.bytes.saturating_add(key.len());
    paths.series.insert(key, Arc::clone(&counters));
    Some(counters)
}

/// Counts a decision whose path was too long, or one too many.
fn dropped() {
    static DROPPED: LazyLock<metrics::Counter> =
        LazyLock::new(|| metrics::counter!("tollgate_rule_paths_dropped_total"));
    DROPPED.increment(1);
}

/// The hits from which on a limit is near, rounded down.
#[allow(clippy::float_arithmetic)] // The ratio is the operator's; a hit more or less in a metric is no matter.
fn near_limit(limit: u32, ratio: f64) -> u64 {
    // In the reference's precision, so that both round alike.
    (limit as f32 * ratio as f32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_values_are_bounded_in_number_and_in_bytes() {
        let mut paths = Paths::default();
        assert!(paths.has_room_for("1:d_a"));
        paths.bytes = MAX_VALUE_BYTES;
        assert!(!paths.has_room_for("1:d_a"));
        let counters = Arc::new(RuleCounters::new("d", "a"));
        let series = (0..MAX_VALUE_PATHS).map(|at| (at.to_string(), Arc::clone(&counters))).collect();
        assert!(!Paths { series, bytes: 0 }.has_room_for("1:d_a"));
    }
}
