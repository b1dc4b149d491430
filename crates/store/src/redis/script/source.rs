//! Sources of scripts, and the commands that load and run them.

use std::borrow::Cow;

use ::redis::{Cmd, cmd};
use sha1_smol::Sha1;

use super::names::with_numbers;

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

    /// A script of parts that use the [names](super::names) of numbers.
    pub(in crate::redis) fn composed(source: &str) -> Self {
        let source = with_numbers(source);
        Self { digest: Sha1::from(&source).digest().to_string(), source: source.into() }
    }

    /// SHA-1 digest that names the script in Redis.
    pub(in crate::redis) fn digest(&self) -> &str {
        &self.digest
    }

    pub(in crate::redis) fn command(&self, keys: &[Vec<u8>], arguments: &[&[u8]]) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    pub(in crate::redis) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&*self.source);
        command
    }
}
