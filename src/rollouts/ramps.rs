//! Evidence by which ramps are judged, on the instance that advances them.

use std::collections::{HashMap, VecDeque};

use tollgate_control::{EnforcedHits, RampEvidence, RampState, Switch};

use super::report::RolloutReport;

/// Time that recent evidence covers, in milliseconds.
const RECENT_MS: u64 = 60_000;

/// Domain and path of a rule.
type RuleName = (String, String);

/// Hits of the enforced keys of each rule, as this instance has seen the fleet's reports.
#[derive(Debug, Default)]
pub(super) struct Ramps {
    /// The last counts of each instance: those of an instance seen for the first time were made before.
    counts: HashMap<(String, RuleName), EnforcedHits>,
    /// Hits between two rounds, with the time of the second, in order.
    rounds: HashMap<RuleName, VecDeque<(u64, EnforcedHits)>>,
    steps: HashMap<RuleName, Step>,
}

/// Hits of an active step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// Index and begin of the step.
    of: (usize, u64),
    hits: EnforcedHits,
}

impl Ramps {
    /// Adds the reports of a round, and returns the switches that change, each with its next state.
    pub(super) fn round<'r>(
        &mut self,
        reports: impl Iterator<Item = (&'r str, &'r RolloutReport)>,
        switches: &[Switch],
        now_ms: u64,
    ) -> Vec<(Switch, Switch)> {
        let added = self.add(reports);
        let running =
            |switch: &&Switch| switch.ramp.as_ref().is_some_and(|ramp| ramp.state == RampState::Running);
        let running: Vec<&Switch> = switches.iter().filter(running).collect();
        let names: Vec<RuleName> =
            running.iter().map(|switch| (switch.domain.clone(), switch.rule.clone())).collect();
        self.steps.retain(|name, _| names.contains(name));
        self.rounds.retain(|name, _| names.contains(name));
        let next = running.into_iter().zip(names).filter_map(|(switch, name)| {
            let hits = added.get(&name).copied().unwrap_or_default();
            let ramp = switch.ramp.as_ref()?;
            let evidence = self.evidence(name, (ramp.step, ramp.step_began_ms), hits, now_ms);
            let next = ramp.next(now_ms, evidence)?;
            let to = Switch { enforce_percent: Some(next.share()), ramp: Some(next), ..switch.clone() };
            Some((switch.clone(), to))
        });
        next.collect()
    }

    /// Adds the counts of all instances, and returns the hits since the last round.
    fn add<'r>(
        &mut self,
        reports: impl Iterator<Item = (&'r str, &'r RolloutReport)>,
    ) -> HashMap<RuleName, EnforcedHits> {
        let mut added: HashMap<RuleName, EnforcedHits> = HashMap::new();
        let mut counts = HashMap::new();
        for (instance, report) in reports {
            for (domain, rule, [hits, denied, ..]) in &report.enforcement {
                let name = (domain.clone(), rule.clone());
                let now = EnforcedHits { hits: *hits, denied: *denied };
                let key = (instance.to_owned(), name.clone());
                if let Some(before) = self.counts.get(&key) {
                    let sum = added.entry(name).or_default();
                    sum.hits = sum.hits.saturating_add(now.hits.saturating_sub(before.hits));
                    sum.denied = sum.denied.saturating_add(now.denied.saturating_sub(before.denied));
                }
                counts.insert(key, now);
            }
        }
        // Instances that left are dropped with their counts.
        self.counts = counts;
        added
    }

    fn evidence(
        &mut self,
        name: RuleName,
        step: (usize, u64),
        hits: EnforcedHits,
        now_ms: u64,
    ) -> RampEvidence {
        let known = self.steps.entry(name.clone()).or_insert(Step { of: step, ..Step::default() });
        let rounds = self.rounds.entry(name).or_default();
        if known.of != step {
            *known = Step { of: step, ..Step::default() };
            rounds.clear();
        }
        known.hits = plus(known.hits, hits);
        rounds.push_back((now_ms, hits));
        while rounds.front().is_some_and(|(at, _)| now_ms.saturating_sub(*at) > RECENT_MS) {
            rounds.pop_front();
        }
        let recent = rounds.iter().fold(EnforcedHits::default(), |sum, (_, hits)| plus(sum, *hits));
        RampEvidence { step: known.hits, recent }
    }
}

fn plus(sum: EnforcedHits, hits: EnforcedHits) -> EnforcedHits {
    EnforcedHits { hits: sum.hits.saturating_add(hits.hits), denied: sum.denied.saturating_add(hits.denied) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_control::{Ramp, SwitchMode};
    use tollgate_core::EnforcedShare;

    fn share(percent: f64) -> EnforcedShare {
        EnforcedShare::from_percent(percent).expect("a share")
    }

    fn switch() -> Switch {
        let ramp =
            Ramp::begin([10.0, 100.0].map(share).to_vec(), 60_000, share(5.0), (100, EnforcedShare::NONE), 0);
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

    fn report(hits: u64, denied: u64) -> RolloutReport {
        let enforcement = vec![("edge".to_owned(), "api_key".to_owned(), [hits, denied, 9, 9])];
        RolloutReport { enforcement, ..RolloutReport::default() }
    }

    fn round(ramps: &mut Ramps, switch: &Switch, of: [(u64, u64); 2], now_ms: u64) -> Option<Switch> {
        let reports = of.map(|(hits, denied)| report(hits, denied));
        let named = ["a", "b"].into_iter().zip(&reports);
        ramps.round(named, std::slice::from_ref(switch), now_ms).pop().map(|(_, to)| to)
    }

    #[test]
    fn a_ramp_advances_by_the_hits_of_all_instances_since_it_is_watched() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(1_000, 900), (0, 0)], 1_000), None, "before it was watched");
        assert_eq!(round(&mut ramps, &switch, [(1_040, 900), (59, 0)], 60_000), None, "too few hits");
        let next = round(&mut ramps, &switch, [(1_040, 900), (60, 0)], 60_001).expect("the next step");
        assert_eq!(next.enforce_percent, Some(share(100.0)));
        assert_eq!(round(&mut ramps, &next, [(1_040, 900), (60, 0)], 200_000), None, "a step begins anew");
    }

    #[test]
    fn a_ramp_goes_back_on_a_bad_limit_and_stays_there() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(0, 0), (0, 0)], 1_000), None);
        let back = round(&mut ramps, &switch, [(50, 3), (50, 3)], 2_000).expect("back");
        assert_eq!(back.enforce_percent, Some(EnforcedShare::NONE));
        assert_eq!(back.ramp.as_ref().expect("a ramp").state, RampState::RolledBack);
        assert_eq!(round(&mut ramps, &back, [(500, 3), (500, 3)], 100_000), None);
    }

    #[test]
    fn a_restarted_instance_counts_from_its_first_report() {
        let (mut ramps, switch) = (Ramps::default(), switch());
        assert_eq!(round(&mut ramps, &switch, [(500, 0), (0, 0)], 1_000), None);
        // The counters of an id never decrease; one that did has no hits.
        assert_eq!(round(&mut ramps, &switch, [(10, 10), (0, 0)], 60_000), None);
    }
}
