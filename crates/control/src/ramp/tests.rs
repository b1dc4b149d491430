//! A ramp advances with evidence, and is rolled back on a bad limit.

use super::*;

fn share(percent: f64) -> EnforcedShare {
    EnforcedShare::from_percent(percent).expect("a share")
}

fn ramp() -> Ramp {
    let steps = [1.0, 10.0, 50.0, 100.0].map(share).to_vec();
    Ramp::begin(steps, 1_000, share(5.0), (100, share(0.0)), 10_000)
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
    let of = |percents: &[f64]| Ramp { steps: percents.iter().copied().map(share).collect(), ..ramp() };
    for steps in [&[][..], &[10.0, 10.0], &[10.0, 5.0]] {
        assert_eq!(of(steps).check(), Err(RampError::Steps), "{steps:?}");
    }
    let many: Vec<f64> = (1..=21).map(f64::from).collect();
    assert_eq!(of(&many).check(), Err(RampError::Steps));
    assert_eq!(Ramp { step_ms: 999, ..ramp() }.check(), Err(RampError::StepTime));
}

#[test]
fn the_stored_form_has_percentages() {
    let ramp = Ramp { denied_percent: Some(share(7.25)), ..ramp() };
    let json = serde_json::to_value(&ramp).expect("json");
    assert_eq!(json["steps"], serde_json::json!([1, 10, 50, 100]));
    assert_eq!(json["denied_percent"], serde_json::json!(7.25));
    assert_eq!(serde_json::from_value::<Ramp>(json).expect("the same"), ramp);
}
