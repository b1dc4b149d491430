//! All counters as text, as the debug port of envoyproxy/ratelimit has them.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_metrics::{
    publish,
    series::{self, Series},
};

use super::{COUNTERS, RULES, stat_name};

/// Lines `NAME: COUNT`, sorted, including zeros. Series that have one name are one line.
pub fn text() -> String {
    publish();
    lines(&series::all())
}

fn lines(all: &[Arc<Series>]) -> String {
    let of_rules = all.iter().flat_map(|series| {
        let name = stat_name::of(&series.domain, &series.path);
        let kinds = RULES.into_iter().zip(series.counted());
        kinds.map(move |((before, after), count)| (format!("{before}.{name}.{after}"), count))
    });
    let of_service = COUNTERS.into_iter().map(|(name, total)| (name.to_owned(), total()));
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in of_rules.chain(of_service) {
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
    sums.into_iter().map(|(name, count)| format!("{name}: {count}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_with_one_name_are_one_line() {
        let of_value = series::of_values("listed", "tenant_acme", "tenant", 1).expect("room");
        of_value.counters().add([2, 0, 0, 0, 0, 0]);
        let (of_rule, _) = series::of_rule("listed", "tenant_acme");
        of_rule.counters().add([3, 0, 0, 0, 0, 0]);
        let page = lines(&[of_rule, of_value]);
        let of_total = page.lines().filter(|line| line.contains("listed.tenant_acme.total_hits"));
        let expected = "ratelimit.service.rate_limit.listed.tenant_acme.total_hits: 5";
        assert_eq!(of_total.collect::<Vec<_>>(), [expected]);
    }
}
