//! Comparisons of this instance: those of the active candidates, since each was set.

use std::collections::{HashMap, HashSet};

use tollgate_limiter::{
    ActiveRules,
    candidates::{differing_keys, forget_keys},
    explain::{candidate_text, limit_text},
    metrics::{candidate_totals, enforcement_totals},
};

use super::report::{CandidateReport, RolloutReport};

/// Maximum number of rules in a report, of either kind.
const MAX_RULES: usize = 64;

/// Domain and path of a rule.
type RuleName = (Box<str>, Box<str>);

/// Begin of each comparison, and the hits before it.
#[derive(Debug, Default)]
pub(super) struct Comparisons(HashMap<RuleName, Begun>);

#[derive(Debug)]
struct Begun {
    /// Texts of the limits: with others, the comparison begins anew.
    texts: (String, String),
    since_ms: u64,
    before: [u64; 4],
}

impl Comparisons {
    /// The report of this instance at `now_ms`. Reads all rules.
    pub(super) fn report(&mut self, rules: &ActiveRules, now_ms: u64) -> RolloutReport {
        let mut totals = enforcement_totals();
        // First those of operators, among them ramps, which are judged by them.
        let lists = rules.lists();
        totals.sort_by_key(|(domain, rule, _)| lists.share_of(domain, rule).is_none());
        totals.truncate(MAX_RULES);
        let (mut enforcement, mut enforced_keys) = (Vec::new(), Vec::new());
        for (domain, rule, total) in totals {
            let (domain, rule) = (domain.into_string(), rule.into_string());
            if lists.share_of(&domain, &rule).is_some() {
                enforced_keys.push((domain.clone(), rule.clone(), total.keys));
            }
            let counts = [total.enforced, total.denied, total.shadow, total.shadow_over];
            enforcement.push((domain, rule, counts));
        }
        RolloutReport { enforcement, candidates: self.candidates(rules, now_ms), enforced_keys }
    }

    fn candidates(&mut self, rules: &ActiveRules, now_ms: u64) -> Vec<CandidateReport> {
        let active = rules.active();
        let Some(active) = active.get() else { return Vec::new() };
        let mut found = Vec::new();
        for domain in active.rules.domains() {
            for rule in domain.root.rules() {
                let overridden = active.overridden.whole(rule, now_ms).map(|(_, overridden)| overridden);
                let rule = overridden.unwrap_or(rule);
                if let Some(candidate) = &rule.rollout.candidate {
                    let name: RuleName = ((*domain.name).into(), rule.path().into());
                    found.push((name, (limit_text(domain, rule), candidate_text(candidate))));
                }
            }
        }
        found.sort_unstable();
        found.truncate(MAX_RULES);
        self.forget_others(&found);
        if found.is_empty() {
            return Vec::new();
        }
        let totals: HashMap<RuleName, [u64; 4]> =
            candidate_totals().into_iter().map(|(domain, rule, counts)| ((domain, rule), counts)).collect();
        for (name, texts) in &found {
            let counts = totals.get(name).copied().unwrap_or_default();
            let begun = self.0.get(name).is_some_and(|begun| begun.texts == *texts);
            if !begun {
                forget_keys(name);
                let begun = Begun { texts: texts.clone(), since_ms: now_ms, before: counts };
                self.0.insert(name.clone(), begun);
            }
        }
        let keys = differing_keys();
        let report = |(name, (limit, candidate)): (RuleName, (String, String))| {
            let begun = self.0.get(&name)?;
            let counts = totals.get(&name).copied().unwrap_or_default();
            let mut hits = counts;
            hits.iter_mut().zip(begun.before).for_each(|(hits, before)| *hits = hits.saturating_sub(before));
            let keys = keys.get(&name).cloned().unwrap_or_default();
            let since_ms = begun.since_ms;
            let (domain, rule) = (name.0.into_string(), name.1.into_string());
            Some(CandidateReport { domain, rule, limit, candidate, since_ms, hits, keys })
        };
        found.into_iter().filter_map(report).collect()
    }

    /// Forgets comparisons that ended.
    fn forget_others(&mut self, found: &[(RuleName, (String, String))]) {
        let active: HashSet<&RuleName> = found.iter().map(|(name, _)| name).collect();
        self.0.retain(|name, _| {
            let is_active = active.contains(name);
            if !is_active {
                forget_keys(name);
            }
            is_active
        });
    }
}
