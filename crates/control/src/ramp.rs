//! Ramps: gradual increases of the share of the keys for which a rule is enforced.
//!
//! A ramp is part of the rule's switch, so that it is stored, replicated, listed and restored with it. One instance of the
//! fleet advances it; the decision is a pure function of the ramp, the time, and the hits and keys of the whole fleet.

use serde::{Deserialize, Serialize};
use tollgate_core::EnforcedShare;

/// Maximum number of steps of a ramp.
const MAX_RAMP_STEPS: usize = 20;

/// Range of the length of a step in milliseconds.
const STEP_MS: std::ops::RangeInclusive<u64> = 1_000..=7 * 24 * 3_600 * 1_000;

/// Gradual increase of the share of the keys for which a rule is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ramp {
    #[serde(flatten)]
    pub plan: RampPlan,
    /// Index of the active step.
    pub step: usize,
    /// Begin of the active step in milliseconds since 1970.
    pub step_began_ms: u64,
    pub state: RampState,
    /// Part of the enforced keys that was denied when the ramp was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_percent: Option<EnforcedShare>,
}

/// Settings of a ramp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RampPlan {
    /// Shares of the steps, as percentages.
    pub steps: Vec<EnforcedShare>,
    /// Shortest time of a step in milliseconds.
    pub step_ms: u64,
    /// Part of the enforced keys, as a percentage, above which the ramp is rolled back when they are denied.
    pub max_denied_percent: EnforcedShare,
    /// Hits of enforced keys without which a step is not judged: it lasts until there were as many.
    pub min_hits: u64,
    /// The share after a rollback.
    pub back_to_percent: EnforcedShare,
}

tollgate_core::named! {
    /// State of a ramp.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RampState {
        /// A step is active.
        Running = "running",
        /// The last step has ended; its share remains.
        Done = "done",
        /// Too many keys were denied, and the share is again the one before the ramp.
        RolledBack = "rolled_back",
    }
}

/// Number of enforced keys of a rule with requests in the fleet, or of a fair sample of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnforcedKeys {
    /// Keys.
    pub keys: usize,
    /// Denied ones among them.
    pub denied: usize,
}

/// Evidence by which a ramp is judged. Not the denied hits: a client chooses their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RampEvidence {
    /// Hits of enforced keys since the active step began.
    pub hits: u64,
    /// Keys since the active step began.
    pub step: EnforcedKeys,
    /// Keys of the last minute of the step.
    pub recent: EnforcedKeys,
}

impl EnforcedKeys {
    /// The denied part; none where only one key is denied.
    fn denied_share(self) -> Option<EnforcedShare> {
        let denied = if self.denied > 1 { self.denied } else { 0 };
        let hundredths = denied.saturating_mul(EnforcedShare::WHOLE.into()).checked_div(self.keys)?;
        EnforcedShare::from_hundredths(u16::try_from(hundredths).ok()?).ok()
    }
}

impl Ramp {
    /// Begins a ramp at `now_ms` with its first step.
    pub fn begin(plan: RampPlan, now_ms: u64) -> Self {
        Self { plan, step: 0, step_began_ms: now_ms, state: RampState::Running, denied_percent: None }
    }

    /// Checks the steps.
    ///
    /// # Errors
    /// When there are too few or too many, or one is not above the one before, too short or too long.
    pub fn check(&self) -> Result<(), String> {
        let increases = self.plan.steps.is_sorted_by(|one, next| one < next);
        let (wrong, expected) = if !(1..=MAX_RAMP_STEPS).contains(&self.plan.steps.len()) || !increases {
            ("wrong", format!("1 to {MAX_RAMP_STEPS} percentages, each above the one before"))
        } else if !STEP_MS.contains(&self.plan.step_ms) {
            ("too short or too long", "1 second to 7 days for each".to_owned())
        } else {
            return Ok(());
        };
        Err(format!("the steps of a ramp are {wrong}; expected {expected}"))
    }

    /// The share of the active step, or of what a ramp that ended has left.
    pub fn share(&self) -> EnforcedShare {
        match self.state {
            RampState::RolledBack => self.plan.back_to_percent,
            RampState::Running | RampState::Done => self
                .plan
                .steps
                .get(self.step)
                .or(self.plan.steps.last())
                .copied()
                .unwrap_or(EnforcedShare::NONE),
        }
    }

    /// The ramp after `now_ms`, if it changes: the next step, its end, or the way back if the denied part is too large,
    /// over the last minute or over the whole step.
    pub fn next(&self, now_ms: u64, evidence: RampEvidence) -> Option<Self> {
        if self.state != RampState::Running || evidence.hits < self.plan.min_hits {
            return None;
        }
        let judged = [evidence.recent, evidence.step].into_iter();
        let worst = judged.filter_map(EnforcedKeys::denied_share).max();
        if let Some(denied) = worst.filter(|denied| *denied > self.plan.max_denied_percent) {
            let (state, denied_percent) = (RampState::RolledBack, Some(denied));
            return Some(Self { state, denied_percent, step_began_ms: now_ms, ..self.clone() });
        }
        if now_ms.saturating_sub(self.step_began_ms) < self.plan.step_ms {
            return None;
        }
        let next = self.step.saturating_add(1);
        Some(match next < self.plan.steps.len() {
            true => Self { step: next, step_began_ms: now_ms, ..self.clone() },
            false => Self { state: RampState::Done, step_began_ms: now_ms, ..self.clone() },
        })
    }

    /// Description of the change to this ramp, for the audit log.
    pub fn note(&self) -> String {
        let (step, steps, share) = (self.step.saturating_add(1), self.plan.steps.len(), self.share());
        match (self.state, self.denied_percent) {
            (RampState::Running, _) => format!("ramp: step {step} of {steps}"),
            (RampState::Done, _) => format!("ramp: done at {share}%"),
            (RampState::RolledBack, denied) => {
                let denied = denied.unwrap_or(EnforcedShare::ALL);
                let most = self.plan.max_denied_percent;
                format!(
                    "ramp: rolled back to {share}% in step {step} of {steps}: {denied}% of keys denied, above {most}%"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(percent: f64) -> EnforcedShare {
        EnforcedShare::from_percent(percent).expect("a share")
    }

    fn ramp() -> Ramp {
        let steps = [1.0, 10.0, 50.0, 100.0].map(share).to_vec();
        let (max_denied_percent, back_to_percent) = (share(5.0), share(0.0));
        let plan = RampPlan { steps, step_ms: 1_000, max_denied_percent, min_hits: 100, back_to_percent };
        Ramp::begin(plan, 10_000)
    }

    fn evidence(hits: u64, denied: usize) -> RampEvidence {
        let keys = EnforcedKeys { keys: 100, denied };
        RampEvidence { hits, step: keys, recent: keys }
    }

    #[test]
    fn a_ramp_takes_its_steps_and_ends_with_the_last() {
        let mut ramp = ramp();
        let mut shares = vec![ramp.share().percent()];
        let mut now = 10_000;
        while ramp.state == RampState::Running {
            now += 500;
            if let Some(next) = ramp.next(now, evidence(100, 5)) {
                ramp = next;
                shares.push(ramp.share().percent());
            }
        }
        assert_eq!(shares, [1.0, 10.0, 50.0, 100.0, 100.0]);
        assert_eq!((ramp.state, ramp.note().as_str()), (RampState::Done, "ramp: done at 100%"));
        assert_eq!(ramp.next(now + 1_000_000, evidence(1_000, 100)), None, "it has ended");
    }

    #[test]
    fn a_step_lasts_until_its_hits_can_be_judged() {
        let ramp = ramp();
        assert_eq!(ramp.next(10_999, evidence(1_000, 0)), None);
        assert_eq!(ramp.next(1_000_000, evidence(99, 0)), None);
        assert_eq!(ramp.next(1_000_000, evidence(99, 99)), None, "too few hits for a judgement");
        assert_eq!(ramp.next(11_000, evidence(100, 0)).expect("the next step").step, 1);
    }

    #[test]
    fn a_ramp_goes_back_on_the_denied_share_of_the_last_minute_or_of_the_step() {
        let ramp = ramp();
        for evidence in [
            evidence(100, 6),
            RampEvidence {
                recent: EnforcedKeys { keys: 10, denied: 2 },
                step: EnforcedKeys { keys: 250, denied: 3 },
                hits: 100_000,
            },
            RampEvidence { recent: EnforcedKeys::default(), ..evidence(200, 20) },
        ] {
            let back = ramp.next(10_001, evidence).expect("back");
            assert_eq!((back.state, back.share()), (RampState::RolledBack, share(0.0)), "{evidence:?}");
            assert!(back.next(1_000_000, evidence).is_none());
        }
        let back = ramp.next(10_001, evidence(200, 10)).expect("back");
        assert_eq!(back.note(), "ramp: rolled back to 0% in step 1 of 4: 10% of keys denied, above 5%");
    }

    #[test]
    fn one_key_that_is_denied_does_not_set_a_ramp_back() {
        let one = EnforcedKeys { keys: 4, denied: 1 };
        let evidence = RampEvidence { hits: 1 << 60, step: one, recent: EnforcedKeys { keys: 1, denied: 1 } };
        assert_eq!(ramp().next(11_000, evidence).expect("the next step").step, 1);
    }

    #[test]
    fn steps_increase_and_have_a_length() {
        assert_eq!(ramp().check(), Ok(()));
        let of = |percents: &[f64]| {
            let steps = percents.iter().copied().map(share).collect();
            Ramp { plan: RampPlan { steps, ..ramp().plan }, ..ramp() }
        };
        let expected =
            "the steps of a ramp are wrong; expected 1 to 20 percentages, each above the one before";
        let wrong = Err(expected.to_owned());
        for steps in [&[][..], &[10.0, 10.0], &[10.0, 5.0]] {
            assert_eq!(of(steps).check(), wrong, "{steps:?}");
        }
        let many: Vec<f64> = (1..=21).map(f64::from).collect();
        assert_eq!(of(&many).check(), wrong);
        let short = Ramp { plan: RampPlan { step_ms: 999, ..ramp().plan }, ..ramp() };
        let expected = "the steps of a ramp are too short or too long; expected 1 second to 7 days for each";
        assert_eq!(short.check(), Err(expected.to_owned()));
    }

    #[test]
    fn the_stored_form_has_percentages() {
        let ramp = Ramp { denied_percent: Some(share(7.25)), ..ramp() };
        let json = serde_json::to_value(&ramp).expect("json");
        assert_eq!(json["steps"], serde_json::json!([1, 10, 50, 100]));
        assert_eq!(json["denied_percent"], serde_json::json!(7.25));
        assert_eq!(serde_json::from_value::<Ramp>(json).expect("the same"), ramp);
    }
}
