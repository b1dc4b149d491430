//! Steps of tuned limits, on the instance that advances them. A tuned limit is an override of its rule.

use std::{collections::HashMap, time::Duration};

use serde_json::json;
use tollgate_control::{Control, OverrideEntry, SYSTEM_AUTHOR};
use tollgate_limiter::{ActiveRules, demand::RecommendedLimit};
use tollgate_rules::{Limit, Overridden, OverrideId, Rules, Tune, TuneEvidence};

/// Maximum number of rules that are tuned.
const MAX_RULES: usize = 256;

/// Domain and path of a rule.
type RuleName = (String, String);

/// A rule whose limit is tuned, or was.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TunedRule {
    pub(super) domain: String,
    pub(super) rule: String,
    /// `None` if the rule is not tuned any more.
    pub(super) tune: Option<Tune>,
    /// The active limit, in hits per window, and the length of the window in seconds.
    limit: (u32, u32),
}

/// Circumstances of the next step of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Situation {
    /// The override of the whole rule with its revision, which is 0 without one.
    pub(super) present: (u64, Option<OverrideEntry>),
    /// Whether a switch of the rule is set.
    pub(super) is_switched: bool,
    /// The limit that would deny what the rule is to deny.
    pub(super) recommended: Option<RecommendedLimit>,
}

/// State of the tuning of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TuneState {
    /// An operator's override or switch holds the limit.
    Held,
    /// The demand of too few keys or windows is known.
    Observing,
    /// The limit is near its target, at its bound, or was changed less than an interval ago.
    Steady,
}

/// A change of a tuned limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TuneStep {
    /// Revision of the override that is replaced; 0 for none.
    pub(super) known: u64,
    /// The override with the new limit; or, if `removes`, the one that ends.
    pub(super) entry: OverrideEntry,
    pub(super) removes: bool,
    pub(super) raises: bool,
}

impl TuneState {
    pub(super) const ALL: [Self; 3] = [Self::Held, Self::Observing, Self::Steady];

    /// Name in metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Observing => "observing",
            Self::Steady => "steady",
        }
    }
}

/// The rules that are tuned, and those with an override that `is_tuning`, at `now_ms`. Reads all rules.
pub(super) fn tuned_rules(
    rules: &Rules,
    overridden: &Overridden,
    is_tuning: impl Fn(OverrideId) -> bool,
    now_ms: u64,
) -> Vec<TunedRule> {
    let mut found = Vec::new();
    for domain in rules.domains() {
        for rule in domain.root.rules() {
            let whole = overridden.whole(rule, now_ms);
            let was_tuned = || whole.is_some_and(|(stated, _)| is_tuning(stated.id));
            if rule.rollout.tune.is_none() && !was_tuned() {
                continue;
            }
            let active = whole.map_or(rule, |(_, active)| active);
            if let (Limit::Quota { quota, .. }, true) = (active.limit, found.len() < MAX_RULES)
                && let Ok(limit) = u32::try_from(quota.limit)
            {
                found.push(TunedRule {
                    domain: domain.name.to_string(),
                    rule: rule.path(),
                    tune: rule.rollout.tune.as_deref().cloned(),
                    limit: (limit, quota.window.seconds()),
                });
            }
        }
    }
    found
}

impl TunedRule {
    /// Identifier of the override of the whole rule.
    pub(super) fn id(&self) -> OverrideId {
        OverrideEntry::id_of(&self.domain, &self.rule, &[])
    }

    fn name(&self) -> RuleName {
        (self.domain.clone(), self.rule.clone())
    }
}

/// Times of the last steps, of which an override that was removed has none.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    stepped_at_ms: HashMap<RuleName, u64>,
}

impl Tuning {
    /// The next step of a rule at `now_ms`, or why it has none. A step counts once [`Tuning::stepped`] is called.
    pub(super) fn next(
        &self,
        tuned: &TunedRule,
        Situation { present: (known, present), is_switched, recommended }: Situation,
        now_ms: u64,
    ) -> Result<TuneStep, TuneState> {
        let own = present.as_ref().filter(|entry| entry.author == SYSTEM_AUTHOR);
        let Some(tune) = &tuned.tune else {
            return match own {
                Some(own) => Ok(TuneStep { known, entry: ended(own), removes: true, raises: false }),
                None => Err(TuneState::Held),
            };
        };
        if is_switched || present.is_some() && own.is_none() {
            return Err(TuneState::Held);
        }
        let last = self.stepped_at_ms.get(&tuned.name()).copied();
        let last = last.max(own.map(|own| own.created_at_ms));
        let rests = last.is_some_and(|last| now_ms.saturating_sub(last) < millis(tune.interval));
        let evidence = recommended.and_then(evidence_of).filter(|_| !rests);
        let (limit, window_s) = tuned.limit;
        match tune.next(limit, evidence) {
            Some(next) => Ok(TuneStep {
                known,
                entry: entry(tuned, next, &reason(limit, next, window_s, tune, recommended), now_ms),
                removes: false,
                raises: next > limit,
            }),
            None if rests || evidence.is_some() => Err(TuneState::Steady),
            None => Err(TuneState::Observing),
        }
    }

    /// Records that a step was made.
    pub(super) fn stepped(&mut self, tuned: &TunedRule, now_ms: u64) {
        self.stepped_at_ms.insert(tuned.name(), now_ms);
    }

    /// Forgets rules that are not among `tuned`.
    pub(super) fn retain(&mut self, tuned: &[TunedRule]) {
        self.stepped_at_ms.retain(|name, _| tuned.iter().any(|tuned| tuned.name() == *name));
    }
}

/// A recommendation of which the error is known.
fn evidence_of(found: RecommendedLimit) -> Option<TuneEvidence> {
    Some(TuneEvidence { limit: found.limit, low: found.low, high: found.high? })
}

fn entry(tuned: &TunedRule, limit: u32, reason: &str, now_ms: u64) -> OverrideEntry {
    let stated = OverrideEntry {
        id: String::new(),
        domain: tuned.domain.clone(),
        rule: tuned.rule.clone(),
        key: Vec::new(),
        rate_limit: [("requests_per_unit".to_owned(), json!(limit))].into_iter().collect(),
        reason: reason.to_owned(),
        author: SYSTEM_AUTHOR.to_owned(),
        created_at_ms: now_ms,
        expires_at_ms: None,
    };
    stated.identified()
}

fn ended(own: &OverrideEntry) -> OverrideEntry {
    OverrideEntry { reason: "tune: the rule is not tuned any more".to_owned(), ..own.clone() }
}

fn reason(
    limit: u32,
    next: u32,
    window_s: u32,
    tune: &Tune,
    recommended: Option<RecommendedLimit>,
) -> String {
    let target = tune.target;
    match recommended.filter(|_| (tune.bounds.0..=tune.bounds.1).contains(&limit)) {
        Some(RecommendedLimit { limit: wanted, low, high, .. }) => {
            let high = high.unwrap_or(wanted);
            format!(
                "tune: {limit} to {next} per {window_s} s; {wanted} ({low} to {high}) would deny {target}% of hits"
            )
        }
        None => format!("tune: {limit} to {next} per {window_s} s, the nearest bound"),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The limits that the demand recommends for these rules.
pub(super) fn targets(tuned: &[TunedRule]) -> impl Iterator<Item = (&str, &str, f64)> {
    tuned.iter().map(|tuned| {
        let target = tuned.tune.as_ref().map_or(0.0, |tune| tune.target.part());
        (&*tuned.domain, &*tuned.rule, target)
    })
}

/// The rules that are tuned, by the active rules.
pub(super) fn active(rules: &ActiveRules, control: &Control, now_ms: u64) -> Vec<TunedRule> {
    let active = rules.active();
    let Some(active) = active.get() else { return Vec::new() };
    let is_tuning = |id| control.override_at(id).1.is_some_and(|entry| entry.author == SYSTEM_AUTHOR);
    tuned_rules(active.rules, active.overridden, is_tuning, now_ms)
}

#[cfg(test)]
mod tests {
    use tollgate_core::EnforcedShare;
    use tollgate_rules::config::{Options, load_files};

    use super::*;

    const RULES: &str = "\
domain: edge
descriptors:
- key: api_key
  rate_limit: {unit: minute, requests_per_unit: 1000, tune: {target_denied: 1%, between: [500, 2000], step: 10%}}
- key: path
  rate_limit: {unit: minute, requests_per_unit: 7}
";

    fn tuned() -> TunedRule {
        let files = [("a.yaml".to_owned(), RULES.as_bytes().to_vec())];
        let rules = load_files(files, Options::default()).expect("valid").rules;
        let mut found = tuned_rules(&rules, &Overridden::default(), |_| false, 0);
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    fn recommended(limit: u64) -> Option<RecommendedLimit> {
        Some(RecommendedLimit { part: 0.01, limit, low: limit - 20, high: Some(limit + 20) })
    }

    /// An hour, in milliseconds.
    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_limit_is_tuned_by_one_step_in_an_interval_whichever_instance_acts() {
        let (mut tuned, mut tuning) = (tuned(), Tuning::default());
        let target = tuned.tune.as_ref().expect("tuned").target;
        assert_eq!(target, EnforcedShare::from_percent(1.0).expect("a share"));
        let wants_more = |present| Situation { present, is_switched: false, recommended: recommended(5_000) };
        let step = tuning.next(&tuned, wants_more((0, None)), HOUR).expect("a step");
        assert_eq!(
            (step.known, &step.entry.rate_limit["requests_per_unit"], step.raises),
            (0, &json!(1_100), true)
        );
        assert_eq!(step.entry.author, SYSTEM_AUTHOR);
        assert!(
            step.entry.reason.contains("1000 to 1100 per 60 s; 5000 (4980 to 5020) would deny 1% of hits")
        );
        tuning.stepped(&tuned, HOUR);
        tuned.limit.0 = 1_100;
        let present = || (9, Some(step.entry.clone()));
        for acting in [&tuning, &Tuning::default()] {
            let soon = acting.next(&tuned, wants_more(present()), HOUR + 599_999);
            assert_eq!(soon, Err(TuneState::Steady));
            let next = acting.next(&tuned, wants_more(present()), HOUR + 600_000).expect("the next step");
            assert_eq!((next.known, &next.entry.rate_limit["requests_per_unit"]), (9, &json!(1_210)));
        }
        // Removed by an operator: not set again at once.
        assert_eq!(tuning.next(&tuned, wants_more((0, None)), HOUR + 1), Err(TuneState::Steady));
    }

    #[test]
    fn operators_hold_a_limit_by_an_override_or_a_switch() {
        let (tuned, tuning) = (tuned(), Tuning::default());
        let mut theirs = entry(&tuned, 700, "sale", 0);
        theirs.author = "ada".to_owned();
        let by_override =
            Situation { present: (3, Some(theirs)), recommended: recommended(5_000), is_switched: false };
        assert_eq!(tuning.next(&tuned, by_override, HOUR), Err(TuneState::Held));
        let by_switch =
            Situation { is_switched: true, recommended: recommended(5_000), ..Situation::default() };
        assert_eq!(tuning.next(&tuned, by_switch, HOUR), Err(TuneState::Held));
    }

    #[test]
    fn a_limit_without_evidence_stays_and_one_out_of_bounds_returns_at_once() {
        let (mut tuned, tuning) = (tuned(), Tuning::default());
        assert_eq!(tuning.next(&tuned, Situation::default(), HOUR), Err(TuneState::Observing));
        let few_keys = RecommendedLimit { part: 0.01, limit: 5_000, low: 0, high: None };
        let few_keys = Situation { recommended: Some(few_keys), ..Situation::default() };
        assert_eq!(tuning.next(&tuned, few_keys, HOUR), Err(TuneState::Observing));
        tuned.limit.0 = 9_000;
        let step = tuning.next(&tuned, Situation::default(), HOUR).expect("a step");
        assert_eq!((&step.entry.rate_limit["requests_per_unit"], step.raises), (&json!(2_000), false));
        assert!(step.entry.reason.contains("9000 to 2000 per 60 s, the nearest bound"));
    }

    #[test]
    fn the_override_of_a_rule_that_is_not_tuned_any_more_ends() {
        let tuned = TunedRule { tune: None, ..tuned() };
        let own = entry(&tuned, 1_100, "tune", 0);
        let situation = Situation { present: (4, Some(own.clone())), ..Situation::default() };
        let step = Tuning::default().next(&tuned, situation, HOUR).expect("its end");
        assert_eq!((step.known, step.removes, step.entry.id), (4, true, own.id));
    }
}
