//! Compilation of nested descriptors.

use std::{borrow::Borrow, collections::HashSet, num::NonZeroU64, sync::Arc};

use tollgate_core::lease::{self, LeaseId};
use tollgate_core::{algorithm::Algorithm, descriptor::RequestBounds};

use super::tree_level::{LevelBuilder, MAX_PATH_BYTES, Pattern};
use super::{
    Compiler, Origin, Site, limit_keys, mappings::metadata_of, overdraft, pattern, several, shedding,
};
use crate::config::raw::{Field, RawDescriptor, RawDescriptors, RawRateLimit, Stated};
use crate::config::yaml::{Position, excerpt};
use crate::config::{layers, problem::Path};
use crate::{Node, Rule, Segment, Wildcard};

/// Reads a flag of a descriptor.
type ReadFlag = fn(&RawDescriptor) -> &Field<bool>;

/// Flags of a descriptor that concern its limit.
const FLAGS_OF_LIMITS: [(&str, ReadFlag); 3] = [
    ("shadow_mode", |raw| &raw.shadow_mode),
    ("quota_mode", |raw| &raw.quota_mode),
    ("detailed_metric", |raw| &raw.detailed_metric),
];

/// Whether there are limits in these descriptors or below them, and all have the flag.
fn is_stated_below(descriptors: &[Box<RawDescriptor>], flag: ReadFlag) -> bool {
    fn count(descriptors: &[Box<RawDescriptor>], flag: ReadFlag) -> Option<usize> {
        descriptors.iter().try_fold(0_usize, |limits, raw| {
            let is_limited = raw.is_limited() || raw.load_shedding.is_present();
            if is_limited && !flag(raw).or_default() {
                return None;
            }
            let below = count(&raw.descriptors, flag)?;
            Some(limits.saturating_add(below).saturating_add(is_limited.into()))
        })
    }
    count(descriptors, flag).is_some_and(|limits| limits > 0)
}

impl Compiler<'_> {
    pub(super) fn site(&self, at: Position, path: &Path<'_>) -> Site {
        Site { origin: Origin { file: self.reporter.file.clone(), at }, path: path.to_string() }
    }

    /// Adds the file's descriptors to the domain's first level, and frees each.
    pub(super) fn descriptors(&mut self, raw: RawDescriptors) {
        // Moved out, so that it can be borrowed beside the rest of the domain.
        let mut root = std::mem::take(&mut self.domain.root);
        self.level(raw, &mut root, &mut Vec::new(), &Path::Root);
        self.domain.root = root;
    }

    fn level<D: Borrow<Box<RawDescriptor>>>(
        &mut self,
        raw: impl AsRef<[Box<RawDescriptor>]> + IntoIterator<Item = D>,
        into: &mut LevelBuilder,
        segments: &mut Vec<Segment>,
        parent: &Path<'_>,
    ) {
        let list = parent.key("descriptors");
        self.warn_of_bounds(raw.as_ref(), segments.len(), &list);
        for raw in raw {
            if self.reporter.problems.is_full() {
                return;
            }
            let raw = &**raw.borrow();
            let path = list.item(raw.index);
            let pattern = pattern::compile(self, raw, &path);
            if let Some(key) = raw.key.stated() {
                self.domain.keys.insert(key.value.clone());
            }
            segments.push(segment(raw, pattern.as_ref()));
            let node = self.node(raw, segments, &path);
            if let Some(pattern) = pattern
                && let Err(known) = into.insert(pattern, node, self.site(raw.at, &path))
            {
                self.duplicate(raw, segments, &known, &path);
            }
            segments.pop();
        }
    }

    /// Warns of descriptors with more entries than a request may have, and of more keys than descriptors.
    fn warn_of_bounds(&mut self, raw: &[Box<RawDescriptor>], depth: usize, list: &Path<'_>) {
        let RequestBounds { max_descriptors, max_entries, .. } = self.options.bounds;
        if let Some(first) = raw.first().filter(|_| depth == max_entries) {
            let message = format!(
                "never match: requests with more than {max_entries} entries in a descriptor are refused"
            );
            self.reporter.warning(first.at, list, message);
        }
        if raw.len() > max_descriptors {
            let mut keys = HashSet::new();
            if let Some(beyond) = raw.iter().filter(|raw| keys.insert(raw.key.text())).nth(max_descriptors) {
                let message = format!(
                    "have more than {max_descriptors} keys: a request with a descriptor for each is refused"
                );
                // Requests may have descriptors for some of them alone.
                self.reporter.problems.lenient_warning(self.reporter.file, beyond.at, list, message);
            }
        }
    }

    fn duplicate(&mut self, raw: &RawDescriptor, segments: &[Segment], known: &Origin, path: &Path<'_>) {
        let steps: Vec<&str> = segments.iter().map(|segment| &*segment.stated).collect();
        let message = format!(
            "`{}.{}` is a duplicate of {known}; expected unique keys and values (joined by `_`) in a list",
            excerpt(&self.domain.name),
            excerpt(&steps.join("."))
        );
        self.reporter.error(raw.at, path, message);
    }

    fn node(&mut self, raw: &RawDescriptor, segments: &mut Vec<Segment>, path: &Path<'_>) -> Node {
        let mut extra_limits = Vec::new();
        let rule = match (&raw.rate_limit, &raw.rate_limits, &raw.load_shedding) {
            (_, _, Field::Stated(stated)) => shedding::rule(self, raw, stated, segments, path),
            (_, Field::Stated(limits), _) => {
                let mut rules = several::rules(self, raw, limits, segments, path).into_iter();
                let first = rules.next();
                extra_limits.extend(rules);
                first
            }
            (Field::Stated(limit), ..) => self.rule(raw, limit, segments, path, &path.key("rate_limit")),
            (Field::Invalid, ..) | (_, Field::Invalid, _) | (.., Field::Invalid) => None,
            (Field::Absent, Field::Absent, Field::Absent) => {
                self.warn_without_effect(raw, path);
                None
            }
        };
        if rule.as_ref().and_then(|rule| rule.algorithm()).is_some_and(Algorithm::takes_leases) {
            self.warn_of_hidden_leases(&raw.descriptors, path);
        }
        let mut children = LevelBuilder::default();
        self.level(&raw.descriptors, &mut children, segments, path);
        let children = children.finish(self.reporter.problems, self.budget);
        Node { rule, extra_limits: extra_limits.into(), children }
    }

    /// Warns of limits below a concurrency limit that match the descriptors which release its leases.
    fn warn_of_hidden_leases(&mut self, below: &[Box<RawDescriptor>], path: &Path<'_>) {
        // A pattern in the key is matched against the lease's identifier too.
        let named = format!("{}_{}", lease::KEY, LeaseId::new(NonZeroU64::MIN));
        let matches = |key: &str| {
            key == lease::KEY || Wildcard::parse(key).is_some_and(|pattern| pattern.matches(&named))
        };
        let list = path.key("descriptors");
        for raw in below.iter().filter(|raw| raw.is_limited() && matches(raw.key.text())) {
            let message = "matches the descriptors that release the leases of the limit above, so that each permit \
                           is held for the `lease_ttl`; rename the key";
            self.reporter.warning(raw.at, &list.item(raw.index), message);
        }
    }

    /// Warns of keys that have no effect without a limit, except flags that all limits below state too, as in the rules of
    /// Envoy Gateway.
    fn warn_without_effect(&mut self, raw: &RawDescriptor, path: &Path<'_>) {
        let message = "has no effect without a `rate_limit` in the same descriptor";
        for (key, of) in FLAGS_OF_LIMITS {
            let flag = of(raw).stated().filter(|flag| flag.value);
            if let Some(flag) = flag.filter(|_| !is_stated_below(&raw.descriptors, of)) {
                self.reporter.warning(flag.at, &path.key(key), message);
            }
        }
        if let Some(weight) = raw.weight.stated() {
            self.reporter.error(
                weight.at,
                &path.key("weight"),
                "has no `rate_limit` in the same descriptor; expected one",
            );
        }
        if let Some(metadata) = raw.metadata.stated() {
            let path = path.key("metadata");
            self.reporter.warning(metadata.at, &path, message);
            metadata_of(&mut self.reporter, &metadata.value, &path);
        }
    }

    /// Compiles the limit at `limit_path` of the descriptor at `path`.
    pub(super) fn rule(
        &mut self,
        raw: &RawDescriptor,
        limit: &Stated<RawRateLimit>,
        segments: &[Segment],
        path: &Path<'_>,
        limit_path: &Path<'_>,
    ) -> Option<Arc<Rule>> {
        self.charge_path(raw, segments, path)?;
        let replaces = self.replaces(&limit.value, limit_path);
        let metadata = raw.metadata.stated();
        let metadata = metadata
            .and_then(|metadata| metadata_of(&mut self.reporter, &metadata.value, &path.key("metadata")));
        let keys = limit_keys::read(self, raw, limit, segments, path, limit_path)?;
        let is_of_several = raw.rate_limits.stated().is_some();
        let part = is_of_several.then(|| several::part_of(&limit.value, &keys.limit, segments));
        let at = if part.is_some() { limit.at } else { raw.at };
        let rule = Arc::new(Rule {
            part,
            name: limit.value.name.text().into(),
            replaces,
            shadow_mode: raw.shadow_mode.or_default(),
            quota_mode: raw.quota_mode.or_default(),
            detailed_metric: raw.detailed_metric.or_default(),
            metadata,
            segments: segments.into(),
            origin: ((**self.reporter.file).into(), at.line()),
            stated: layers::stated_values(self.reporter.file, raw, &limit.value, self.reporter.problems),
            ..keys
        });
        overdraft::warn_of_lost_charges(self, &rule, &limit.value, at, limit_path);
        self.add_counter(&rule, raw, path);
        Some(rule)
    }

    /// Adds the counters of a rule to the domain.
    fn add_counter(&mut self, rule: &Arc<Rule>, raw: &RawDescriptor, path: &Path<'_>) {
        if let Err(known) = self.domain.add_counter(rule) {
            let message = format!(
                "its counters have the same identifier as those of {known}; rename a key or value of either"
            );
            self.reporter.error(raw.at, path, message);
        }
    }

    /// Charges the path of a rule; `None` if the paths of all rules are too long.
    pub(super) fn charge_path(
        &mut self,
        raw: &RawDescriptor,
        segments: &[Segment],
        path: &Path<'_>,
    ) -> Option<()> {
        self.budget.charge_path(segments).or_else(|| {
            let message = format!(
                "the paths of the rules up to this one take more than {} MiB; expected shorter keys and values, or \
                 fewer rules below long ones",
                MAX_PATH_BYTES >> 20
            );
            self.reporter.problems.abort();
            self.reporter.refuse(raw.at, path, message)
        })
    }

    /// Checks a limit's name, and returns the names that it replaces.
    fn replaces(&mut self, raw: &RawRateLimit, path: &Path<'_>) -> Box<[Box<str>]> {
        if let Some(name) = raw.name.stated().filter(|name| !name.value.is_empty()) {
            // Envoy copies the name to a header.
            if name.value.chars().any(char::is_control) {
                self.reporter.error(
                    name.at,
                    &path.key("name"),
                    "has control characters; expected none, since the name is sent in headers",
                );
            } else if name.value.contains(['"', '\\']) {
                let message = "has quotes or backslashes, which break the headers that Envoy sends";
                self.reporter.warning(name.at, &path.key("name"), message);
            }
            self.domain.names.insert(name.value.clone());
        }
        let list = path.key("replaces");
        let mut names = Vec::new();
        for entry in &raw.replaces {
            let path = list.item(entry.index);
            match &entry.name {
                Field::Invalid => {}
                Field::Stated(name) if !name.value.is_empty() => {
                    if *name.value == *raw.name.text() {
                        self.reporter.error(
                            name.at,
                            &path.key("name"),
                            "is the limit's own name; expected another limit",
                        );
                        continue;
                    }
                    let site = self.site(name.at, &path.key("name"));
                    self.domain.replaced.push((name.value.clone(), site));
                    names.push((*name.value).into());
                }
                Field::Absent | Field::Stated(_) => {
                    self.reporter.error(
                        entry.at,
                        &path,
                        "has no `name`; expected that of the limit to replace",
                    );
                }
            }
        }
        names.into()
    }
}

/// Segment of a descriptor in the paths of its rules. A descriptor without a pattern was reported, and is not compiled.
fn segment(raw: &RawDescriptor, pattern: Option<&Pattern<'_>>) -> Segment {
    let value_to_metric = raw.value_to_metric.or_default();
    let key: Box<str> = raw.key.text().into();
    match pattern {
        Some(pattern) => {
            Segment { key, stated: pattern.stated.clone(), value: pattern.value, value_to_metric }
        }
        None => Segment { stated: key.clone(), key, value: crate::Value::Open, value_to_metric },
    }
}
