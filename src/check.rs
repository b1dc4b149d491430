//! `tollgate check`: says whether a configuration is good.

use std::io::{self, Write};

use crate::{
    config::{self, Loaded},
    settings::CheckFlags,
};

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
            writeln!(out, "{}", summary(&loaded))?;
            Ok(true)
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}

/// What is said about a good configuration: its warnings, and the summary.
pub(crate) fn report(loaded: &Loaded) -> String {
    match loaded.warnings.problems() {
        [] => summary(loaded),
        _ => format!("{}\n{}", loaded.warnings, summary(loaded)),
    }
}

fn summary(loaded: &Loaded) -> String {
    let (domains, rules) = (loaded.rules.domains().count(), loaded.rules.rules().count());
    format!("all rate limit configs ok: domains {domains}, rules {rules}")
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, path::Path};

    use super::*;
    use crate::settings::{self, Command};

    fn check(directory: &Path) -> (bool, String, String) {
        let words = ["tollgate".into(), "check".into(), OsString::from(directory)];
        let Ok(Command::Check(flags)) = settings::parse(words, []) else { panic!("no check") };
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let is_good = run(&flags, &mut out, &mut errors).expect("written");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (is_good, text(out), text(errors))
    }

    #[test]
    fn a_good_configuration_is_summed_up_and_a_bad_one_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.yaml");
        std::fs::write(&file, "domain: web\ndescriptors: []\n").expect("written");
        let (is_good, out, _) = check(directory.path());
        assert!(is_good && out.starts_with("all rate limit configs ok: "), "{out}");

        std::fs::write(&file, "domain: [").expect("written");
        let (is_good, out, errors) = check(directory.path());
        assert!(!is_good && out.is_empty() && !errors.is_empty(), "{out} {errors}");
    }
}
