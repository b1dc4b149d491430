//! Files that are laid over the rules of another source: over those that a control plane pushes, or that others generate.
//!
//! A file has the shape of a file of rules, with patterns as its domain, keys and values. Each of its keys replaces that key
//! of the limits that its path matches. The files are read with every compilation, since their trees cannot be shared by
//! threads.

use std::path::{Path as FilePath, PathBuf};
use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use arc_swap::ArcSwapOption;
use tollgate_directory::{Fingerprint, SourceFiles};

use super::{DescriptorPattern, Identity, KEYS_OF_LIMITS, OTHER_KEYS, TextPattern, default_algorithm, fill};
use crate::config::problem::{Path, Problems};
use crate::config::raw::{Field, RawDescriptor, RawFile, RawRateLimit, Stated};
use crate::config::{LoadError, reader, report_unread, vocabulary::Mapping as _, yaml::Position};

/// Maximum number of descriptors in an overlay.
const MAX_PATTERNS: usize = 1_000;
/// Maximum number of comparisons of a pattern with a descriptor: some seconds.
const MAX_COMPARISONS: usize = 20_000_000;

/// Files of an overlay, valid by themselves.
#[derive(Debug)]
pub struct Overlay {
    directory: String,
    files: SourceFiles,
    /// Fingerprint of the files.
    pub fingerprint: Fingerprint,
    /// Whether its files state nothing.
    is_empty: bool,
}

/// The active overlay of a process, and the directory of its files.
#[derive(Debug)]
pub struct OverlaySlot {
    directory: PathBuf,
    active: ArcSwapOption<Overlay>,
}

/// Result of laying an overlay over rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Fingerprint of the overlay.
    pub fingerprint: Fingerprint,
    /// Patterns with keys.
    pub patterns: usize,
    /// Patterns that match nothing.
    pub unmatched: usize,
}

impl OverlaySlot {
    /// Returns an empty slot for the rest of the process, which options can hold.
    pub fn leaked(directory: PathBuf) -> &'static Self {
        Box::leak(Box::new(Self { directory, active: ArcSwapOption::empty() }))
    }

    /// The directory of the overlay's files.
    pub fn directory(&self) -> &FilePath {
        &self.directory
    }

    /// Checks files that were read from the directory. No files are valid, and change nothing.
    ///
    /// # Errors
    /// [`LoadError`] with all problems that do not depend on the rules.
    pub fn check(&self, files: SourceFiles) -> Result<Overlay, LoadError> {
        let directory = self.directory.display().to_string();
        let fingerprint = files.fingerprint(false);
        let mut overlay = Overlay { directory, files, fingerprint, is_empty: false };
        let mut problems = Problems::new(false);
        let states = |file: &RawFile| {
            let has_defaults = file.defaults.stated_keys().next().is_some();
            has_defaults || file.atomic.is_present() || !file.descriptors.is_empty()
        };
        overlay.is_empty = !overlay.read(&mut problems).iter().any(states);
        match problems.finish() {
            Ok(_) => Ok(overlay),
            Err(report) => Err(LoadError::Invalid { report, fingerprint }),
        }
    }

    /// Checks files as [`check`](Self::check) does, and sets them as the overlay of later compilations.
    ///
    /// # Errors
    /// [`LoadError`] with all problems that do not depend on the rules.
    pub fn load(&self, files: SourceFiles) -> Result<(), LoadError> {
        self.set(self.check(files)?);
        Ok(())
    }

    /// Sets the overlay of later compilations.
    pub fn set(&self, overlay: Overlay) {
        self.active.store(Some(Arc::new(overlay)));
    }

    /// The active overlay, if one was loaded.
    pub fn get(&self) -> Option<Arc<Overlay>> {
        self.active.load_full()
    }
}

impl PartialEq for OverlaySlot {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for OverlaySlot {}

impl Overlay {
    /// Whether it states nothing where `active` does, and its directory has no file that permits that.
    pub fn empties(&self, active: &Self) -> bool {
        self.is_empty && !active.is_empty && !self.files.allow_empty()
    }

    /// Reads and checks the files.
    fn read(&self, problems: &mut Problems) -> Vec<RawFile> {
        report_unread(&self.files, problems);
        let mut files = Vec::new();
        let mut patterns = 0_usize;
        for (name, content) in self.files.readable() {
            let name: Rc<str> = format!("{}/{name}", self.directory.trim_end_matches('/')).into();
            let Some(layer) = problems.add_layer(name.clone()) else { break };
            let Some(file) = reader::read(&name, content, layer, problems) else { continue };
            if matches!(file.domain, Field::Absent) {
                let message = "is missing; expected the domain of the rules, or a pattern such as `*`";
                problems.error(&file.name, Position::WHOLE, Path::Root.key("domain"), message);
            }
            check_descriptors(&file.name, &file.descriptors, &Path::Root, &mut patterns, problems);
            files.push(file);
        }
        if patterns > MAX_PATTERNS {
            let message = format!("{patterns} descriptors; expected at most {MAX_PATTERNS}");
            problems.error(&self.directory, Position::WHOLE, Path::Root, message);
        }
        files
    }

    /// Lays the overlay over files.
    pub(in crate::config) fn lay(&self, base: &mut [RawFile], problems: &mut Problems) -> Laid {
        let mut laid = Laid { fingerprint: self.fingerprint, patterns: 0, unmatched: 0 };
        let mut comparisons = 0;
        for file in self.read(problems) {
            if problems.is_full() {
                break;
            }
            let (patterns, unmatched) = lay_file(&file, base, &mut comparisons, problems);
            laid.patterns = laid.patterns.saturating_add(patterns);
            laid.unmatched = laid.unmatched.saturating_add(unmatched);
        }
        if comparisons > MAX_COMPARISONS {
            let message =
                "compares its patterns with too many descriptors; expected fewer patterns, or fewer `**`";
            problems.error(&self.directory, Position::WHOLE, Path::Root, message);
        }
        laid
    }
}

fn check_descriptors(
    file: &str,
    descriptors: &[Box<RawDescriptor>],
    parent: &Path<'_>,
    count: &mut usize,
    problems: &mut Problems,
) {
    let list = parent.key("descriptors");
    for raw in descriptors {
        *count = count.saturating_add(1);
        let path = list.item(raw.index);
        if matches!(raw.key, Field::Absent) {
            let message =
                "has no `key`; expected the key of the descriptors to match, or a pattern such as `*`";
            problems.error(file, raw.at, path, message);
        }
        for (key, field) in [("regex", &raw.regex), ("cidr", &raw.cidr)] {
            if let Some(stated) = field.stated() {
                let message =
                    "cannot be laid over rules; expected `key` and `value`, which may be patterns with `*`";
                problems.error(file, stated.at, path.key(key), message);
            }
        }
        check_descriptors(file, &raw.descriptors, &path, count, problems);
    }
}

/// Lays one file of an overlay; returns the numbers of its patterns and of those that match nothing.
fn lay_file(
    over: &RawFile,
    base: &mut [RawFile],
    comparisons: &mut usize,
    problems: &mut Problems,
) -> (usize, usize) {
    let patterns = DescriptorPattern::of_list(&over.descriptors, "", &mut 0);
    let domain = TextPattern::new(over.domain.text());
    let mut laying = Laying { matched: BTreeSet::new(), default_algorithm: "".into(), comparisons };
    let mut is_matched = false;
    for file in base.iter_mut().filter(|file| domain.matches(file.domain.text())) {
        is_matched = true;
        lay_file_keys(over, file);
        laying.default_algorithm = default_algorithm(&file.defaults);
        laying.level(&patterns, &mut file.descriptors);
    }
    let matched = laying.matched;
    let mut effective = Vec::new();
    collect(&patterns, &mut effective);
    let unmatched: Vec<_> = effective.iter().filter(|pattern| !matched.contains(&pattern.index)).collect();
    if !is_matched {
        let at = over.domain.stated().map_or(Position::WHOLE, |domain| domain.at);
        let message = format!("`{}` matches no domain of the rules", over.domain.text());
        problems.lenient_warning(&over.name, at, "domain", message);
        return (effective.len(), effective.len().max(1));
    }
    for pattern in &unmatched {
        let message = "matches no limit of the rules, so its keys have no effect";
        problems.lenient_warning(&over.name, pattern.raw.at, &pattern.path, message);
    }
    (effective.len(), unmatched.len())
}

/// Lays the keys of a file's root.
fn lay_file_keys(over: &RawFile, file: &mut RawFile) {
    replace(&mut file.hash_tag, &over.hash_tag);
    replace(&mut file.atomic, &over.atomic);
    let mut defaults = over.defaults.clone();
    let algorithm = default_algorithm(&file.defaults);
    fill(&mut defaults, &file.defaults, &algorithm, Identity::Kept);
    file.defaults = defaults;
}

/// The patterns that have keys to lay.
fn collect<'p, 'a>(patterns: &'p [DescriptorPattern<'a>], into: &mut Vec<&'p DescriptorPattern<'a>>) {
    for pattern in patterns {
        if pattern.has_keys() {
            into.push(pattern);
        }
        collect(&pattern.children, into);
    }
}

struct Laying<'c> {
    /// Indices of patterns that matched a limit.
    matched: BTreeSet<usize>,
    default_algorithm: Rc<str>,
    comparisons: &'c mut usize,
}

impl Laying<'_> {
    fn level(&mut self, patterns: &[DescriptorPattern<'_>], base: &mut [Box<RawDescriptor>]) {
        for pattern in patterns {
            if pattern.is_any_depth() {
                self.level(&pattern.children, base);
            }
            for descriptor in &mut *base {
                *self.comparisons = self.comparisons.saturating_add(1);
                if *self.comparisons > MAX_COMPARISONS {
                    return;
                }
                if pattern.is_any_depth() {
                    self.level(std::slice::from_ref(pattern), &mut descriptor.descriptors);
                }
                if pattern.matches(descriptor) {
                    self.merge(pattern, descriptor);
                    if !pattern.is_any_depth() {
                        self.level(&pattern.children, &mut descriptor.descriptors);
                    }
                }
            }
        }
    }

    /// Lays the keys of a pattern over a descriptor that it matches.
    fn merge(&mut self, pattern: &DescriptorPattern<'_>, descriptor: &mut RawDescriptor) {
        let over = pattern.raw;
        let mut is_laid = self.lay_limits(over, descriptor);
        let has_limit = descriptor.is_limited() || descriptor.load_shedding.is_present();
        descriptor.copy_keys(over, |key, presence| {
            let is_effective = (has_limit && KEYS_OF_LIMITS.contains(&key)) || OTHER_KEYS.contains(&key);
            is_laid |= is_effective && presence.there;
            is_effective && presence.there
        });
        if is_laid {
            self.matched.insert(pattern.index);
        }
    }

    /// Lays the limits of a descriptor over those of another one; returns whether it did. A list takes their place, and the
    /// keys of one limit apply to each of several.
    fn lay_limits(&self, over: &RawDescriptor, descriptor: &mut RawDescriptor) -> bool {
        if descriptor.is_limited() && replace(&mut descriptor.rate_limits, &over.rate_limits) {
            descriptor.rate_limit = over.rate_limit.clone();
            return true;
        }
        let Field::Stated(over) = &over.rate_limit else { return false };
        let mut is_laid = false;
        if let Field::Stated(limits) = &mut descriptor.rate_limits {
            for each in &mut limits.value {
                is_laid |= self.lay_limit(over, &mut each.limit);
            }
        }
        if let Field::Stated(base) = &mut descriptor.rate_limit {
            is_laid |= self.lay_limit(over, base);
        }
        is_laid
    }

    /// Lays the keys of a limit over another one; returns whether it did.
    fn lay_limit(&self, over: &Stated<RawRateLimit>, base: &mut Stated<RawRateLimit>) -> bool {
        // A pattern of many limits leaves those alone that are none.
        if base.value.unlimited.or_default() && !over.value.unlimited.is_present() {
            return false;
        }
        let mut merged = over.value.clone();
        fill(&mut merged, &base.value, &self.default_algorithm, Identity::Kept);
        *base = Stated { at: base.at, value: merged };
        true
    }
}

/// Replaces a key that the overlay states; returns whether it does.
fn replace<T: Clone>(base: &mut Field<T>, over: &Field<T>) -> bool {
    if over.is_present() {
        base.clone_from(over);
    }
    over.is_present()
}
