//! What rules counted, on a page.

use std::sync::Arc;

use super::{
    page::{Kind, Page},
    series::{KINDS, Series},
};

/// The metrics of a rule, in the order of [`Series::counted`].
const METRICS: [(&str, &str); KINDS] = [
    ("tollgate_rule_hits_total", "Hits that were decided."),
    ("tollgate_rule_within_limit_total", "Hits that the rule let pass."),
    ("tollgate_rule_near_limit_total", "Hits within the limit and above the near-limit ratio of it."),
    ("tollgate_rule_over_limit_total", "Hits over the limit."),
    ("tollgate_rule_shadow_mode_total", "Hits over the limit that the rule's shadow mode let pass."),
    ("tollgate_rule_degraded_total", "Hits that the store did not decide."),
];

/// Adds all of them to a page.
pub(super) fn write(page: &mut Page, all: &[Arc<Series>]) {
    for (at, (name, help)) in METRICS.into_iter().enumerate() {
        page.begin(name, Kind::Counter, help);
        // In order, so that those with the same labels are next to each other.
        for alike in all.chunk_by(|one, next| have_one_label(one, next)) {
            let Some(first) = alike.first() else { continue };
            let counts = alike.iter().map(|series| series.counted().get(at).copied().unwrap_or_default());
            let sum = counts.fold(0, u64::saturating_add);
            page.sample(name, &[("domain", &first.domain), ("rule", &first.path)], sum);
        }
    }
}

fn have_one_label(one: &Series, next: &Series) -> bool {
    (&one.domain, &one.path) == (&next.domain, &next.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::series;

    #[test]
    fn a_rule_with_the_path_of_anothers_value_counts_for_itself_and_the_page_has_the_sum() {
        let of_value = series::of_values("page", "tenant_acme", "tenant").expect("room");
        of_value.counters().add([2, 0, 0, 0, 0, 0]);
        let (of_rule, _) = series::of_rule("page", "tenant_acme");
        of_rule.counters().add([3, 0, 0, 0, 0, 0]);
        assert_eq!((&*of_rule.rule, &*of_value.rule), ("tenant_acme", "tenant"));
        assert_eq!((of_rule.counted()[0], of_value.counted()[0]), (3, 2));
        let mut page = Page::after(String::new());
        let all: Vec<_> = series::all().into_iter().filter(|series| &*series.domain == "page").collect();
        write(&mut page, &all);
        let page = page.into_text();
        let samples: Vec<_> = page.lines().filter(|line| line.contains("_hits_total{")).collect();
        let [(name, _), ..] = METRICS;
        assert_eq!(samples, [format!(r#"{name}{{domain="page",rule="tenant_acme"}} 5"#)]);
    }
}
