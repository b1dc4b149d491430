//! The script's command and its reply; `lua/decide/entry.lua` documents both.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod pack;
mod reply;

use std::sync::LazyLock;

use ::redis::{Cmd, RedisError, cmd};
use sha1_smol::Sha1;
use smallvec::SmallVec;

pub(super) use self::{
    pack::command,
    reply::{check_error, read_replies},
};
use crate::request::{TagRequest, Verdicts};
use tollgate_core::algorithm::Prefetch;

/// The script, composed of its parts in the order in which they need each other; first what the usual case needs.
const SOURCE: &str = concat!(
    include_str!("../../../../../lua/decide/prelude.lua"),
    include_str!("../../../../../lua/decide/entry.lua"),
    include_str!("../../../../../lua/decide/fixed_window.lua"),
    include_str!("../../../../../lua/decide/sliding_window.lua"),
    include_str!("../../../../../lua/decide/token_bucket.lua"),
    include_str!("../../../../../lua/decide/keys.lua"),
    include_str!("../../../../../lua/decide/fast_path.lua"),
    include_str!("../../../../../lua/decide/dispatch.lua"),
    include_str!("../../../../../lua/decide/packed_records.lua"),
    include_str!("../../../../../lua/decide/queue.lua"),
    include_str!("../../../../../lua/decide/sliding_window_log.lua"),
    include_str!("../../../../../lua/decide/concurrency.lua"),
    include_str!("../../../../../lua/decide/decide.lua"),
);

/// The name under which Redis knows the script.
static DIGEST: LazyLock<String> = LazyLock::new(|| Sha1::from(SOURCE).digest().to_string());

/// A call that is made so many times in a row, in one command.
///
/// More than once only where the call has one cell, of packed records none of which is asked twice, charges each
/// counter for itself, and gives nothing back.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What is asked each time.
    pub request: &'a TagRequest,
    /// How often; at least once.
    pub times: u16,
    /// For each ask, cell by cell, what is wished beside it; empty where nothing is. Only for a record that the call
    /// asks once.
    pub prefetches: &'a [Prefetch],
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// What the call came to each time, in order; that something was reserved beside it is not told there.
    pub verdicts: SmallVec<[Verdicts; 1]>,
    /// For each ask, cell by cell, how many tokens are reserved; empty where nothing was wished.
    pub reserved: SmallVec<[u32; 2]>,
}

/// Outcomes in the order of the runs; of a run that the server refused, its error.
pub(super) type Outcomes = Vec<Result<RunOutcome, RedisError>>;

/// The command that makes the script known.
pub(super) fn load() -> Cmd {
    let mut command = cmd("SCRIPT");
    command.arg("LOAD").arg(SOURCE);
    command
}

/// A command that waits wherever one that decides calls would, and decides none: it names a script that there is not.
pub(super) fn probe() -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg("0".repeat(40)).arg(0);
    command
}

impl<'a> Run<'a> {
    /// The call, made once, with no wishes.
    pub const fn once(request: &'a TagRequest) -> Self {
        Self { request, times: 1, prefetches: &[] }
    }
}
