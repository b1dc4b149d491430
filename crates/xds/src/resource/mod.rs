//! Converts the resources of a control plane to [`raw`](tollgate_rules::config::raw) files, one for each resource. The compiler then
//! treats both sources alike, so that a rule means the same from either.

use std::{collections::HashMap, iter, rc::Rc};

use prost::Message as _;
use prost_types::{Any, Struct, Value, value::Kind};
use tollgate_proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use tollgate_rules::config::{
    self, Fingerprint, LoadError, Loaded, Options,
    problem::{Path, Problems},
    raw::{Field, RawDescriptor, RawDescriptors, RawFile, RawRateLimit, RawReplaces, Stated},
    yaml::{Content, MAX_SCALAR_BYTES, Node, Position, Scalar},
};

use self::budget::DecodeBudget;

mod budget;
#[cfg(test)]
mod tests;

/// The type of every resource that holds rules.
pub(crate) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Maximum length of a reported name, in characters.
const MAX_NAME_CHARS: usize = 200;

/// Fingerprint of resources, independent of their order: control planes send them in any.
pub(crate) fn fingerprint_of(resources: &[Any]) -> Fingerprint {
    let mut sorted: Vec<_> = resources.iter().map(|any| [any.type_url.as_bytes(), &any.value]).collect();
    sorted.sort_unstable();
    let parts = sorted.into_iter().flatten();
    Fingerprint::of(iter::once(&b"resources"[..]).chain(parts))
}

/// Loads the resources of a control plane. An empty list is valid and has no domains.
///
/// # Errors
/// [`LoadError`] with every problem.
pub(crate) fn load_resources(
    resources: &[Any],
    fingerprint: Fingerprint,
    options: Options,
) -> Result<Loaded, LoadError> {
    config::compile_raw(fingerprint, options, |problems| {
        named(decode(resources, problems))
            .map_while(|(name, config)| (!problems.is_full()).then(|| raw_file(name, config, problems)))
            .collect()
    })
}

/// Every resource that can be decoded, in an order that depends on their content alone.
fn decode(resources: &[Any], problems: &mut Problems) -> Vec<RateLimitConfig> {
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

fn read(resource: &Any, budget: &mut DecodeBudget) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        let found = resource.type_url.chars().take(MAX_NAME_CHARS).collect::<String>();
        return Err(format!("is of the type `{}`, expected `{TYPE_URL}`", found.escape_debug()));
    }
    budget.take(&resource.value)?;
    RateLimitConfig::decode(&*resource.value).map_err(|error| format!("can't be decoded: {error}"))
}

/// Configurations with unique names.
fn named(configs: Vec<RateLimitConfig>) -> impl Iterator<Item = (Rc<str>, RateLimitConfig)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    configs.into_iter().map(move |config| {
        let name = config.name.chars().take(MAX_NAME_CHARS).collect::<String>().escape_debug().to_string();
        let times = counts.entry(name.clone()).or_default();
        *times += 1;
        let name = match (&*name, *times) {
            ("", times) => format!("resource without a name ({times})"),
            (name, 1) => format!("resource {name}"),
            (name, times) => format!("resource {name} ({times})"),
        };
        (name.into(), config)
    })
}

/// Levels of descriptors, the same as in a file.
const MAX_LEVELS: usize = 31;

fn raw_file(name: Rc<str>, config: RateLimitConfig, problems: &mut Problems) -> RawFile {
    let mut converter = Converter { file: &name, problems };
    let domain = converter.text(&config.domain, &Path::Root.key("domain"));
    let descriptors = converter.descriptors(config.descriptors, &Path::Root, 0);
    RawFile { domain, descriptors, name, ..RawFile::default() }
}

struct Converter<'a> {
    file: &'a str,
    problems: &'a mut Problems,
}

impl Converter<'_> {
    fn descriptors(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
        parent: &Path<'_>,
        level: usize,
    ) -> RawDescriptors {
        let list = parent.key("descriptors");
        if level >= MAX_LEVELS && !descriptors.is_empty() {
            let message = format!("nested more than {MAX_LEVELS} levels deep");
            self.problems.error(self.file, Position::WHOLE, list, message);
            return Vec::new();
        }
        let each = descriptors.into_iter().enumerate();
        each.map_while(|(index, descriptor)| {
            let path = list.item(index);
            (!self.problems.is_full()).then(|| self.descriptor(descriptor, index, &path, level))
        })
        .collect()
    }

    fn descriptor(
        &mut self,
        stated: RateLimitDescriptor,
        index: usize,
        path: &Path<'_>,
        level: usize,
    ) -> Box<RawDescriptor> {
        let mut raw = Box::new(RawDescriptor { index, ..RawDescriptor::default() });
        raw.key = self.text(&stated.key, &path.key("key"));
        raw.value = self.text(&stated.value, &path.key("value"));
        raw.shadow_mode = flag(stated.shadow_mode);
        raw.quota_mode = flag(stated.quota_mode);
        raw.detailed_metric = flag(stated.detailed_metric);
        if let Some(limit) = stated.rate_limit {
            raw.rate_limit = field(self.rate_limit(limit, &path.key("rate_limit")));
        }
        if let Some(stated) = stated.metadata {
            raw.metadata = field(metadata_node(stated));
        }
        raw.descriptors = self.descriptors(stated.descriptors, path, level + 1);
        raw
    }

    fn rate_limit(&mut self, stated: RateLimitPolicy, path: &Path<'_>) -> RawRateLimit {
        let mut raw = RawRateLimit { name: self.text(&stated.name, &path.key("name")), ..Default::default() };
        raw.unit = match RateLimitUnit::try_from(stated.unit) {
            Ok(RateLimitUnit::Unknown) => Field::Absent,
            Ok(unit) => field(unit.as_str_name().to_ascii_lowercase().into()),
            Err(_) => field(stated.unit.to_string().into()),
        };
        raw.unlimited = flag(stated.unlimited);
        if stated.requests_per_unit > 0 || !stated.unlimited {
            raw.requests_per_unit = field(stated.requests_per_unit.into());
        }
        let list = path.key("replaces");
        let replaces = stated.replaces.into_iter().enumerate();
        raw.replaces = replaces
            .map(|(index, replaced)| {
                let name = self.text(&replaced.name, &list.item(index).key("name"));
                RawReplaces { at: Position::WHOLE, index, name }
            })
            .collect();
        raw
    }

    fn text(&mut self, text: &str, path: &Path<'_>) -> Field<Rc<str>> {
        match text.len() {
            0 => Field::Absent,
            1..=MAX_SCALAR_BYTES => field(text.into()),
            _ => {
                let most = MAX_SCALAR_BYTES >> 10;
                let message = format!("text longer than {most} KiB; expected a shorter one");
                self.problems.error(self.file, Position::WHOLE, path, message);
                Field::Invalid
            }
        }
    }
}

const fn field<T>(value: T) -> Field<T> {
    Field::Stated(Stated { at: Position::WHOLE, value })
}

const fn flag(is_set: bool) -> Field<bool> {
    if is_set { field(true) } else { Field::Absent }
}

/// Largest magnitude up to which every whole number has an exact `f64`.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

fn metadata_node(stated: Struct) -> Node {
    let fields = stated.fields.into_iter();
    of(Content::Map(fields.map(|(key, value)| (scalar(Scalar::quoted(&key)), of_value(value))).collect()))
}

fn of_value(value: Value) -> Node {
    match value.kind {
        None | Some(Kind::NullValue(_)) => scalar(Scalar::plain("null")),
        Some(Kind::BoolValue(value)) => scalar(Scalar::plain(if value { "true" } else { "false" })),
        Some(Kind::NumberValue(number)) => scalar(Scalar::plain(&text_of(number))),
        Some(Kind::StringValue(text)) => scalar(Scalar::quoted(&text)),
        Some(Kind::StructValue(stated)) => metadata_node(stated),
        Some(Kind::ListValue(list)) => of(Content::List(list.values.into_iter().map(of_value).collect())),
    }
}

/// A number in YAML. Protobuf has one numeric type, so 3 arrives as 3.0 and is written as 3.
fn text_of(number: f64) -> String {
    match number {
        number if number.is_nan() => ".nan".to_owned(),
        number if number == f64::INFINITY => ".inf".to_owned(),
        number if number == f64::NEG_INFINITY => "-.inf".to_owned(),
        number if number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER => format!("{number:.0}"),
        number => format!("{number:?}"),
    }
}

fn scalar(scalar: Scalar) -> Node {
    of(Content::Scalar(scalar))
}

const fn of(content: Content) -> Node {
    Node { at: Position::WHOLE, content }
}
