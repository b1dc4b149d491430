//! From the resources of a control plane to [`raw`](super::raw), which is where files arrive too: from there on both are
//! the same, so that a rule means the same wherever it comes from. A resource is what a file is elsewhere.

mod bounds;
mod convert;
mod metadata;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, rc::Rc};

use prost::Message as _;

use self::bounds::Allowance;
use crate::{
    config::{
        self, Fingerprint, LoadError, Loaded, Options,
        fingerprint::Hash,
        problem::{Path, Problems},
        yaml::Position,
    },
    proto::ratelimit::config::ratelimit::v3::RateLimitConfig,
};

/// The type of every resource that holds rules.
pub(crate) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Letters of the longest name that is told whole.
const LONGEST_NAME: usize = 200;

/// What a control plane sent, as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    /// What it says it is.
    pub(crate) type_url: String,
    /// The encoded message.
    pub(crate) value: Vec<u8>,
}

/// The fingerprint of resources, whose order says nothing: control planes send them in any.
pub(crate) fn fingerprint_of(resources: &[Resource]) -> Fingerprint {
    let mut sorted: Vec<&Resource> = resources.iter().collect();
    sorted.sort_unstable();
    let mut hash = Hash::new();
    hash.part(b"resources");
    for resource in sorted {
        hash.part(resource.type_url.as_bytes());
        hash.part(&resource.value);
    }
    hash.finish()
}

/// Loads the resources of a control plane. None at all are valid and have no domains.
///
/// # Errors
/// [`LoadError`] with everything that is wrong.
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

/// Every resource that can be read, in an order that depends on their content alone.
fn decode(resources: &[Resource], problems: &mut Problems) -> Vec<RateLimitConfig> {
    let mut allowance = Allowance::default();
    let mut configs = Vec::new();
    for (index, resource) in resources.iter().enumerate() {
        if problems.is_full() {
            break;
        }
        match read(resource, &mut allowance) {
            Ok(config) => configs.push((config, &resource.value)),
            Err(message) => {
                problems.error(&format!("resource {index}"), Position::WHOLE, Path::Root, message);
            }
        }
    }
    configs.sort_by(|(a, a_bytes), (b, b_bytes)| (&a.name, a_bytes).cmp(&(&b.name, b_bytes)));
    configs.into_iter().map(|(config, _)| config).collect()
}

fn read(resource: &Resource, allowance: &mut Allowance) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        let found = resource.type_url.chars().take(LONGEST_NAME).collect::<String>();
        return Err(format!("is of the type `{}`, expected `{TYPE_URL}`", found.escape_debug()));
    }
    allowance.take(&resource.value).map_err(|error| error.to_string())?;
    RateLimitConfig::decode(&*resource.value).map_err(|error| format!("can't be decoded: {error}"))
}

/// Each with a name of its own.
fn named(configs: Vec<RateLimitConfig>) -> impl Iterator<Item = (Rc<str>, RateLimitConfig)> {
    let mut known: HashMap<String, usize> = HashMap::new();
    configs.into_iter().map(move |config| {
        let name = config.name.chars().take(LONGEST_NAME).collect::<String>().escape_debug().to_string();
        let times = known.entry(name.clone()).or_default();
        *times = times.saturating_add(1);
        let name = match (&*name, *times) {
            ("", times) => format!("resource without a name ({times})"),
            (name, 1) => format!("resource {name}"),
            (name, times) => format!("resource {name} ({times})"),
        };
        (name.into(), config)
    })
}
