//! `tollgate check`, `explain` and `schema`: rules in files, without a server.

use std::io::{self, Write};
use std::path::Path;

use tollgate_core::descriptor::{Descriptor, Entry, Hits};
use tollgate_flags::DescriptorArgument;
use tollgate_limiter::explain;
use tollgate_rules::config::{self, Loaded, Options, OverlaySlot};
use tollgate_rules::{Overridden, TableSize};

use crate::flags::{CheckFlags, ExplainFlags};

/// Loads the configuration and writes problems and warnings to `errors`, and the summary of a valid one to `out`.
/// Returns whether it is valid.
///
/// # Errors
/// If the output can't be written.
pub(crate) fn check(flags: &CheckFlags, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    let regions = match table_size(flags) {
        Ok(size) => size,
        Err(error) => {
            writeln!(errors, "{error}")?;
            return Ok(false);
        }
    };
    let options = Options { regions, ..flags.reading.options() };
    let Some(loaded) = load(&flags.directory, &options, errors)? else { return Ok(false) };
    if !loaded.warnings.is_empty() {
        writeln!(errors, "{}", loaded.warnings)?;
    }
    writeln!(out, "{}", loaded.summary())?;
    Ok(true)
}

/// Size of the region table, if one is given.
#[cfg(feature = "regions")]
fn table_size(flags: &CheckFlags) -> Result<TableSize, String> {
    flags.regions.as_deref().map_or(Ok(TableSize::Unknown), tollgate_regions::size_of)
}

#[cfg(not(feature = "regions"))]
fn table_size(_: &CheckFlags) -> Result<TableSize, String> {
    Ok(TableSize::Unknown)
}

/// Loads the configuration and writes the rules that the request matches to `out`, or the problems of an invalid
/// configuration to `errors`. Returns whether the configuration is valid. Charges nothing.
///
/// # Errors
/// If the output can't be written.
pub(crate) fn explain(
    flags: &ExplainFlags,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<bool> {
    let options = flags.reading.options();
    let Some(loaded) = load(&flags.config, &options, errors)? else { return Ok(false) };
    let requests: Vec<Descriptor<'_>> = flags.descriptors.iter().map(request).collect();
    write!(out, "{}", explain::explain(&loaded.rules, &Overridden::default(), &flags.domain, &requests))?;
    Ok(true)
}

/// Prints the JSON Schema of the rules.
///
/// # Errors
/// The output is closed.
pub(crate) fn schema(out: &mut impl Write) -> io::Result<bool> {
    writeln!(out, "{:#}", config::schema::schema())?;
    Ok(true)
}

/// Loads the configuration, or reports its problems.
fn load(directory: &Path, options: &Options, errors: &mut impl Write) -> io::Result<Option<Loaded>> {
    let load_overlay = |slot: &OverlaySlot| slot.load(tollgate_directory::read(slot.directory())?);
    match options.overlay.map_or(Ok(()), load_overlay).and_then(|()| config::load(directory, options)) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(None)
        }
    }
}

fn request(pairs: &DescriptorArgument) -> Descriptor<'_> {
    let entries = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
    Descriptor { entries, limit: None, hits: Hits::Peek }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::{settings, temporary_file};

    fn run(directory: &Path) -> (bool, String, String) {
        run_with(&[], directory)
    }

    fn run_with(flags: &[&str], directory: &Path) -> (bool, String, String) {
        let flags: CheckFlags = settings(&format!("{} {}", flags.join(" "), directory.display()));
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let is_good = check(&flags, &mut out, &mut errors).expect("written");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (is_good, text(out), text(errors))
    }

    #[test]
    fn a_good_configuration_is_summed_up_and_a_bad_one_reported() {
        let (directory, file) = temporary_file("rules.yaml");
        std::fs::write(&file, "domain: web\ndescriptors: []\n").expect("written");
        let (is_good, out, _) = run(directory.path());
        assert!(is_good && out.starts_with("all rate limit configs ok: "), "{out}");

        std::fs::write(&file, "domain: [").expect("written");
        let (is_good, out, errors) = run(directory.path());
        assert!(!is_good && out.is_empty() && !errors.is_empty(), "{out} {errors}");
    }

    #[cfg(feature = "regions")]
    #[test]
    fn limits_are_checked_against_a_region_table_if_one_is_given() {
        let directory = tempfile::tempdir().expect("a directory");
        let (rules, table) = (directory.path().join("rules"), directory.path().join("regions.yaml"));
        std::fs::create_dir(&rules).expect("created");
        let text = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 9, scope: global}}\n";
        std::fs::write(rules.join("rules.yaml"), text).expect("written");
        let regions =
            "generation: 1\nregions: {us: {address: 'https://us:1'}, eu: {address: 'https://eu:1'}}";
        std::fs::write(&table, regions).expect("written");
        let flag = format!("--regions={}", table.display());
        let (is_good, _, errors) = run_with(&[&flag], &rules);
        assert!(is_good && errors.contains("shares of 4 hits, for 2 regions"), "{errors}");
        assert!(run(&rules).2.is_empty());
        std::fs::write(&table, "generation: 0").expect("written");
        let (is_good, _, errors) = run_with(&[&flag], &rules);
        assert!(!is_good && errors.contains("regions.yaml:1: generation: is 0"), "{errors}");
    }

    #[test]
    fn an_empty_directory_is_a_warning_and_an_error_if_strict_unless_it_is_allowed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (is_good, _, errors) = run(directory.path());
        assert!(is_good && errors.contains("warning: no files, so every request passes"), "{errors}");
        let (is_good, _, errors) = run_with(&["--strict"], directory.path());
        assert!(!is_good && errors.contains("no files, so every request passes"), "{errors}");
        let (is_good, _, errors) = run_with(&["--strict", "--allow-empty"], directory.path());
        assert!(is_good && errors.is_empty(), "{errors}");
    }

    #[test]
    fn a_single_file_is_checked_by_its_path() {
        let (_directory, file) = temporary_file("rules.yaml");
        std::fs::write(&file, "domain: web\ndescriptors: [{key: k}]\n").expect("written");
        std::fs::write(file.with_file_name("other.yaml"), "domain: [").expect("written");
        let (is_good, out, errors) = run(&file);
        assert!(is_good && out.contains("domains 1"), "{errors}");
        std::fs::write(&file, "domain: web\ndescriptors: [{kye: k}]\n").expect("written");
        let (is_good, _, errors) = run(&file);
        assert!(!is_good && errors.contains("rules.yaml:2: descriptors[0].kye: unknown key"), "{errors}");
        let missing = file.with_file_name("missing.yaml");
        assert!(run(&missing).2.contains(&missing.display().to_string()));
    }
}
