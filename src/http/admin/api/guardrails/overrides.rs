//! Guardrail of overrides: refuses one that would deny all requests of a rule that admits some.

use tollgate_rules::{Overridden, RuleOverrides, Rules};

use super::{MAX_REPORTED_DOMAINS, Violation, ViolationCode, is_denying};

/// The guardrails that overrides of these rules would violate.
pub(in crate::http::admin::api) fn violations_of(
    rules: &Rules,
    overridden: &Overridden,
    overrides: &RuleOverrides,
    now_ms: u64,
) -> Vec<Violation> {
    let whole = overrides.iter().filter(|stated| stated.key.is_empty());
    let denying = whole.filter_map(|stated| {
        let mut rules = rules.domain(&stated.domain)?.root.rules();
        let rule = rules.find(|rule| *rule.path() == *stated.rule)?;
        let (_, decider) = overridden.whole(rule, now_ms)?;
        (is_denying(decider) && !is_denying(rule)).then(|| Violation {
            code: ViolationCode::DeniesAll,
            domain: stated.domain.to_string(),
            message: format!("the override would deny all requests of {}", stated.rule),
        })
    });
    denying.take(MAX_REPORTED_DOMAINS).collect()
}
