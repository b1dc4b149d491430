//! Parsing of the script's reply.

use std::{num::NonZeroU8, time::Duration};

use ::redis::{RedisError, Value};
use smallvec::SmallVec;
use tollgate_core::algorithm::{
    Algorithm, Charging, CounterState, LedgerSummary, Policy, QueueSummary, StateSummary, Verdict,
};
use tollgate_core::{ban::Ban, clock::Timestamp, descriptor::Hits};

use super::pack::{effective_prefetch, effective_share};
use super::*;
use crate::request::{Check, Verdicts};

/// Redis' errors about keys that a script cannot reach: those of a slot that the node does not serve, or that are absent
/// while their slot migrates; any key while the cluster is down; and keys of several slots, where that is not permitted.
const UNREACHED: [&str; 3] = [
    "Script attempted to access a non local key",
    "Script attempted to execute a ",
    "Script attempted to access keys that do not hash to the same slot",
];

/// Turns an error reply into an error. Errors of single runs stay within the value: [`read_replies`] separates them,
/// where [`Value::extract_error`] would drop the results of the other runs.
///
/// # Errors
/// The error reply of the server.
pub(crate) fn check_error(reply: Value) -> Result<Value, RedisError> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        reply => Ok(reply),
    }
}

/// Whether the error of a call, in a command on several slots, is that its keys are not on the node: since the script reads
/// every key of a call before it writes one, the call had no effect.
pub(crate) fn is_unreached(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| UNREACHED.iter().any(|begin| detail.starts_with(begin)))
}

/// The outcome of each run, or the server's error for it; `None` for a malformed reply. The reply must have passed
/// [`check_error`].
pub(crate) fn read_replies<'a>(runs: impl Iterator<Item = Run<'a>>, reply: Value) -> Option<Outcomes> {
    match reply {
        Value::BulkString(bytes) => read_outcomes(runs, &bytes),
        Value::Array(parts) => read_parts(runs, parts),
        _ => None,
    }
}

/// Outcomes of runs none of which failed.
fn read_outcomes<'a>(runs: impl Iterator<Item = Run<'a>>, bytes: &[u8]) -> Option<Outcomes> {
    let mut reader = Reader::new(bytes)?;
    let outcomes = runs.map(|run| reader.outcome(run).map(Ok)).collect::<Option<_>>()?;
    reader.rest.is_empty().then_some(outcomes)
}

/// Outcomes of runs in parts of their own.
fn read_parts<'a>(mut runs: impl Iterator<Item = Run<'a>>, parts: Vec<Value>) -> Option<Outcomes> {
    let mut parts = parts.into_iter();
    let Some(Value::BulkString(time)) = parts.next() else { return None };
    let now = Reader::new(&time)?.now;
    let mut outcomes = Outcomes::with_capacity(parts.len());
    for part in parts {
        let run = runs.next()?;
        outcomes.push(match part {
            Value::ServerError(error) => Err(error.into()),
            Value::BulkString(bytes) => {
                let mut reader = Reader { now, rest: &bytes };
                let outcome = reader.outcome(run)?;
                Ok(reader.rest.is_empty().then_some(outcome)?)
            }
            _ => return None,
        });
    }
    runs.next().is_none().then_some(outcomes)
}

/// Reads outcomes from the packed reply.
struct Reader<'b> {
    now: Timestamp,
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    /// A reader of what follows the time.
    fn new(rest: &'b [u8]) -> Option<Self> {
        let mut reader = Self { now: time_of(0, 0), rest };
        reader.now = time_of(reader.word()?, reader.word()?);
        Some(reader)
    }

    fn outcome(&mut self, run: Run<'_>) -> Option<RunOutcome> {
        let mut verdicts = match run.times {
            1 => SmallVec::from_buf([Verdicts::new()]),
            times => SmallVec::from_elem(Verdicts::new(), usize::from(times)),
        };
        let mut prefetched = SmallVec::new();
        for (at, check) in run.request.checks().enumerate() {
            let charging = check.counting(run.request.charging);
            if run.times > 1 && check.policy.algorithm().has_own_key() {
                self.repeated_queue(check, charging, &mut verdicts)?;
                prefetched.extend(run.prefetches.get(at).map(|_| 0));
                continue;
            }
            let outcome = if run.times == 1 { self.byte()? } else { REPLY_HAS_BAN | REPLY_HAS_LOANS };
            let summary = self.summary(check, outcome)?;
            if let Some(prefetch) = run.prefetches.get(at) {
                prefetched.push(match effective_prefetch(check, *prefetch) {
                    Some(_) => self.word()?,
                    None => 0,
                });
            }
            let ban = if outcome & REPLY_HAS_BAN > 0 { self.ban(check)? } else { None };
            let policy =
                if outcome & REPLY_HAS_LOANS > 0 { self.policy(check, run.times)? } else { check.policy };
            match verdicts.as_mut_slice() {
                [once] => {
                    let verdict =
                        policy.verdict(summary, self.now, check.hits, outcome & REPLY_ADMITTED > 0, charging);
                    once.push((check.descriptor, under(verdict, ban, check)));
                }
                each => self.replay(&Check { policy, ..*check }, charging, summary, ban, each)?,
            }
        }
        Some(RunOutcome { verdicts, prefetched })
    }

    /// The script returns the initial state; the verdicts of the repetitions follow from the definition of the
    /// algorithm. A ban that is enforced denies all of them, and charges none.
    fn replay(
        &self,
        check: &Check,
        charging: Charging,
        summary: StateSummary,
        mut ban: Option<Ban>,
        each: &mut [Verdicts],
    ) -> Option<()> {
        let StateSummary::Words(words) = summary else { return None };
        let (policy, mut state) = (check.policy, CounterState::Words(words));
        let is_banned = ban.is_some_and(|ban| ban.is_enforced);
        let hits = if is_banned { Hits::Peek } else { check.hits };
        for verdicts in each {
            let admitted = policy.apply(&mut state, self.now, hits, charging) && !is_banned;
            let summary = policy.summary(&state, self.now, check.hits);
            let verdict = policy.verdict(summary, self.now, check.hits, admitted, charging);
            verdicts.push((check.descriptor, under(verdict, ban, check)));
            ban = ban.map(Ban::known);
        }
        Some(())
    }

    /// The script returns how many repetitions passed, which come first, and the last state.
    fn repeated_queue(&mut self, check: &Check, charging: Charging, each: &mut [Verdicts]) -> Option<()> {
        let passing = usize::from(u16::from_le_bytes(self.take()?));
        let StateSummary::Queue(last) = self.summary(check, 0)? else { return None };
        let (admitted, denied) = each.split_at_mut_checked(passing)?;
        let mut used = last.used;
        for verdicts in admitted.iter_mut().rev() {
            let summary = StateSummary::Queue(QueueSummary { used, wait: Some(Duration::ZERO), ..last });
            let verdict = check.policy.verdict(summary, self.now, check.hits, true, charging);
            verdicts.push((check.descriptor, verdict));
            used = used.saturating_sub(check.hits.charged());
        }
        let verdict = check.policy.verdict(StateSummary::Queue(last), self.now, check.hits, false, charging);
        denied.iter_mut().for_each(|verdicts| verdicts.push((check.descriptor, verdict)));
        Some(())
    }

    /// The active ban of a check's counter.
    fn ban(&mut self, check: &Check) -> Option<Option<Ban>> {
        let Some(applied) = check.applied_ban() else { return Some(None) };
        let flags = self.byte()?;
        if flags & REPLY_BAN_ACTIVE == 0 {
            return Some(None);
        }
        let (until, level) = (self.word()?, NonZeroU8::new(self.byte()?)?);
        let ban = Ban { until, level, is_new: flags & REPLY_BAN_NEW > 0, is_enforced: false };
        Some(applied.report(Some(ban)))
    }

    /// The policy that decided a check under the loans of its counter.
    fn policy(&mut self, check: &Check, times: u16) -> Option<Policy> {
        let Some(share) = effective_share(check) else { return Some(check.policy) };
        if times > 1 && self.byte()? == 0 {
            return Some(check.policy);
        }
        Some(share.under(check.policy, self.word()?))
    }

    /// State summary of a counter, after the first byte of a verdict on it.
    fn summary(&mut self, check: &Check, outcome: u8) -> Option<StateSummary> {
        if check.policy.algorithm() == Algorithm::Budget {
            // Whole numbers below 2^53.
            let (used, held) = (self.double()? as u64, self.double()? as u64);
            let (ends, has_conflict) = (self.word()?, outcome & REPLY_CONFLICT > 0);
            return Some(StateSummary::Ledger(LedgerSummary { used, held, ends, has_conflict }));
        }
        let first = self.word()?;
        if check.policy.algorithm().has_own_key() {
            let (wait, reset) = (self.double()?, self.double()?);
            // Whole microseconds; a negative number stands for never.
            let wait = (wait >= 0.0).then_some(Duration::from_micros(wait as u64));
            let reset = Duration::from_micros(reset as u64);
            return Some(StateSummary::Queue(QueueSummary { used: u64::from(first), wait, reset }));
        }
        let second = self.word()?;
        let third = if check.record.kind() >= KIND_OF_THREE_WORDS { self.word()? } else { 0 };
        Some(StateSummary::Words([first, second, third]))
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn double(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }
}

fn under(verdict: Verdict, ban: Option<Ban>, check: &Check) -> Verdict {
    ban.map_or(verdict, |ban| verdict.under(ban, check.hits))
}

/// The time in the two words that the scripts reply.
#[allow(clippy::arithmetic_side_effects)] // Words have 32 bits.
pub(crate) fn time_of(seconds: u32, micros: u32) -> Timestamp {
    Timestamp::from_micros(u64::from(seconds) * 1_000_000 + u64::from(micros))
}
