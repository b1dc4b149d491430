//! Converts the resources of a control plane to [`raw`](tollgate_rules::config::raw) files, one for each resource. The compiler then
//! treats both sources alike, so that a rule means the same from either.

mod budget;
mod convert;
mod metadata;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, rc::Rc};

use prost::Message as _;
use tollgate_rules::config::{
    self, Fingerprint, LoadError, Loaded, Options,
    fingerprint::Hash,
    problem::{Path, Problems},
    yaml::Position,
};

use self::budget::DecodeBudget;
use crate::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;

/// The type of every resource that holds rules.
pub(crate) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Maximum length of a reported name, in characters.
const MAX_NAME_CHARS: usize = 200;

/// A resource as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// Its type URL.
    pub(crate) type_url: String,
    /// The encoded message.
    pub(crate) value: Vec<u8>,
}

/// Fingerprint of resources, independent of their order: control planes send them in any.
pub(crate) fn fingerprint_of(resources: &[Resource]) -> Fingerprint {
    let mut sorted: Vec<&Resource> = resources.iter().collect();
    sorted.sort_unstable();
    let mut hash = Hash::default();
    hash.part(b"resources");
    for resource in sorted {
        hash.part(resource.type_url.as_bytes());
        hash.part(&resource.value);
    }
    hash.finish()
}

/// Loads the resources of a control plane. An empty list is valid and has no domains.
///
/// # Errors
/// [`LoadError`] with every problem.
pub(crate) fn load_resources(
    resources: &[Resource],
    fingerprint: Fingerprint,
    options: Options,
) -> Result<Loaded, LoadError> {
    config::compile_raw(fingerprint, options, |problems| {
        named(decode(resources, problems))
            .map_while(|(name, config)| (!problems.is_full()).then(|| convert::file(name, config, problems)))
            .collect()
    })
}

/// Every resource that can be decoded, in an order that depends on their content alone.
fn decode(resources: &[Resource], problems: &mut Problems) -> Vec<RateLimitConfig> {
    let mut budget = DecodeBudget::default();
    let mut configs = Vec::new();
    for (index, resource) in resources.iter().enumerate() {
        if problems.is_full() {
            break;
        }
        match read(resource, &mut budget) {
            Ok(config) => configs.push((config, &resource.value)),
            Err(message) => {
                problems.error(&format!("resource {index}"), Position::WHOLE, Path::Root, message);
            }
        }
    }
    configs.sort_by(|(a, a_bytes), (b, b_bytes)| (&a.name, a_bytes).cmp(&(&b.name, b_bytes)));
    configs.into_iter().map(|(config, _)| config).collect()
}

fn read(resource: &Resource, budget: &mut DecodeBudget) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        let found = resource.type_url.chars().take(MAX_NAME_CHARS).collect::<String>();
        return Err(format!("is of the type `{}`, expected `{TYPE_URL}`", found.escape_debug()));
    }
    budget.take(&resource.value).map_err(|error| error.to_string())?;
    RateLimitConfig::decode(&*resource.value).map_err(|error| format!("can't be decoded: {error}"))
}

/// Configurations with unique names.
fn named(configs: Vec<RateLimitConfig>) -> impl Iterator<Item = (Rc<str>, RateLimitConfig)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    configs.into_iter().map(move |config| {
        let name = config.name.chars().take(MAX_NAME_CHARS).collect::<String>().escape_debug().to_string();
        let times = counts.entry(name.clone()).or_default();
        *times = times.saturating_add(1);
        let name = match (&*name, *times) {
            ("", times) => format!("resource without a name ({times})"),
            (name, 1) => format!("resource {name}"),
            (name, times) => format!("resource {name} ({times})"),
        };
        (name.into(), config)
    })
}
