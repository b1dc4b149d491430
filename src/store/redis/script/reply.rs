//! What the script replies.

use std::time::Duration;

use ::redis::{RedisError, Value};
use smallvec::SmallVec;

use super::{Outcome, Outcomes, Run, pack::effective};
use crate::{
    algorithm::{Algorithm, Queued, Standing, State},
    clock::Timestamp,
    store::call::{Ask, Verdicts},
};

/// The answer, unless it is an error as a whole. Those of single runs stay within it: [`read_replies`] tells them apart,
/// where [`Value::extract_error`] would drop what became of the other runs.
///
/// # Errors
/// What the server answered in place of a reply.
pub(in crate::store::redis) fn unless_error(answer: Value) -> Result<Value, RedisError> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

/// What each run came to, or the error that the server answered for it; `None` when the reply is not of the agreed
/// form. The reply must come by [`unless_error`].
pub(in crate::store::redis) fn read_replies<'a>(
    runs: impl Iterator<Item = Run<'a>>,
    reply: Value,
) -> Option<Outcomes> {
    let Value::Array(parts) = reply else { return None };
    let mut parts = parts.into_iter();
    let Some(Value::BulkString(time)) = parts.next() else { return None };
    let now = read_time(&time)?;
    let mut outcomes = Outcomes::with_capacity(parts.len());
    for run in runs {
        outcomes.push(match parts.next()? {
            Value::ServerError(error) => Err(error.into()),
            Value::BulkString(bytes) => Ok(Reader { run, now, rest: &bytes }.outcome()?),
            _ => return None,
        });
    }
    parts.next().is_none().then_some(outcomes)
}

/// Reads what one run came to.
struct Reader<'a, 'b> {
    run: Run<'a>,
    now: Timestamp,
    rest: &'b [u8],
}

impl Reader<'_, '_> {
    fn outcome(mut self) -> Option<Outcome> {
        let call = self.run.call;
        let mut verdicts = SmallVec::<[Verdicts; 1]>::from_elem(Verdicts::new(), usize::from(self.run.times));
        let mut reserved = SmallVec::new();
        for (at, ask) in call.asks().enumerate() {
            match verdicts.as_mut_slice() {
                [once] => once.push((ask.descriptor, self.verdict(ask)?)),
                each => self.replay(ask, each)?,
            }
            if let Some(wish) = self.run.wishes.get(at) {
                reserved.push(match effective(ask, *wish) {
                    Some(_) => self.word()?,
                    None => 0,
                });
            }
        }
        self.rest.is_empty().then_some(Outcome { verdicts, reserved })
    }

    fn verdict(&mut self, ask: &Ask) -> Option<crate::algorithm::Verdict> {
        let (admitted, rest) = self.rest.split_first()?;
        self.rest = rest;
        let standing = self.standing(ask.policy.algorithm())?;
        Some(ask.policy.verdict(standing, self.now, ask.hits, *admitted == 1, self.run.call.charging))
    }

    /// The script tells where it began; from there on, each time comes to what the definition says.
    fn replay(&mut self, ask: &Ask, each: &mut [Verdicts]) -> Option<()> {
        let Standing::Words(words) = self.standing(ask.policy.algorithm())? else { return None };
        let (policy, charging, mut state) = (ask.policy, self.run.call.charging, State::Words(words));
        for verdicts in each {
            let admitted = policy.apply(&mut state, self.now, ask.hits, charging);
            let standing = policy.standing(&state, self.now, ask.hits);
            let verdict = policy.verdict(standing, self.now, ask.hits, admitted, charging);
            verdicts.push((ask.descriptor, verdict));
        }
        Some(())
    }

    /// Where a counter stands.
    fn standing(&mut self, algorithm: Algorithm) -> Option<Standing> {
        let first = self.word()?;
        if algorithm.has_own_key() {
            let (wait, reset) = (self.double()?, self.double()?);
            // Whole numbers of microseconds; one below zero stands for never.
            let wait = (wait >= 0.0).then_some(Duration::from_micros(wait as u64));
            let reset = Duration::from_micros(reset as u64);
            return Some(Standing::Queued(Queued { used: u64::from(first), wait, reset }));
        }
        let second = self.word()?;
        let third = if algorithm == Algorithm::SlidingWindow { self.word()? } else { 0 };
        Some(Standing::Words([first, second, third]))
    }

    fn word(&mut self) -> Option<u32> {
        let (word, rest) = read_word(self.rest)?;
        self.rest = rest;
        Some(word)
    }

    fn double(&mut self) -> Option<f64> {
        let (double, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(f64::from_le_bytes(*double))
    }
}

fn read_time(bytes: &[u8]) -> Option<Timestamp> {
    let (seconds, rest) = read_word(bytes)?;
    let (micros, rest) = read_word(rest)?;
    let whole = u64::from(seconds).saturating_mul(1_000_000);
    rest.is_empty().then_some(Timestamp::from_micros(whole.saturating_add(u64::from(micros))))
}

fn read_word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}
