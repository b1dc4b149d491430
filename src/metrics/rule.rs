//! What is counted for each rule, with the reference's meanings.

use std::{fmt, sync::Arc};

use super::{
    series::{self, KINDS, Room},
    striped::Striped,
    values,
};
use crate::{
    algorithm::Verdict,
    descriptor::{Entry, Hits},
    rules::{Domain, Rule},
    verdict::Limited,
};

/// The path of limits that requests bring along.
const BROUGHT_ALONG: &str = "(request)";

/// Where one path is counted.
#[derive(Clone)]
pub struct RuleCounters {
    /// Total, within, near and over the limit, over a limit that is only watched, and not decided by the store.
    series: Arc<Striped<KINDS>>,
    room: Room,
}

impl fmt::Debug for RuleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuleCounters")
    }
}

impl RuleCounters {
    fn of_rule(domain: &str, path: &str) -> Self {
        let (series, room) = series::of_rule(domain, path);
        Self { series: series.counters(), room }
    }

    /// Those of a path with a request's values in it, if there is room for it.
    pub(super) fn of_values(domain: &str, path: &str, rule: &str) -> Option<Self> {
        if path == rule {
            return Some(Self::of_rule(domain, path));
        }
        series::of_values(domain, path, rule)
            .map(|series| Self { series: series.counters(), room: Room::Own })
    }

    fn add(&self, amounts: [u64; KINDS]) {
        if self.room == Room::Shared {
            values::dropped();
        }
        self.series.add(amounts);
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
        self.add([charged, within, near_hits, over, watched, 0]);
    }
}

/// Counts what one descriptor came to.
pub fn hits(
    domain: &Domain,
    entries: &[Entry<'_>],
    limited: &Limited<'_>,
    hits: Hits,
    near_limit_ratio: f64,
) {
    let near = near_limit(limited.quota.limit, near_limit_ratio);
    let record = |counters: &RuleCounters| {
        counters.record(limited.quota.limit, near, limited.is_shadow, hits, &limited.verdict);
    };
    match limited.rule {
        None => record(brought_along(domain)),
        Some(rule) => {
            let values = &rule.derived.values;
            let with_values = || values.of(&domain.name, &rule.metric_path(entries), || rule.path());
            let of_values = rule.has_metric_of_values().then(with_values).flatten();
            record(of_values.as_ref().unwrap_or_else(|| own(domain, rule)));
        }
    }
}

/// Counts the hits of a descriptor that the store did not decide, under the path of its rule, if it has one.
pub fn rule_degraded(domain: &Domain, rule: Option<&Rule>, hits: Hits) {
    let counters = rule.map_or_else(|| brought_along(domain), |rule| own(domain, rule));
    counters.add([0, 0, 0, 0, 0, hits.charged()]);
}

fn own<'r>(domain: &Domain, rule: &'r Rule) -> &'r RuleCounters {
    rule.derived.counters.get_or_init(|| RuleCounters::of_rule(&domain.name, &rule.path()))
}

fn brought_along(domain: &Domain) -> &RuleCounters {
    domain.counted.brought_along.get_or_init(|| RuleCounters::of_rule(&domain.name, BROUGHT_ALONG))
}

/// The hits from which on a limit is near, rounded down.
#[allow(clippy::float_arithmetic)] // The ratio is the operator's; a hit more or less in a metric is no matter.
fn near_limit(limit: u32, ratio: f64) -> u64 {
    // In the reference's precision, so that both round alike.
    (limit as f32 * ratio as f32) as u64
}
