//! `tollgate check`: says whether a configuration is good.

use std::io::{self, Write};

use crate::{config, settings::CheckFlags};

/// Reads the configuration and writes what is to be said about it: problems and warnings to `errors`, the
/// summary of a good one to `out`. Answers whether it is good.
///
/// # Errors
/// When nobody reads the output.
pub fn run(flags: &CheckFlags, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    match config::load(&flags.directory, &flags.options()) {
        Ok(loaded) => {
            if !loaded.warnings.problems().is_empty() {
                writeln!(errors, "{}", loaded.warnings)?;
            }
            let (domains, rules) = (loaded.rules.domains().count(), loaded.rules.rules().count());
            writeln!(out, "all rate limit configs ok: {domains} domains, {rules} rules")?;
            Ok(true)
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}
