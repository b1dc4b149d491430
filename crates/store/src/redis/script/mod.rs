//! Command and reply of the decision script; `lua/decide/entry.lua` documents both.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod bans;
mod pack;
mod reply;

use std::sync::LazyLock;

use ::redis::{Cmd, RedisError, cmd};
use sha1_smol::Sha1;
use smallvec::SmallVec;
use tollgate_core::algorithm::Prefetch;

pub(super) use self::{
    pack::command,
    reply::{check_error, read_replies},
};
use crate::request::{TagRequest, Verdicts};

/// The script, composed of its parts in the order of their dependencies; the parts of the fast path first.
const SOURCE: &str = concat!(
    include_str!("../../../../../lua/decide/prelude.lua"),
    include_str!("../../../../../lua/decide/entry.lua"),
    include_str!("../../../../../lua/decide/fixed_window.lua"),
    include_str!("../../../../../lua/decide/sliding_window.lua"),
    include_str!("../../../../../lua/decide/token_bucket.lua"),
    include_str!("../../../../../lua/decide/keys.lua"),
    include_str!("../../../../../lua/decide/fast_path.lua"),
    include_str!("../../../../../lua/decide/dispatch.lua"),
    include_str!("../../../../../lua/decide/bans.lua"),
    include_str!("../../../../../lua/decide/packed_records.lua"),
    include_str!("../../../../../lua/decide/segmented_cells.lua"),
    include_str!("../../../../../lua/decide/ban_records.lua"),
    include_str!("../../../../../lua/decide/queue.lua"),
    include_str!("../../../../../lua/decide/sliding_window_log.lua"),
    include_str!("../../../../../lua/decide/concurrency.lua"),
    include_str!("../../../../../lua/decide/decide.lua"),
);

/// SHA-1 digest that names the script in Redis.
static DIGEST: LazyLock<String> = LazyLock::new(|| Sha1::from(SOURCE).digest().to_string());

/// A request that is repeated `times` times in a row, in one command.
///
/// More than once only if the request has one cell, of packed records each checked once, charges each counter
/// independently, and refunds nothing.
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

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The verdicts of each repetition, in order; tokens charged ahead are not included in them.
    pub verdicts: SmallVec<[Verdicts; 1]>,
    /// For each check, cell by cell, the number of tokens charged ahead; empty if none were requested.
    pub reserved: SmallVec<[u32; 2]>,
}

/// Outcomes in the order of the runs, with the server's error for a run that failed.
pub(super) type Outcomes = Vec<Result<RunOutcome, RedisError>>;

/// The command that loads the script.
pub(super) fn load() -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(SOURCE);
    command
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
