//! Evidence by which ramps are judged, on the instance that advances them.

use std::collections::{BTreeMap, HashMap};

use tollgate_control::{EnforcedKeys, Ramp, RampEvidence, RampState, Switch};
use tollgate_limiter::metrics::{MAX_SAMPLED_KEYS, SampledKey};

use super::report::RolloutReport;

/// Time that recent evidence covers, in seconds.
const RECENT_S: u64 = 60;

/// Domain and path of a rule.
type RuleName = (String, String);

/// Hits of the enforced keys of each rule, as this instance has seen the fleet's reports.
#[derive(Debug, Default)]
pub(super) struct Ramps {
    /// The last counts of each instance: those of an instance seen for the first time were made before.
    counts: HashMap<(String, RuleName), u64>,
    steps: HashMap<RuleName, Step>,
}

/// Hits of an active step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Index and begin of the step.
    of: (usize, u64),
    hits: u64,
}

/// Sampled keys of each rule over all instances, by hash.
type FleetKeys = HashMap<RuleName, BTreeMap<u32, SampledKey>>;

impl Ramps {
    /// Adds the reports of a round, and returns the switches that change, each with its next state.
    pub(super) fn round(
        &mut self,
        reports: &[(String, RolloutReport)],
        switches: &[Switch],
        now_ms: u64,
    ) -> Vec<(Switch, Switch)> {
        let (added, keys) = self.add(reports);
        let running =
            |switch: &&Switch| switch.ramp.as_ref().is_some_and(|ramp| ramp.state == RampState::Running);
        let running: Vec<&Switch> = switches.iter().filter(running).collect();
        let names: Vec<RuleName> =
            running.iter().map(|switch| (switch.domain.clone(), switch.rule.clone())).collect();
        self.steps.retain(|name, _| names.contains(name));
        let next = running.into_iter().zip(names).filter_map(|(switch, name)| {
            let ramp = switch.ramp.as_ref()?;
            let age_s = now_ms.saturating_sub(ramp.step_began_ms) / 1_000;
            let keys = |max_age_s| keys.get(&name).map(|keys| within(keys, max_age_s)).unwrap_or_default();
            let (step, recent) = (keys(age_s), keys(age_s.min(RECENT_S)));
            let hits = self.hits_of_step(&name, ramp, added.get(&name).copied().unwrap_or_default());
            let next = ramp.next(now_ms, RampEvidence { hits, step, recent })?;
            let to = Switch { enforce_percent: Some(next.share()), ramp: Some(next), ..switch.clone() };
            Some((switch.clone(), to))
        });
        next.collect()
    }

    /// Adds the counts of all instances, and returns the hits since the last round, and the sampled keys.
    fn add(&mut self, reports: &[(String, RolloutReport)]) -> (HashMap<RuleName, u64>, FleetKeys) {
        let (mut added, mut fleet) = (HashMap::<RuleName, u64>::new(), FleetKeys::new());
        let mut counts = HashMap::new();
        for (instance, report) in reports {
            for (domain, rule, [hits, ..]) in &report.enforcement {
                let name = (domain.clone(), rule.clone());
                let key = (instance.clone(), name.clone());
                if let Some(before) = self.counts.get(&key) {
                    let sum = added.entry(name).or_default();
                    *sum = sum.saturating_add(hits.saturating_sub(*before));
                }
                counts.insert(key, *hits);
            }
            for (domain, rule, sample) in &report.enforced_keys {
                let keys = fleet.entry((domain.clone(), rule.clone())).or_default();
                for one in sample {
                    let known = keys.entry(one.key).or_insert(*one);
                    known.seen_s = known.seen_s.min(one.seen_s);
                    known.denied_s = known.denied_s.into_iter().chain(one.denied_s).min();
                }
            }
        }
        // Instances that left are dropped with their counts.
        self.counts = counts;
        (added, fleet)
    }

    /// The hits since the active step began.
    fn hits_of_step(&mut self, name: &RuleName, ramp: &Ramp, added: u64) -> u64 {
        let of = (ramp.step, ramp.step_began_ms);
        let known = self.steps.entry(name.clone()).or_default();
        if known.of != of {
            *known = Step { of, hits: 0 };
        }
        known.hits = known.hits.saturating_add(added);
        known.hits
    }
}

/// The keys with a request within this time: of many, those with the lowest hashes, of which every instance has its own.
fn within(keys: &BTreeMap<u32, SampledKey>, max_age_s: u64) -> EnforcedKeys {
    let is_within = |age_s: u32| u64::from(age_s) <= max_age_s;
    let keys = keys.values().filter(|key| is_within(key.seen_s)).take(MAX_SAMPLED_KEYS);
    keys.fold(EnforcedKeys::default(), |sum, key| EnforcedKeys {
        keys: sum.keys.saturating_add(1),
        denied: sum.denied.saturating_add(usize::from(key.denied_s.is_some_and(is_within))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_control::{Ramp, RampPlan, SwitchMode};
    use tollgate_core::EnforcedShare;

    fn share(percent: f64) -> EnforcedShare {
        EnforcedShare::from_percent(percent).expect("a share")
    }

    fn switch() -> Switch {
        let ramp = Ramp::begin(
            RampPlan {
                steps: [10.0, 100.0].map(share).to_vec(),
                step_ms: 60_000,
                max_denied_percent: share(5.0),
                min_hits: 100,
                back_to_percent: EnforcedShare::NONE,
            },
            0,
        );
        Switch {
            domain: "edge".to_owned(),
            rule: "api_key".to_owned(),
            mode: SwitchMode::Shadow,
            enforce_percent: Some(ramp.share()),
            ramp: Some(ramp),
            reason: String::new(),
            author: "ann".to_owned(),
            created_at_ms: 0,
            expires_at_ms: None,
        }
    }

    /// A report of these hits of 20 keys, of which this number was denied.
    fn report(hits: u64, denied: u32) -> RolloutReport {
        let (domain, rule) = ("edge".to_owned(), "api_key".to_owned());
        let key = |key| SampledKey { key, seen_s: 0, denied_s: (key < denied).then_some(0) };
        RolloutReport {
            enforcement: vec![(domain.clone(), rule.clone(), [hits, 0, 9, 9])],
            enforced_keys: vec![(domain, rule, (0..20).map(key).collect())],
            candidates: Vec::new(),
        }
    }

    fn round(ramps: &mut Ramps, switch: &Switch, of: [(u64, u32); 2], now_ms: u64) -> Option<Switch> {
        let [a, b] = of.map(|(hits, denied)| report(hits, denied));
        let named = [("a".to_owned(), a), ("b".to_owned(), b)];
        ramps.round(&named, std::slice::from_ref(switch), now_ms).pop().map(|(_, to)| to)
    }

    #[test]
    fn a_ramp_advances_by_the_hits_of_all_instances_since_it_is_watched() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(1_000, 9), (0, 0)], 1_000), None, "before it was watched");
        assert_eq!(round(&mut ramps, &switch, [(1_040, 1), (59, 1)], 60_000), None, "too few hits");
        let next = round(&mut ramps, &switch, [(1_040, 1), (60, 1)], 60_001).expect("the next step");
        assert_eq!(next.enforce_percent, Some(share(100.0)));
        assert_eq!(round(&mut ramps, &next, [(1_040, 1), (60, 1)], 200_000), None, "a step begins anew");
    }

    #[test]
    fn a_ramp_goes_back_on_a_bad_limit_and_stays_there() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(0, 0), (0, 0)], 1_000), None);
        let back = round(&mut ramps, &switch, [(50, 1), (50, 2)], 2_000).expect("back");
        assert_eq!(back.enforce_percent, Some(EnforcedShare::NONE));
        assert_eq!(back.ramp.as_ref().expect("a ramp").state, RampState::RolledBack);
        assert_eq!(round(&mut ramps, &back, [(500, 2), (500, 2)], 100_000), None);
    }

    #[test]
    fn a_restarted_instance_counts_from_its_first_report() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(500, 0), (0, 0)], 1_000), None);
        // The counters of an id never decrease; one that did has no hits.
        assert_eq!(round(&mut ramps, &switch, [(10, 20), (0, 0)], 60_000), None);
    }
}
