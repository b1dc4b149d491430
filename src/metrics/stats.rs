//! Everything counted so far under the names of envoyproxy/ratelimit, as its debug port shows it.

use std::sync::Arc;

use super::{changes, series::Series, stat_name};

/// Lines `NAME: COUNT`, sorted, with those that are zero.
pub(super) fn listed(all: &[Arc<Series>]) -> String {
    let of_rules = all.iter().flat_map(|series| {
        let name = stat_name::of(&series.domain, &series.path);
        let kinds = changes::OF_RULES.into_iter().zip(series.counted());
        kinds.map(move |((before, after), count)| format!("{before}.{name}.{after}: {count}\n"))
    });
    let of_service = changes::COUNTERS.into_iter().zip(changes::of_service());
    let mut lines: Vec<String> =
        of_rules.chain(of_service.map(|(name, count)| format!("{name}: {count}\n"))).collect();
    lines.sort_unstable();
    lines.concat()
}
