//! `tollgate explain`: prints which rules a request matches, and why.

use std::io::{self, Write};

use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_limiter::explain::explain;
use tollgate_rules::{Overridden, config};

use crate::settings::{DescriptorArgument, ExplainFlags};

/// Loads the configuration and writes the rules that the request matches to `out`, or the problems of an invalid
/// configuration to `errors`. Returns whether the configuration is valid. Charges nothing.
///
/// # Errors
/// If the output can't be written.
pub fn run(flags: &ExplainFlags, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let options = flags.options();
    let overlay = config::load_overlay(flags.overlay(), &options);
    match overlay.and_then(|()| config::load(&flags.config, &options)) {
        Ok(loaded) => {
            let requests: Vec<Descriptor<'_>> = flags.descriptors.iter().map(request).collect();
            write!(out, "{}", explain(&loaded.rules, &Overridden::default(), &flags.domain, &requests))?;
            Ok(true)
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}

fn request(DescriptorArgument(pairs): &DescriptorArgument) -> Descriptor<'_> {
    let entries = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
    Descriptor { entries, limit: None, hits: Hits::Peek }
}
