//! Layers of a configuration: limits that take keys from those above them, and files that are laid over others.
//!
//! Both work on [`raw`](super::raw), before it is compiled, so that a merged limit means the same as one that states all of
//! its keys.

mod overlay;

use std::{collections::HashMap, rc::Rc, sync::Arc};

use tollgate_core::algorithm::Algorithm;

use super::problem::{Path, Problems};
use super::raw::{Field, RawDescriptor, RawFile, RawInherit, RawRateLimit, Stated};
use super::vocabulary::{Mapping as _, nearest};
use super::yaml::{Layer, excerpt};
use crate::{StatedValue, Wildcard};

pub use self::overlay::{Laid, Overlay, OverlaySlot};

/// Limits of a file by their names.
type Named = HashMap<Rc<str>, Vec<RawRateLimit>>;

/// Fills every limit that inherits: first those of a name, whose limit states all of its keys, then those of the limit above.
pub(in crate::config) fn resolve(files: &mut [RawFile], problems: &mut Problems) {
    for file in files {
        let (mut named, mut inherits) = (Named::new(), false);
        file.descriptors.iter().for_each(|descriptor| collect(descriptor, &mut named, &mut inherits));
        if inherits {
            let default_algorithm = default_algorithm(&file.defaults);
            let mut resolver = Resolver { file: &file.name, default_algorithm, named, problems };
            resolver.level(&mut file.descriptors, None, &Path::Root);
        }
    }
}

/// The limit that another one inherits.
pub(in crate::config) fn inherit_of(limit: &RawRateLimit) -> Option<&Stated<RawInherit>> {
    limit.inherit.stated().filter(|inherit| inherit.value != RawInherit::No)
}

fn collect(descriptor: &RawDescriptor, named: &mut Named, inherits: &mut bool) {
    if let Some(limit) = descriptor.rate_limit.stated() {
        *inherits |= inherit_of(&limit.value).is_some();
        if !limit.value.name.text().is_empty() {
            named.entry(limit.value.name.text().into()).or_default().push(limit.value.clone());
        }
    }
    descriptor.descriptors.iter().for_each(|below| collect(below, named, inherits));
}

/// Nearest limit above a descriptor.
#[derive(Clone, Copy)]
enum Above<'a> {
    Limit(&'a Field<RawRateLimit>),
    Several,
}

struct Resolver<'a> {
    file: &'a Rc<str>,
    default_algorithm: Rc<str>,
    named: Named,
    problems: &'a mut Problems,
}

impl Resolver<'_> {
    fn level(&mut self, descriptors: &mut [Box<RawDescriptor>], above: Option<Above<'_>>, parent: &Path<'_>) {
        let list = parent.key("descriptors");
        for descriptor in descriptors {
            let path = list.item(descriptor.index);
            self.limit(&mut descriptor.rate_limit, above, &path);
            let RawDescriptor { rate_limit, rate_limits, descriptors, .. } = &mut **descriptor;
            let nearest = match rate_limit.is_present() {
                _ if rate_limits.is_present() => Some(Above::Several),
                true => Some(Above::Limit(&*rate_limit)),
                false => above,
            };
            self.level(descriptors, nearest, &path);
        }
    }

    fn limit(&mut self, limit: &mut Field<RawRateLimit>, above: Option<Above<'_>>, path: &Path<'_>) {
        let Field::Stated(stated) = &mut *limit else { return };
        let Some(Stated { at, value: inherit }) = inherit_of(&stated.value).cloned() else { return };
        let base = match (inherit, above) {
            (RawInherit::Named(name), _) => self.named_limit(&name),
            (_, Some(Above::Limit(Field::Stated(above)))) => Ok(&above.value),
            // Reported where it is stated.
            (_, Some(Above::Limit(Field::Invalid))) => {
                *limit = Field::Invalid;
                return;
            }
            (_, Some(Above::Several)) => {
                Err("has several limits above it; expected one `rate_limit` there, or all keys of this limit"
                    .to_owned())
            }
            (_, Some(Above::Limit(Field::Absent)) | None) => {
                Err("has no limit to inherit; expected a `rate_limit` in a descriptor that contains this one"
                    .to_owned())
            }
        };
        match base {
            Ok(base) => fill(&mut stated.value, base, &self.default_algorithm, Identity::Own),
            Err(message) => {
                self.problems.error(self.file, at, path.key("rate_limit").key("inherit"), message);
            }
        }
    }

    /// The limit with a name.
    fn named_limit(&self, name: &str) -> Result<&RawRateLimit, String> {
        let shown = excerpt(name);
        match self.named.get(name).map(Vec::as_slice) {
            Some([one]) if inherit_of(one).is_none() => Ok(one),
            Some([_]) => Err(format!("`{shown}` inherits too; expected a limit that states its keys")),
            Some(_) => Err(format!("`{shown}` is the name of several limits of the file; expected one")),
            None => {
                let meant = nearest(name, self.named.keys().map(|name| &**name));
                let meant = meant.map(|meant| format!(", such as `{}`", excerpt(meant))).unwrap_or_default();
                Err(format!("no limit of the file has the name `{shown}`; expected true or a name{meant}"))
            }
        }
    }
}

/// Keys of a descriptor beside its limit that concern the limit.
const KEYS_OF_LIMITS: [&str; 5] =
    ["load_shedding", "shadow_mode", "quota_mode", "detailed_metric", "metadata"];

/// Keys of a descriptor that concern itself, and all limits below.
const OTHER_KEYS: [&str; 2] = ["value_to_metric", "share_threshold"];

/// Keys of a limit that identify it or concern others.
const IDENTITY: [&str; 3] = ["name", "replaces", "inherit"];

/// Parameters of one algorithm, which another one has no use for. An overdraft is not among them: a limit that loses it
/// loses charges, so that is an error.
const PARAMETERS: [&str; 6] = ["burst", "min_interval", "lease_ttl", "carry", "reserve", "notify"];

/// Whether a limit takes the identity of the one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// Equal limits.
    Kept,
    /// Different limits.
    Own,
}

/// Fills the keys that `top` omits from `base`. As with the defaults of a file, `unit`, `unit_multiplier` and `window`
/// state one window together, here with `timezone` and `anchor`, and a parameter applies to limits of its algorithm. `default` is the algorithm of limits
/// that state none.
pub(super) fn fill(top: &mut RawRateLimit, base: &RawRateLimit, default: &str, identity: Identity) {
    let stated = Taken::new(top, base, default, identity);
    top.copy_keys(base, |key, presence| !presence.here && stated.takes(key));
}

/// Algorithm of limits that state none, by the defaults of their file.
pub(super) fn default_algorithm(defaults: &RawRateLimit) -> Rc<str> {
    match defaults.algorithm.text() {
        "" => Algorithm::default().name().into(),
        name => name.into(),
    }
}

/// Keys that a limit takes from another one.
struct Taken {
    identity: Identity,
    is_unlimited: bool,
    is_limited: bool,
    /// Whether the algorithm is the one of the limit below.
    has_same_algorithm: bool,
    algorithm: Option<Algorithm>,
    states_window: bool,
    states_multiplier: bool,
    ends_overdraft: bool,
}

impl Taken {
    fn new(top: &RawRateLimit, base: &RawRateLimit, default: &str, identity: Identity) -> Self {
        let name = match base.algorithm.text() {
            "" => default,
            name => name,
        };
        let own = top.algorithm.text();
        let flag = |field: &Field<bool>, expected| matches!(field, Field::Stated(Stated { value, .. }) if *value == expected);
        Self {
            identity,
            is_unlimited: flag(&top.unlimited, true),
            is_limited: flag(&top.unlimited, false) || top.requests_per_unit.is_present(),
            has_same_algorithm: !top.algorithm.is_present() || own == name,
            algorithm: Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == own),
            states_window: top.window.is_present() || top.unit.is_present(),
            states_multiplier: top.unit_multiplier.is_present(),
            ends_overdraft: flag(&top.overdraft, false),
        }
    }

    fn takes(&self, key: &'static str) -> bool {
        let becomes = |is: fn(Algorithm) -> bool| !self.has_same_algorithm && self.algorithm.is_some_and(is);
        match key {
            key if IDENTITY.contains(&key) => self.identity == Identity::Kept,
            _ if self.is_unlimited => false,
            "unlimited" => !self.is_limited,
            "unit" | "unit_multiplier" | "window" | "timezone" | "anchor" if self.states_window => false,
            "unit" | "unit_multiplier" | "window" if becomes(Algorithm::holds_permits) => false,
            "timezone" | "anchor" => !self.states_multiplier && self.has_same_algorithm,
            "unit_multiplier" | "window" => !self.states_multiplier,
            key if PARAMETERS.contains(&key) && !self.has_same_algorithm => false,
            "max_debt" | "carry" => !self.ends_overdraft,
            "sync" => !becomes(|algorithm| !algorithm.can_be_leased()),
            "retry_after_spread" => !becomes(Algorithm::holds_permits),
            _ => true,
        }
    }
}

/// Returns the places of the keys of a limit in `file`, if it inherits or has keys of an overlay.
pub(in crate::config) fn stated_values(
    file: &str,
    raw: &RawDescriptor,
    limit: &RawRateLimit,
    problems: &Problems,
) -> Option<Box<[StatedValue]>> {
    let is_stated_beside =
        |(key, _): &(&'static str, _)| KEYS_OF_LIMITS.contains(key) || OTHER_KEYS.contains(key);
    let beside = || raw.stated_keys().filter(is_stated_beside);
    if inherit_of(limit).is_none()
        && limit.stated_keys().chain(beside()).all(|(_, at)| at.file == Layer::BASE)
    {
        return None;
    }
    // The window first, and the name last.
    let rank = |key: &str| match key {
        "unit" | "unit_multiplier" | "window" | "timezone" | "anchor" => 0,
        "name" => 2,
        _ => 1,
    };
    let mut keys: Vec<_> = limit.stated_keys().filter(|(key, _)| *key != "inherit").collect();
    keys.sort_by_key(|(key, _)| rank(key));
    let base: Arc<str> = file.into();
    let stated = keys.into_iter().chain(beside()).map(|(key, at)| StatedValue {
        key,
        file: match at.file {
            Layer::BASE => Arc::clone(&base),
            _ => problems.file_at(file, at).into(),
        },
        line: u32::try_from(at.line()).unwrap_or(u32::MAX),
    });
    Some(stated.collect())
}

/// Key that stands for any number of levels.
const ANY_DEPTH: &str = "**";

/// A descriptor of an overlay.
#[derive(Debug)]
struct DescriptorPattern<'a> {
    raw: &'a RawDescriptor,
    /// Index among the descriptors of the file.
    index: usize,
    /// Path in the file, for problems.
    path: String,
    /// The key; `None` for any number of levels.
    key: Option<TextPattern<'a>>,
    /// The value; `None` for any value or none.
    value: Option<TextPattern<'a>>,
    children: Vec<Self>,
}

/// A text, or a pattern of texts.
#[derive(Debug)]
enum TextPattern<'a> {
    Exact(&'a str),
    Wildcard(Wildcard),
}

impl<'a> TextPattern<'a> {
    fn new(text: &'a str) -> Self {
        Wildcard::parse(text).map_or(Self::Exact(text), Self::Wildcard)
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => *exact == text,
            Self::Wildcard(wildcard) => wildcard.matches(text),
        }
    }
}

impl<'a> DescriptorPattern<'a> {
    /// The patterns of a list of descriptors; `count` is the number of those before them.
    fn of_list(list: &'a [Box<RawDescriptor>], parent: &str, count: &mut usize) -> Vec<Self> {
        let each = list.iter().map(|raw| {
            let index = *count;
            *count = count.saturating_add(1);
            let path = match parent {
                "" => format!("descriptors[{}]", raw.index),
                parent => format!("{parent}.descriptors[{}]", raw.index),
            };
            let key = raw.key.text();
            let children = Self::of_list(&raw.descriptors, &path, count);
            Self {
                raw,
                index,
                path,
                key: (key != ANY_DEPTH).then(|| TextPattern::new(key)),
                value: raw.value.stated().map(|value| TextPattern::new(&value.value)),
                children,
            }
        });
        each.collect()
    }

    /// Whether it stands for any number of levels.
    const fn is_any_depth(&self) -> bool {
        self.key.is_none()
    }

    fn matches(&self, descriptor: &RawDescriptor) -> bool {
        self.key.as_ref().is_none_or(|key| key.matches(descriptor.key.text()))
            && self.value.as_ref().is_none_or(|value| value.matches(descriptor.value.text()))
    }

    /// Whether it has keys to lay over the descriptors that it matches.
    fn has_keys(&self) -> bool {
        let is_effective = |key: &str| KEYS_OF_LIMITS.contains(&key) || OTHER_KEYS.contains(&key);
        self.raw.is_limited() || self.raw.stated_keys().any(|(key, _)| is_effective(key))
    }
}

#[cfg(test)]
mod tests;
