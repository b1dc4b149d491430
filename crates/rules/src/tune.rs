//! Tuning: a limit that moves within bounds, slowly, to deny a certain part of the hits.

use std::time::Duration;

use tollgate_core::EnforcedShare;

/// Bounds and speed of a limit that is tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tune {
    /// The part of the hits that the limit is to deny.
    pub target: EnforcedShare,
    /// The lowest and the highest limit, in hits per window.
    pub bounds: (u32, u32),
    /// The part of the limit by which it changes at most in one step.
    pub step: EnforcedShare,
    /// Shortest time between two steps.
    pub interval: Duration,
}

/// The limit that would deny the part, with the interval that contains it with a certain confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuneEvidence {
    /// The limit in hits per window.
    pub limit: u64,
    /// Lower end of the interval.
    pub low: u64,
    /// Upper end of the interval.
    pub high: u64,
}

impl Tune {
    /// The limit after `active`, if it changes: at once if it is out of bounds, otherwise by at most a step towards the limit
    /// of the evidence, and only if that differs from `active` with confidence.
    pub fn next(&self, active: u32, evidence: Option<TuneEvidence>) -> Option<u32> {
        let (least, most) = self.bounds;
        let within = active.clamp(least, most);
        if within != active {
            return Some(within);
        }
        let TuneEvidence { limit, low, high } = evidence?;
        if (low..=high).contains(&u64::from(active)) {
            return None;
        }
        let wanted = u32::try_from(limit).unwrap_or(u32::MAX).clamp(least, most);
        let step = u64::from(active).saturating_mul(self.step.hundredths().into());
        let step = step.checked_div(EnforcedShare::WHOLE.into()).unwrap_or_default();
        let step = u32::try_from(step).unwrap_or(u32::MAX).max(1);
        let next = wanted.clamp(active.saturating_sub(step), active.saturating_add(step));
        (next != active).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tune(bounds: (u32, u32), step: u16) -> Tune {
        let share = |hundredths| EnforcedShare::from_hundredths(hundredths).expect("a share");
        Tune { target: share(100), bounds, step: share(step), interval: Duration::from_secs(600) }
    }

    fn evidence(limit: u64) -> Option<TuneEvidence> {
        Some(TuneEvidence { limit, low: limit.saturating_sub(limit / 20), high: limit + limit / 20 })
    }

    #[test]
    fn a_limit_moves_by_a_step_within_its_bounds_and_rests_at_its_target() {
        let tune = tune((500, 2_000), 1_000);
        assert_eq!(tune.next(1_000, evidence(5_000)), Some(1_100));
        assert_eq!(tune.next(1_000, evidence(100)), Some(900));
        assert_eq!(tune.next(1_000, evidence(1_070)), Some(1_070), "the rest of the way");
        assert_eq!(tune.next(1_000, evidence(1_040)), None, "within the interval");
        assert_eq!((tune.next(1_000, None), tune.next(1_990, evidence(9_000))), (None, Some(2_000)));
        assert_eq!((tune.next(500, evidence(1)), tune.next(2_000, evidence(9_000))), (None, None));
        assert_eq!((tune.next(400, None), tune.next(3_000, evidence(3_000))), (Some(500), Some(2_000)));
        assert_eq!(self::tune((1, 9), 100).next(5, evidence(9)), Some(6), "at least by one");
    }

    proptest! {
        #[test]
        fn a_tuned_limit_arrives_near_its_target_and_never_leaves_its_bounds(
            (least, most) in (1_u32..1_000, 0_u32..100_000).prop_map(|(least, more)| (least, least + more)),
            start in any::<u32>(), wanted in 0_u64..200_000, step in 100_u16..=5_000,
        ) {
            let (tune, mut active) = (tune((least, most), step), start);
            for round in 0..2_000 {
                let Some(next) = tune.next(active, evidence(wanted)) else { break };
                prop_assert!((least..=most).contains(&next));
                let change = u64::from(active.abs_diff(next)) * 10_000;
                let is_slow = change <= (u64::from(active) * u64::from(step)).max(10_000);
                prop_assert!(is_slow || !(least..=most).contains(&active));
                active = next;
                prop_assert!(round < 1_999, "it does not end");
            }
            let target = u32::try_from(wanted).expect("small").clamp(least, most);
            prop_assert!(u64::from(active.abs_diff(target)) <= wanted / 20 + 1, "{} for {}", active, target);
        }
    }
}
