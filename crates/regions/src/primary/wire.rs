//! Messages about counters of the primary region, as they are sent.

use std::{num::NonZeroU64, time::Duration};

use tollgate_core::algorithm::{Charging, Verdict};
use tollgate_core::ban::{Ban, BanEffect};
use tollgate_core::clock::{Timestamp, micros};
use tollgate_core::{RecordId, descriptor::Hits, lease::LeaseId};
use tollgate_proto::tollgate::region::v1::primary_check::{Ban as Effect, Operation, Veto as SentVeto};
use tollgate_proto::tollgate::region::v1::{
    PrimaryBan, PrimaryCall, PrimaryCheck, PrimaryReply, PrimaryVerdict, primary_reply::Result as Outcome,
};
use tollgate_store::StoreError;
use tollgate_store::request::{Check, TagRequest, Verdicts, Veto};

/// A check that was received.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReceivedCheck<'m> {
    pub(super) cell: &'m [u8],
    pub(super) record: RecordId,
    pub(super) hits: Hits,
    pub(super) veto: Veto,
    pub(super) effect: Option<BanEffect>,
}

/// The message of a call with this time left.
pub(super) fn call_of(request: &TagRequest, left: Duration) -> PrimaryCall {
    let checks = request.checks_with_cells().map(|(cell, check)| {
        let (operation, amount, lease, made_at_us) = operation_of(check.hits);
        PrimaryCheck {
            cell: cell.key.as_bytes().to_vec(),
            record: check.record.as_bytes().to_vec(),
            operation: operation.into(),
            amount,
            lease,
            made_at_us,
            veto: veto_of(check.veto).into(),
            ban: effect_of(check.ban.map(|ban| ban.effect)).into(),
        }
    });
    PrimaryCall {
        checks: checks.collect(),
        all_or_none: request.charging == Charging::AllOrNone,
        timeout_us: micros(left),
    }
}

/// A check that was received; `None` if it is malformed.
pub(super) fn read_check(check: &PrimaryCheck) -> Option<ReceivedCheck<'_>> {
    Some(ReceivedCheck {
        cell: &check.cell,
        record: RecordId::from_bytes(check.record.as_slice().try_into().ok()?),
        hits: read_hits(check)?,
        veto: read_veto(check.veto)?,
        effect: read_effect(check.ban)?,
    })
}

/// Charging of the hits of a call.
pub(super) const fn read_charging(call: &PrimaryCall) -> Charging {
    if call.all_or_none { Charging::AllOrNone } else { Charging::Independent }
}

/// The reply with the verdicts of a call.
pub(super) fn reply_of(verdicts: &Verdicts) -> PrimaryReply {
    let verdicts = verdicts.iter().map(|(_, verdict)| verdict_of(verdict)).collect();
    PrimaryReply { result: Outcome::Decided.into(), verdicts, ..PrimaryReply::default() }
}

/// A reply without verdicts.
pub(super) fn refusal(outcome: Outcome, reason: &str) -> PrimaryReply {
    PrimaryReply { result: outcome.into(), reason: reason.to_owned(), ..PrimaryReply::default() }
}

/// The verdicts of a reply to `request`.
///
/// # Errors
/// [`StoreError`] if the primary region did not decide.
pub(super) fn read_reply(request: &TagRequest, reply: &PrimaryReply) -> Result<Verdicts, StoreError> {
    let declined = |reason: &str| StoreError::Declined(format!("primary region: {reason}"));
    match reply.result() {
        Outcome::Decided => read_verdicts(request, &reply.verdicts).ok_or(StoreError::MalformedReply),
        Outcome::Role => Err(declined("it is another region")),
        Outcome::Rule => Err(declined("it has no such rule")),
        Outcome::Malformed => Err(declined("it refused a malformed call")),
        Outcome::Busy => Err(declined("it has too many calls")),
        Outcome::NotCharged => Err(declined(&format!("its store failed ({})", reply.reason))),
        Outcome::Unknown => {
            Err(StoreError::Refused(format!("primary region: its store failed ({})", reply.reason)))
        }
        Outcome::Unspecified => Err(StoreError::MalformedReply),
    }
}

fn read_verdicts(request: &TagRequest, verdicts: &[PrimaryVerdict]) -> Option<Verdicts> {
    let read = |(check, verdict): (&Check, &PrimaryVerdict)| Some((check.descriptor, read_verdict(verdict)?));
    let all: Option<Verdicts> = request.checks().zip(verdicts).map(read).collect();
    all.filter(|_| request.checks().count() == verdicts.len())
}

/// Operation, amount, lease and time of hits.
fn operation_of(hits: Hits) -> (Operation, u64, u64, u64) {
    let number = |lease: LeaseId| u64::from_be_bytes(lease.to_bytes());
    match hits {
        Hits::Peek => (Operation::Peek, 0, 0, 0),
        Hits::Charge(amount) => (Operation::Charge, amount.get(), 0, 0),
        Hits::Overdraw(amount) => (Operation::Overdraw, amount.get(), 0, 0),
        Hits::Refund(amount) => (Operation::Refund, amount.get(), 0, 0),
        Hits::RefundCharge { amount, made_at } => {
            (Operation::RefundCharge, amount.get(), 0, made_at.as_micros())
        }
        Hits::Acquire { amount, lease } => (Operation::Acquire, amount.get(), number(lease), 0),
        // Budgets are refused beside `scope: primary`; permits have no use to settle.
        Hits::Release(lease) | Hits::Settle { lease, .. } => (Operation::Release, 0, number(lease), 0),
    }
}

fn read_hits(check: &PrimaryCheck) -> Option<Hits> {
    let amount = || NonZeroU64::new(check.amount).filter(|amount| amount.get() <= Hits::MAX);
    let lease = || NonZeroU64::new(check.lease).map(LeaseId::new);
    Some(match Operation::try_from(check.operation).ok()? {
        Operation::Peek => Hits::Peek,
        Operation::Charge => Hits::Charge(amount()?),
        Operation::Overdraw => Hits::Overdraw(amount()?),
        Operation::Refund => Hits::Refund(amount()?),
        Operation::RefundCharge => {
            Hits::RefundCharge { amount: amount()?, made_at: Timestamp::from_micros(check.made_at_us) }
        }
        Operation::Acquire => Hits::Acquire { amount: amount()?, lease: lease()? },
        Operation::Release => Hits::Release(lease()?),
    })
}

const fn veto_of(veto: Veto) -> SentVeto {
    match veto {
        Veto::Never => SentVeto::Never,
        Veto::Alone => SentVeto::Alone,
        Veto::WithQuotas => SentVeto::WithQuotas,
        Veto::AcrossTags => SentVeto::AcrossTags,
        Veto::Always => SentVeto::Always,
        Veto::Counted => SentVeto::Counted,
    }
}

fn read_veto(number: i32) -> Option<Veto> {
    use Veto::{AcrossTags, Alone, Always, Counted, Never, WithQuotas};
    let all = [Never, Alone, WithQuotas, AcrossTags, Always, Counted];
    all.into_iter().find(|veto| veto_of(*veto) as i32 == number)
}

const fn effect_of(effect: Option<BanEffect>) -> Effect {
    match effect {
        None => Effect::None,
        Some(BanEffect::Watch) => Effect::Watch,
        Some(BanEffect::Enforce) => Effect::Enforce,
        Some(BanEffect::Lift) => Effect::Lift,
        Some(BanEffect::Forgive) => Effect::Forgive,
    }
}

fn read_effect(number: i32) -> Option<Option<BanEffect>> {
    use BanEffect::{Enforce, Forgive, Lift, Watch};
    let all = [None, Some(Watch), Some(Enforce), Some(Lift), Some(Forgive)];
    all.into_iter().find(|effect| effect_of(*effect) as i32 == number)
}

fn verdict_of(verdict: &Verdict) -> PrimaryVerdict {
    let ban = verdict.ban.map(|ban| PrimaryBan {
        until: ban.until,
        level: ban.level.get().into(),
        is_new: ban.is_new,
        is_enforced: ban.is_enforced,
    });
    PrimaryVerdict {
        admitted: verdict.admitted,
        // A limit of the primary region has 32 bits.
        remaining: u32::try_from(verdict.remaining).unwrap_or(u32::MAX),
        reset_after_us: micros(verdict.reset_after),
        retry_after_us: (verdict.retry_after != Duration::MAX).then(|| micros(verdict.retry_after)),
        used: verdict.used,
        held: verdict.held,
        over: verdict.over,
        decided_at_us: verdict.decided_at.as_micros(),
        ban,
    }
}

fn read_verdict(verdict: &PrimaryVerdict) -> Option<Verdict> {
    let read_ban = |ban: &PrimaryBan| {
        let level = u8::try_from(ban.level).ok()?.try_into().ok()?;
        Some(Ban { until: ban.until, level, is_new: ban.is_new, is_enforced: ban.is_enforced })
    };
    let ban = match &verdict.ban {
        None => None,
        Some(ban) => Some(read_ban(ban)?),
    };
    Some(Verdict {
        admitted: verdict.admitted,
        remaining: verdict.remaining.into(),
        reset_after: Duration::from_micros(verdict.reset_after_us),
        retry_after: verdict.retry_after_us.map_or(Duration::MAX, Duration::from_micros),
        used: verdict.used,
        // Only last verdicts of an own store need it.
        decaying: 0,
        held: verdict.held,
        over: verdict.over,
        decided_at: Timestamp::from_micros(verdict.decided_at_us),
        ban,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::num::NonZeroU8;

    use tollgate_core::algorithm::{Algorithm, Parameters, Policy};
    use tollgate_core::ban::{BanCheck, BanParameters, BanPolicy};
    use tollgate_core::quota::{Quota, Unit, Window};
    use tollgate_core::{SyncMode, descriptor::Entry};
    use tollgate_store::key::CellKey;

    use super::*;

    /// A request about one counter.
    pub(in crate::primary) fn request(hits: Hits, veto: Veto, effect: Option<BanEffect>) -> TagRequest {
        let quota = Quota { limit: 5, window: Window::of(Unit::Hour) };
        let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
        let bans = BanPolicy::new(&BanParameters::default(), quota).expect("valid");
        let ban = effect.map(|effect| BanCheck { policy: bans, effect });
        let record = RecordId::alone(Algorithm::FixedWindow);
        let check = Check { descriptor: 3, veto, ban, ..Check::own(record, policy, hits) };
        assert_eq!(check.sync, SyncMode::Strict);
        let key = CellKey::open("d", [Entry { key: "k", value: "v" }].into_iter()).at_primary("d");
        TagRequest::new(Charging::AllOrNone, key, check)
    }

    #[test]
    fn checks_are_carried_whole() {
        let amount = NonZeroU64::new(7).expect("not 0");
        let lease = LeaseId::random();
        let made_at = Timestamp::from_micros(1_700_000_000_000_001);
        let all = [
            Hits::Peek,
            Hits::Charge(amount),
            Hits::Overdraw(amount),
            Hits::Refund(amount),
            Hits::RefundCharge { amount, made_at },
            Hits::Acquire { amount, lease },
            Hits::Release(lease),
        ];
        let vetoes =
            [Veto::Never, Veto::Alone, Veto::WithQuotas, Veto::AcrossTags, Veto::Always, Veto::Counted];
        let effects = [BanEffect::Watch, BanEffect::Enforce, BanEffect::Lift, BanEffect::Forgive];
        for (at, hits) in all.into_iter().enumerate() {
            let (veto, effect) = (vetoes[at % 6], effects.get(at).copied());
            let request = request(hits, veto, effect);
            let call = call_of(&request, Duration::from_millis(80));
            assert_eq!((read_charging(&call), call.timeout_us), (Charging::AllOrNone, 80_000));
            let cell = request.cells[0].key.as_bytes();
            let record = RecordId::alone(Algorithm::FixedWindow);
            assert_eq!(read_check(&call.checks[0]), Some(ReceivedCheck { cell, record, hits, veto, effect }));
        }
    }

    #[test]
    fn malformed_checks_are_not_taken() {
        let good = call_of(&request(Hits::ONE, Veto::Alone, None), Duration::ZERO).checks.remove(0);
        assert!(read_check(&good).is_some());
        for bad in [
            PrimaryCheck { record: vec![1; 5], ..good.clone() },
            PrimaryCheck { amount: 0, ..good.clone() },
            PrimaryCheck { amount: u64::MAX, ..good.clone() },
            PrimaryCheck { operation: 99, ..good.clone() },
            PrimaryCheck { operation: Operation::Acquire.into(), lease: 0, ..good.clone() },
            PrimaryCheck { veto: 99, ..good.clone() },
            PrimaryCheck { ban: 99, ..good },
        ] {
            assert_eq!(read_check(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn verdicts_are_carried_whole_and_others_are_errors() {
        let request = request(Hits::ONE, Veto::Alone, None);
        let level = NonZeroU8::new(2).expect("not 0");
        for retry_after in [Duration::ZERO, Duration::from_millis(1_500), Duration::MAX] {
            let verdict = Verdict {
                admitted: false,
                remaining: 4,
                reset_after: Duration::from_secs(30),
                retry_after,
                used: 9,
                decaying: 0,
                held: 3,
                over: 2,
                decided_at: Timestamp::from_micros(1_700_000_000_000_000),
                ban: Some(Ban { until: 77, level, is_new: true, is_enforced: false }),
            };
            let verdicts = Verdicts::from_iter([(3, verdict)]);
            let reply = reply_of(&verdicts);
            assert_eq!(read_reply(&request, &reply), Ok(verdicts));
            let mut long = reply.clone();
            long.verdicts.push(reply.verdicts[0]);
            assert_eq!(read_reply(&request, &long), Err(StoreError::MalformedReply));
        }
        let error = |outcome| read_reply(&request, &refusal(outcome, "timeout")).expect_err("no verdict");
        for outcome in [Outcome::Role, Outcome::Rule, Outcome::Malformed, Outcome::Busy, Outcome::NotCharged]
        {
            assert!(error(outcome).charged_nothing(), "{outcome:?}");
        }
        for outcome in [Outcome::Unknown, Outcome::Unspecified] {
            assert!(!error(outcome).charged_nothing(), "{outcome:?}");
        }
    }
}
