//! Scripts, and the command and reply of the one that decides; `lua/decide/entry.lua` documents both.

mod names;
mod pack;
mod reply;

use std::{borrow::Cow, sync::LazyLock};

use ::redis::{Cmd, RedisError, cmd};
use sha1_smol::Sha1;
use tollgate_core::algorithm::Prefetch;

use self::names::with_numbers;
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
    pub fn new(source: &'static str) -> Self {
        Self { source: source.into(), digest: Sha1::from(source).digest().to_string() }
    }

    /// A script of parts that use the [names] of numbers.
    pub(super) fn composed(source: &str) -> Self {
        let source = with_numbers(source);
        Self { digest: Sha1::from(&source).digest().to_string(), source: source.into() }
    }

    /// SHA-1 digest that names the script in Redis.
    pub(super) fn digest(&self) -> &str {
        &self.digest
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
static DECLARED: LazyLock<Script> = LazyLock::new(|| Script::composed(script_source!()));

/// The script of commands on the slots that one node serves.
static ACROSS_SLOTS: LazyLock<Script> =
    LazyLock::new(|| Script::composed(script_source!("../../../../../lua/decide/across_slots.lua")));

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
    command.arg(CommandKeys::AnySlotOfNode.script().digest()).arg(0).arg("").arg("");
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
