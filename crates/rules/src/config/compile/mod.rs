//! Compiler from [`raw`](super::raw) files to [`Rules`], which collects all problems.
//!
//! An invalid part is reported and omitted, and the rest is compiled nevertheless, so that one run finds all problems.

mod ban;
mod descriptor;
mod domain;
mod tree_level;
mod mappings;
mod limit;
mod limit_keys;
mod overdraft;
mod overriding;
mod parameters;
mod pattern;
mod reporter;
mod rollout;
mod scope;
mod several;
mod shedding;

use std::{collections::BTreeMap, fmt, mem, rc::Rc};

pub use self::overriding::override_rule;
use self::{domain::DomainBuilder, limit::Defaults, pattern::doubt, reporter::Reporter, tree_level::Budget};
use super::problem::{Path, Problems};
use super::raw::{Field, RawFile};
use super::{Options, yaml::Position};
use crate::Rules;

/// Compiles `files`, which are sorted by name.
pub(super) fn compile(files: Vec<RawFile>, options: Options, problems: &mut Problems) -> Rules {
    let mut domains: BTreeMap<Rc<str>, DomainBuilder> = BTreeMap::new();
    let mut budget = Budget::default();
    for mut file in files {
        let descriptors = mem::take(&mut file.descriptors);
        let file = &file;
        let name = domain_of(file, problems);
        let mut reporter = Reporter { file: &file.name, problems };
        let defaults = Defaults::read(&mut reporter, &file.defaults);
        // A file without a valid domain is checked nevertheless.
        let mut discarded;
        let domain = match &name {
            Some(name) if may_merge(domains.get(name), file, options, problems) => domains
                .entry(name.clone())
                .or_insert_with(|| DomainBuilder::new(name.clone(), file.name.clone())),
            _ => {
                discarded = DomainBuilder::new(name.unwrap_or_default(), file.name.clone());
                &mut discarded
            }
        };
        domain.set_default_algorithm(file, defaults.algorithm, problems);
        domain.set_charging(file, problems);
        domain.set_default_sync(&file.name, defaults.sync);
        let default_on_store_error = defaults.on_store_error.map(|stated| stated.value);
        domain.default_on_store_error = domain.default_on_store_error.or(default_on_store_error);
        let reporter = Reporter { file: &file.name, problems };
        Compiler { reporter, defaults, domain, budget: &mut budget, options }.descriptors(descriptors);
    }
    let domains = domains.into_values().map(|mut domain| {
        if options.stop_when_denied {
            domain.stop_when_denied();
        }
        domain.finish(problems, &mut budget)
    });
    Rules::new(domains)
}

/// Name of the file's domain; `None` if it is invalid.
fn domain_of(file: &RawFile, problems: &mut Problems) -> Option<Rc<str>> {
    let at = match &file.domain {
        Field::Stated(domain) if !domain.value.is_empty() => {
            if let Some(doubt) = doubt(&domain.value) {
                problems.warning(&file.name, domain.at, Path::Root.key("domain"), doubt);
            }
            return Some(domain.value.clone());
        }
        Field::Stated(domain) => domain.at,
        Field::Absent => Position::WHOLE,
        Field::Invalid => return None,
    };
    let message =
        "is missing or empty; expected the name of the domain that the descriptors of the file belong to";
    problems.error(&file.name, at, Path::Root.key("domain"), message);
    None
}

/// Whether the file may add to its domain, which other files may have stated before.
fn may_merge(
    known: Option<&DomainBuilder>,
    file: &RawFile,
    options: Options,
    problems: &mut Problems,
) -> bool {
    let Some(known) = known.filter(|_| !options.merge_domains) else { return true };
    let at = file.domain.stated().map_or(Position::WHOLE, |domain| domain.at);
    let message = format!(
        "the domain `{}` is a duplicate of that in {}; expected one file for each domain, unless domains are merged",
        known.name, known.first_file
    );
    problems.error(&file.name, at, Path::Root.key("domain"), message);
    false
}

/// Compiles one file's descriptors into its domain.
struct Compiler<'a> {
    reporter: Reporter<'a>,
    defaults: Defaults,
    domain: &'a mut DomainBuilder,
    budget: &'a mut Budget,
    options: Options,
}

/// Position in one of the files.
#[derive(Clone, Debug)]
struct Origin {
    file: Rc<str>,
    at: Position,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Position::WHOLE => f.write_str(&self.file),
            at => write!(f, "{}:{}", self.file, at.line()),
        }
    }
}

/// Position and path in one of the files, for a later report.
#[derive(Clone, Debug)]
struct Site {
    origin: Origin,
    path: String,
}

impl Site {
    fn report(&self, problems: &mut Problems, message: impl fmt::Display) {
        problems.error(&self.origin.file, self.origin.at, &self.path, message);
    }

    fn warn(&self, problems: &mut Problems, message: impl fmt::Display) {
        problems.warning(&self.origin.file, self.origin.at, &self.path, message);
    }
}
