//! Scripts, and the command and reply of the one that decides; `lua/decide/entry.lua` documents both.
//!
//! The parts in `lua/` use names for the numbers in arguments, replies and stored records. They are replaced before a
//! script is loaded, so that they cost Redis nothing; `docs/internals/redis-protocol-and-lua.md` has them in a table.

mod pack;
mod reply;

use std::{borrow::Cow, sync::LazyLock};

use ::redis::{Cmd, RedisError, cmd};
use sha1_smol::Sha1;
use tollgate_core::algorithm::bucket_state::{
    MIN_SIZE_TICKS, SIZE_SHIFT, TICKS_PER_MICRO, TICKS_PER_MILLI, TICKS_PER_SECOND,
};
use tollgate_core::algorithm::budget::{CHARGES_BIT, OPERATION_BIT, TTL_BIT};
use tollgate_core::algorithm::sliding_window::{MAX_STEPS, SINCE_BITS, WINDOW_BITS};
use tollgate_core::algorithm::{Prefetch, RecordKind, unused_hits::DEBT_BITS};
use tollgate_core::ban::{BAD_BIT, BALANCE_ZERO, BANNED, LEVEL_BIT, MAX_BALANCE, SECOND_BIT};
use tollgate_core::calendar::{BOUND_BIT, LENGTH_BIT, QUARTER, UNIT_BIT};

pub(crate) use self::pack::{command, pack_parameter};
pub(crate) use self::reply::{check_error, is_unreached, read_replies, time_of};
pub use crate::request::RunOutcome;
use crate::{key::CellKey, request::TagRequest};

/// A script, with the SHA-1 digest that names it in Redis.
#[derive(Clone, Debug)]
pub struct Script {
    source: Cow<'static, str>,
    digest: String,
}

impl Script {
    /// A script with this source.
    pub fn new(source: impl Into<Cow<'static, str>>) -> Self {
        let source = source.into();
        Self { digest: Sha1::from(&*source).digest().to_string(), source }
    }

    pub(super) fn command(&self, keys: &[Vec<u8>], arguments: &[&[u8]]) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    pub(super) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&*self.source);
        command
    }
}

/// The script that decides calls, composed of its parts in the order of their dependencies, those of the fast path first;
/// after a first part, if its commands do not declare their keys.
macro_rules! script_source {
    ($($first:literal)?) => {
        concat!(
            $(include_str!($first),)?
            include_str!("../../../../../lua/decide/entry.lua"),
            include_str!("../../../../../lua/decide/whole_cells.lua"),
            include_str!("../../../../../lua/decide/prelude.lua"),
            include_str!("../../../../../lua/decide/fixed_window.lua"),
            include_str!("../../../../../lua/decide/sliding_window.lua"),
            include_str!("../../../../../lua/decide/token_bucket.lua"),
            include_str!("../../../../../lua/decide/keys.lua"),
            include_str!("../../../../../lua/decide/fast_path.lua"),
            include_str!("../../../../../lua/decide/dispatch.lua"),
            include_str!("../../../../../lua/decide/reservations.lua"),
            include_str!("../../../../../lua/decide/single_budget.lua"),
            include_str!("../../../../../lua/decide/bans.lua"),
            include_str!("../../../../../lua/decide/packed_records.lua"),
            include_str!("../../../../../lua/decide/wide_window.lua"),
            include_str!("../../../../../lua/decide/segmented_cells.lua"),
            include_str!("../../../../../lua/decide/ban_records.lua"),
            include_str!("../../../../../lua/decide/loans.lua"),
            include_str!("../../../../../lua/decide/record_checks.lua"),
            include_str!("../../../../../lua/decide/queue.lua"),
            include_str!("../../../../../lua/decide/sliding_window_log.lua"),
            include_str!("../../../../../lua/decide/concurrency.lua"),
            include_str!("../../../../../lua/decide/decide.lua"),
        )
    };
}

/// The script of commands that declare their keys.
static DECLARED: LazyLock<Script> = LazyLock::new(|| Script::new(with_numbers(script_source!())));

/// The script of commands on the slots that one node serves.
static ACROSS_SLOTS: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_numbers(script_source!("../../../../../lua/decide/across_slots.lua"))));

/// The keys that one command may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandKeys {
    /// Declared keys of any hash tags: the server has no slots.
    #[default]
    NoSlots,
    /// Declared keys of one slot.
    OneSlot,
    /// Keys in arguments, of the slots that one node of a cluster serves.
    AnySlotOfNode,
}

/// A request that is repeated `times` times in a row, in one command.
///
/// More than once only if the request has one cell, of packed records each checked once or of one queue that it checks
/// once, charges each counter independently, and refunds nothing.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The request to repeat.
    pub request: &'a TagRequest,
    /// Number of repetitions, at least 1.
    pub times: u16,
    /// For each check, cell by cell, the tokens to charge ahead; empty for none. Only for a record that the request
    /// checks once.
    pub prefetches: &'a [Prefetch],
    /// For each check, cell by cell, the hits that were denied without a call since the last one; empty for none. Only for
    /// a check with a ban.
    pub reported: &'a [u16],
}

/// Outcomes in the order of the runs, with the server's error for a run that failed.
pub(crate) type Outcomes = Vec<Result<RunOutcome, RedisError>>;

/// The command that loads the script of commands with these keys.
pub(super) fn load(keys: CommandKeys) -> Cmd {
    keys.script().load()
}

/// A command that reads two keys of different slots, and decides nothing: fails unless the server permits that.
pub(super) fn probe_across_slots(key_prefix: &[u8], keys: [&CellKey; 2]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(&CommandKeys::AnySlotOfNode.script().digest).arg(0).arg("").arg("");
    for key in keys {
        command.arg([key_prefix, key.as_bytes()].concat());
    }
    command
}

impl CommandKeys {
    fn script(self) -> &'static Script {
        match self {
            Self::NoSlots | Self::OneSlot => &DECLARED,
            Self::AnySlotOfNode => &ACROSS_SLOTS,
        }
    }
}

/// A command that has to wait wherever a decision would, without deciding anything: it names an unknown script.
pub(super) fn probe() -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg("0".repeat(40)).arg(0);
    command
}

impl<'a> Run<'a> {
    /// The request, once, with no tokens charged ahead.
    pub const fn once(request: &'a TagRequest) -> Self {
        Self { request, times: 1, prefetches: &[], reported: &[] }
    }
}

/// Defines names, each with its meaning.
macro_rules! names {
    ($($(#[doc = $meaning:literal])+ $name:ident: $type:ty = $number:expr;)+) => {
        $($(#[doc = $meaning])+ const $name: $type = $number;)+

        const NAMES: &[(&str, u64, &str)] = &[$((stringify!($name), $name as u64, concat!($($meaning),+)),)+];
    };
}

names! {
    /// Bytes of an argument before its first check.
    CALL_BYTES: usize = 4;
    /// Bytes of a check.
    CHECK_BYTES: usize = 39;
    /// Bytes of the ban of a check, after the checks of its argument.
    BAN_BYTES: usize = 24;
    /// Bytes of the share of a check, after the bans of its argument.
    SHARE_BYTES: usize = 18;
    /// Bytes of the number of bans, and of that of shares.
    COUNT_BYTES: usize = 2;
    /// Bytes of an argument with nothing but one check.
    ONE_CHECK_BYTES: usize = CALL_BYTES + CHECK_BYTES;
    /// Bytes of an argument with nothing but one check and its ban.
    ONE_BANNED_CHECK_BYTES: usize = ONE_CHECK_BYTES + BAN_BYTES + COUNT_BYTES;
    /// Bytes of an argument with nothing but one check and its share.
    ONE_SHARED_CHECK_BYTES: usize = ONE_CHECK_BYTES + SHARE_BYTES + 2 * COUNT_BYTES;
    /// Added to the number of bans if shares precede it.
    HAS_SHARES: u16 = 1 << 15;

    /// Role of a check whose counter is charged independently, and counts what its algorithm counts.
    ROLE_INDEPENDENT: u8 = 0;
    /// Role of a check whose counter is charged independently, and counts passing hits only.
    ROLE_PASSING_ONLY: u8 = 3;
    /// Role of a check that blocks the others of its call when it is denied.
    ROLE_VETO: u8 = 1;
    /// Role of a check that does not block the others, but is not charged if another one does.
    ROLE_NO_VETO: u8 = 2;
    /// Role of the checks that block the others when all checks of this role are denied.
    ROLE_QUOTA: u8 = 4;
    /// Role of a check that blocks the others in any case.
    ROLE_ALWAYS_VETO: u8 = 5;
    /// Role of a check of a fixed window that blocks the others when it is denied, and is charged itself then.
    ROLE_VETO_COUNTED: u8 = 6;
    /// Added to the role of a check without a ban, if bans or shares follow the checks of its argument.
    ROLE_BEFORE_TAIL: u8 = 8;
    /// Role of an independent check of a counter that regions share.
    ROLE_SHARED: u8 = ROLE_BEFORE_TAIL + ROLE_PASSING_ONLY;
    /// Added to the role of a check beside others whose extra bytes are a bound, or whose bans have something to report.
    ROLE_BESIDE_SPECIAL: u8 = 16;
    /// Added to the role of a charge that counts in full, whatever is denied. The extra bytes are a bound.
    ROLE_OVERDRAWS: u8 = 32;
    /// Added to the role of any check of a limit that carries a debt. The extra bytes are its bound.
    ROLE_HAS_BOUND: u8 = 64;
    /// Added to the role of a check whose counter has bans.
    ROLE_HAS_BAN: u8 = 128;

    /// Bit of the first byte of a verdict: the hits pass.
    REPLY_ADMITTED: u8 = 1;
    /// Bit of the first byte of a verdict: the counter's ban follows.
    REPLY_HAS_BAN: u8 = 2;
    /// Bit of the first byte of a verdict: the limit of the region follows, since the counter has loans.
    REPLY_HAS_LOANS: u8 = 4;
    /// First byte of a verdict on a reservation under a known lease that does not hold its hits.
    REPLY_CONFLICT: u8 = 8;
    /// Bit of the first byte of a ban in a reply: it is active.
    REPLY_BAN_ACTIVE: u8 = 1;
    /// Bit of the first byte of a ban in a reply: it begins.
    REPLY_BAN_NEW: u8 = 2;

    /// Effect of a check on its ban: bans are counted and reported, and deny nothing.
    BAN_WATCH: u8 = 0;
    /// Effect of a check on its ban: a banned counter denies.
    BAN_ENFORCE: u8 = 1;
    /// Effect of a check on its ban: the ban ends, and its level is kept.
    BAN_LIFT: u8 = 2;
    /// Effect of a check on its ban: the ban ends, and its record is removed.
    BAN_FORGIVE: u8 = 3;

    /// Number of bad seconds in the record of a counter's bans that says that it is banned.
    BAN_BANNED: u32 = BANNED;
    /// Unit of the bad seconds in the third word of the record of a counter's bans.
    BAN_BAD_UNIT: u32 = 1 << BAD_BIT;
    /// Unit of the level in that word.
    BAN_LEVEL_UNIT: u32 = 1 << LEVEL_BIT;
    /// Unit of the last second with hits in that word.
    BAN_SECOND_UNIT: u32 = 1 << SECOND_BIT;
    /// Zero of the balance of denied and admitted hits in that word.
    BAN_BALANCE_ZERO: u32 = BALANCE_ZERO.unsigned_abs();
    /// Maximum of that balance, and of its opposite.
    BAN_MAX_BALANCE: u32 = MAX_BALANCE.unsigned_abs();

    /// Whole of which the share of a reservation is a part.
    RESERVATION_WHOLE: u32 = 1 << u16::BITS;

    /// Operation on a budget: hits are charged, refunded or read.
    BUDGET_CHARGE: u8 = 0;
    /// Operation on a budget: hits are reserved under a lease.
    BUDGET_RESERVE: u8 = 1;
    /// Operation on a budget: a lease is settled.
    BUDGET_SETTLE: u8 = 2;
    /// Operation on a budget: a lease is cancelled.
    BUDGET_CANCEL: u8 = 3;
    /// Unit of a lease's time to live in the second parameter of a budget, above its window.
    BUDGET_TTL_UNIT: u64 = 1 << TTL_BIT;
    /// Unit of the operation in the second parameter of a budget.
    BUDGET_OPERATION_UNIT: u64 = 1 << OPERATION_BIT;
    /// Unit of the bit in the second parameter of a budget by which leases without a known usage are charged.
    BUDGET_CHARGES_UNIT: u64 = 1 << CHARGES_BIT;

    /// Unit of the bound between two windows in the second parameter of windows of a calendar.
    CALENDAR_BOUND_UNIT: u64 = 1 << BOUND_BIT;
    /// Unit of their unit, a day to a year, in that parameter.
    CALENDAR_PERIOD_UNIT: u64 = 1 << UNIT_BIT;
    /// Unit of the length of the window before the bound in that parameter, above the length of the one after it.
    CALENDAR_LENGTH_UNIT: u64 = 1 << LENGTH_BIT;
    /// Seconds in which that parameter states lengths, a quarter of an hour.
    CALENDAR_QUARTER: u32 = QUARTER;
    /// Unit of the share of unused hits in the bound of a window that carries them, above the maximum debt.
    CARRY_SHARE_UNIT: u64 = 1 << DEBT_BITS;

    /// Unit of the second since which a sliding window has its length, in its second parameter.
    SLIDING_SINCE_UNIT: u64 = 1 << WINDOW_BITS;
    /// Seconds after which that second begins again at 0.
    SLIDING_SINCE_RANGE: u64 = 1 << SINCE_BITS;
    /// Maximum number of steps in which the previous window of a sliding window loses its weight.
    SLIDING_STEPS: u64 = MAX_STEPS;
    /// Unit of the size of a bucket in the second word of its state, above the ticks.
    BUCKET_SIZE_UNIT: u64 = 1 << SIZE_SHIFT;
    /// Ticks of a bucket in a microsecond.
    BUCKET_TICKS_PER_MICRO: u64 = TICKS_PER_MICRO;
    /// Ticks of a bucket in a millisecond.
    BUCKET_TICKS_PER_MILLI: u64 = TICKS_PER_MILLI;
    /// Ticks of a bucket in a second.
    BUCKET_TICKS_PER_SECOND: u64 = TICKS_PER_SECOND;
    /// Capacity of the smallest size of buckets in ticks; each further size has four times as much.
    BUCKET_MIN_SIZE: u64 = MIN_SIZE_TICKS;

    /// Bytes of a packed cell before the ids of its records.
    CELL_HEADER_BYTES: u8 = 7;
    /// Bytes of the id of a record.
    ID_BYTES: u8 = 6;
    /// Bytes of the state of a record.
    STATE_BYTES: u8 = 8;
    /// Bytes of the state of a record with three words of 32 bits.
    LARGE_STATE_BYTES: u8 = 12;
    /// Bytes of a cell of one record.
    ONE_RECORD_BYTES: u8 = CELL_HEADER_BYTES + ID_BYTES + STATE_BYTES;
    /// Format byte of a packed cell.
    PACKED_FORMAT: u8 = 1;
    /// Format byte of a segmented cell.
    SEGMENTED_FORMAT: u8 = 2;
    /// Records of a packed cell: with more, it becomes a segmented one.
    MAX_PACKED_RECORDS: u8 = 128;
    /// Format byte and number of records of a cell of one record, in three bytes.
    ONE_RECORD_HEAD: u16 = 1 << 8 | PACKED_FORMAT as u16;
    /// Unit of the last byte of a record's id, as a number.
    ID_KIND_UNIT: u64 = 1 << 40;
    /// Number of kinds: the kind of a record is the last byte of its id modulo it.
    KINDS: u8 = 16;

    /// The first kind of records with three words.
    KIND_OF_THREE_WORDS: u8 = 8;
}

/// All names, with their numbers and meanings: those above, and one of each kind of records, as `KIND_FIXED_WINDOW`.
fn all_names() -> impl Iterator<Item = (String, u64, String)> {
    let mut kinds = RecordKind::ALL.to_vec();
    kinds.sort_unstable();
    let kinds = kinds.into_iter().map(|kind| {
        let words = format!("{kind:?}");
        let upper = words.chars().flat_map(|character| {
            let separator = character.is_uppercase().then_some('_');
            separator.into_iter().chain([character.to_ascii_uppercase()])
        });
        ("KIND".chars().chain(upper).collect(), kind as u64, kind.meaning().into())
    });
    NAMES.iter().map(|&(name, number, meaning)| (name.into(), number, meaning.into())).chain(kinds)
}

/// Replaces the names in the source of a script by their numbers.
pub(super) fn with_numbers(source: &str) -> String {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names: Vec<_> = all_names().collect();
    let mut script = String::with_capacity(source.len());
    // Each piece is a word, if any, and the character after it.
    for piece in source.split_inclusive(|character| !is_word(character)) {
        let word = piece.trim_end_matches(|character| !is_word(character));
        match names.iter().find(|(name, ..)| name == word) {
            Some((_, number, _)) => {
                script.push_str(&number.to_string());
                script.push_str(piece.strip_prefix(word).unwrap_or_default());
            }
            None => script.push_str(piece),
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_as_whole_words() {
        let source = "if kind == KIND_BAN then X_KIND_BAN = KIND_BANS[-KIND_LENT] end";
        assert_eq!(with_numbers(source), "if kind == 11 then X_KIND_BAN = KIND_BANS[-5] end");
    }

    #[test]
    fn the_page_on_the_scripts_has_all_names() {
        let rows = all_names().map(|(name, number, meaning)| {
            let meaning = meaning.trim().trim_end_matches('.');
            format!("| `{name}` | {number} | {meaning} |\n")
        });
        let table: String = rows.collect();
        let page = include_str!("../../../../../docs/internals/redis-protocol-and-lua.md");
        assert!(page.contains(&table), "expected in docs/internals/redis-protocol-and-lua.md:\n{table}");
    }
}
