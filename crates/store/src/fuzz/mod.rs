//! Entry points of the fuzz targets: names of cells, and commands and replies of the decision script.

use std::{borrow::Cow, num::NonZeroU64, time::Duration};

use ::redis::Value;
use tollgate_core::algorithm::{Algorithm, Charging, Parameters, Policy, Prefetch};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::quota::{Quota, Window};
use tollgate_core::{RecordId, SyncMode, clock::Timestamp, lease::LeaseId};
use tollgate_runtime::fuzz::ByteReader;

use crate::key::CellKey;
use crate::redis::{CommandKeys, Run, StoreClock, script};
use crate::request::{Check, TagRequest, Veto};

/// The parts of a name.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    domain: Cow<'a, str>,
    /// Empty for the cell of a rule.
    entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    rule: u8,
    beyond: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    ending: Ending,
}

#[derive(Debug, PartialEq)]
enum Ending {
    None,
    Dedicated(u8),
    LimitOverride(Option<u8>, Algorithm, u32),
}

impl<'a> Parts<'a> {
    fn read(input: &mut ByteReader<'a>) -> Self {
        let mut pairs = |max_count| {
            let count = input.byte().checked_rem(max_count).unwrap_or_default();
            (0..count).map(|_| (input.text(), input.text())).collect()
        };
        let (entries, beyond): (Vec<_>, Vec<_>) = (pairs(4), pairs(3));
        // Parts that the name does not contain must not differ.
        let rule = if entries.is_empty() { input.byte() % 4 } else { 0 };
        let ending = match input.byte() % 4 {
            0 => Ending::None,
            1 => Ending::Dedicated(input.byte()),
            of => {
                let record = (of == 2).then(|| input.byte());
                let algorithm = input.one_of(&Algorithm::ALL).unwrap_or_default();
                Ending::LimitOverride(record, algorithm, input.u32())
            }
        };
        Self { domain: input.text(), entries, rule, beyond, ending }
    }

    fn name(&self) -> CellKey {
        let record = |number| RecordId::numbered(number, Algorithm::FixedWindow);
        fn entries<'b>(pairs: &'b [(Cow<'_, str>, Cow<'_, str>)]) -> impl Iterator<Item = Entry<'b>> {
            pairs.iter().map(|(key, value)| Entry { key, value })
        }
        let mut name = if self.entries.is_empty() {
            CellKey::global(&self.domain, record(self.rule))
        } else {
            CellKey::open(&self.domain, entries(&self.entries))
        };
        if !self.beyond.is_empty() {
            name = name.with_entries(entries(&self.beyond));
        }
        match self.ending {
            Ending::None => name,
            Ending::Dedicated(number) => name.dedicated(record(number)),
            Ending::LimitOverride(number, algorithm, seconds) => {
                name.limit_override(number.map(record), algorithm, seconds)
            }
        }
    }
}

/// Checks that different parts make different names: builds two names from the bytes.
///
/// # Panics
/// If they are equal although their parts differ or vice versa, or if Redis would not find the tag.
pub fn keys(bytes: &[u8]) {
    let mut input = ByteReader(bytes);
    let (left, right) = (Parts::read(&mut input), Parts::read(&mut input));
    let (first, second) = (left.name(), right.name());
    assert_eq!(first.as_bytes() == second.as_bytes(), left == right, "{left:?} and {right:?}: {first}");
    let has_one_tag = (&left.domain, &left.entries, left.rule) == (&right.domain, &right.entries, right.rule);
    assert_eq!(first.tag() == second.tag(), has_one_tag, "{left:?} and {right:?}");
    let inner = first.tag().strip_prefix(b"{").and_then(|tag| tag.strip_suffix(b"}")).unwrap_or_default();
    assert!(!inner.is_empty() && !inner.iter().any(|byte| matches!(byte, b'{' | b'}')), "{first}");
    assert!(first.as_bytes().len() <= 352 && first.slot() < 16_384);
}

/// Builds a command for requests derived from the bytes, and parses the rest of them as its reply.
///
/// # Panics
/// On a defect.
pub fn replies(bytes: &[u8]) {
    let mut input = ByteReader(bytes);
    let count = input.byte() % 4;
    let requests: Vec<(TagRequest, u16)> = (0..count).filter_map(|_| request(&mut input)).collect();
    let prefetches: Vec<Prefetch> = (0..input.byte() % 8)
        .map(|_| Prefetch {
            max_tokens: input.u32(),
            share: u16::from(input.byte()),
            hold_millis: u16::from(input.byte()),
        })
        .collect();
    let runs: Vec<Run<'_>> =
        requests.iter().map(|(request, times)| run(request, *times, &prefetches)).collect();
    let keys = input.one_of(&[CommandKeys::OneSlot, CommandKeys::AnySlotOfNode]).unwrap_or_default();
    let packed = script::command(b"p", runs.iter().copied(), keys, None, &StoreClock::default());
    let packed = packed.get_packed_command();
    assert!(packed.len() < 100_000);
    let reply = value(&mut input, 0);
    let Ok(reply) = script::check_error(reply) else { return };
    if let Some(outcomes) = script::read_replies(runs.iter().copied(), reply) {
        assert_eq!(outcomes.len(), runs.len());
        for (outcome, run) in outcomes.iter().zip(&runs) {
            let Ok(outcome) = outcome else { continue };
            assert_eq!(outcome.verdicts.len(), usize::from(run.times));
            assert!(outcome.verdicts.iter().all(|verdicts| verdicts.len() == run.request.checks().count()));
        }
    }
}

/// A run as built by the batcher: repeated only where that is allowed.
fn run<'a>(request: &'a TagRequest, times: u16, prefetches: &'a [Prefetch]) -> Run<'a> {
    let is_replayable = request.cells.len() == 1
        && request.charging == Charging::Independent
        && request.checks().all(|check| !check.hits.is_refund())
        && (request.checks().count() == 1
            || !request.checks().any(|check| check.policy.algorithm().has_own_key()));
    let prefetches = if prefetches.len() == request.checks().count() { prefetches } else { &[] };
    Run { request, times: if is_replayable { times.clamp(1, 500) } else { 1 }, prefetches, reported: &[] }
}

fn request(input: &mut ByteReader<'_>) -> Option<(TagRequest, u16)> {
    let charging = input.one_of(&[Charging::Independent, Charging::AllOrNone])?;
    let times = u16::from_le_bytes(input.array());
    let key = CellKey::open("d", [Entry { key: "k", value: &input.text() }].into_iter());
    let mut request = TagRequest::new(charging, key.clone(), check(input)?);
    for _ in 0..input.byte() % 3 {
        let check = check(input)?;
        let key = if input.flag() { key.clone() } else { key.clone().dedicated(check.record) };
        request.push(key, check);
    }
    Some((request, times))
}

fn check(input: &mut ByteReader<'_>) -> Option<Check> {
    let algorithm = input.one_of(&Algorithm::ALL)?;
    let seconds = input.u32() % Window::MAX_SECONDS;
    let quota = Quota { limit: limit(input), window: Window::from_seconds(seconds).ok()? };
    let parameters = Parameters {
        burst: (input.flag()).then(|| input.u32()),
        min_interval: Duration::from_micros(u64::from(input.u32())),
        lease_ttl: Duration::from_secs(u64::from(input.byte()).saturating_add(1)),
        overdraft: input.flag(),
        max_debt: (input.flag()).then(|| input.u32()),
        carry: input.flag(),
        unused_percent: input.byte() % 101,
        reserve: None,
    };
    let policy = Policy::new(algorithm, quota, &parameters).ok()?;
    let amount = NonZeroU64::new(input.u64() % Hits::MAX).unwrap_or(NonZeroU64::MIN);
    let lease = LeaseId::new(NonZeroU64::new(input.u64()).unwrap_or(NonZeroU64::MIN));
    let hits = input.one_of(&[
        Hits::Peek,
        Hits::Charge(amount),
        Hits::Overdraw(amount),
        Hits::Refund(amount),
        Hits::RefundCharge { amount, made_at: Timestamp::from_micros(amount.get()) },
        Hits::Acquire { amount, lease },
        Hits::Release(lease),
        Hits::Settle { lease, used: amount.get() },
    ])?;
    let record = RecordId::numbered(input.byte(), algorithm).under(&policy);
    let sync = input.one_of(&SyncMode::ALL)?;
    let veto = input.one_of(&[
        Veto::Never,
        Veto::Alone,
        Veto::Counted,
        Veto::WithQuotas,
        Veto::AcrossTags,
        Veto::Always,
    ])?;
    Some(Check { descriptor: 0, record, policy, hits, veto, sync, ban: None, share: None })
}

/// A limit, mostly of 32 bits.
fn limit(input: &mut ByteReader<'_>) -> u64 {
    match input.byte() {
        0..16 => input.u64().min(Hits::MAX),
        _ => input.u32().into(),
    }
}

fn value(input: &mut ByteReader<'_>, depth: u8) -> Value {
    match input.byte() % 6 {
        0 => Value::Nil,
        1 => Value::Int(i64::from(input.u32())),
        2 if depth < 3 => {
            let count = input.byte() % 6;
            Value::Array((0..count).map(|_| value(input, depth.saturating_add(1))).collect())
        }
        3 => Value::SimpleString(input.text().into_owned()),
        _ => {
            let length = match depth {
                0 => input.0.len(),
                _ => usize::from(input.byte()),
            };
            Value::BulkString(input.bytes(length).to_vec())
        }
    }
}
