//! Attributes that identify this instance, by the semantic conventions of OpenTelemetry.

use std::sync::OnceLock;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
};

use super::CollectorSettings;

/// `service.instance.id`, unless the settings have one: a random UUID of this process.
static INSTANCE_ID: OnceLock<String> = OnceLock::new();

/// The resource of this process. Stated attributes override those of the process; `service.name` has its own setting.
pub(crate) fn resource(settings: &CollectorSettings) -> Resource {
    let name = ("service.name", &*settings.service_name);
    let own = [
        name,
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", INSTANCE_ID.get_or_init(|| uuid(fastrand::u128(..)))),
    ];
    let stated = settings.resource.iter().map(|(key, value)| (&**key, &**value));
    let stated: Vec<_> = stated.filter(|(key, _)| *key != name.0).collect();
    let own = own.into_iter().filter(|(key, _)| stated.iter().all(|(other, _)| other != key));
    let attributes = own.chain(stated.iter().copied()).map(|(key, value)| attribute(key, value));
    Resource { attributes: attributes.collect(), ..Resource::default() }
}

/// The scope of all metrics and spans.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// A UUID of version 4 (RFC 9562) with these random bits.
fn uuid(random: u128) -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    let bits = (random & !VERSION & !VARIANT) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::OtlpProtocol;

    fn attributes(stated: &[(&str, &str)]) -> Vec<(String, String)> {
        let settings = CollectorSettings {
            endpoint: String::new(),
            protocol: OtlpProtocol::Grpc,
            ca_certificate: None,
            headers: Vec::new(),
            service_name: "limits".to_owned(),
            resource: stated.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        let text = |pair: KeyValue| match pair.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => (pair.key, text),
            other => panic!("{other:?}"),
        };
        resource(&settings).attributes.into_iter().map(text).collect()
    }

    #[test]
    fn stated_attributes_override_those_of_the_process_except_the_name() {
        let found = attributes(&[("service.name", "x"), ("service.instance.id", "pod-1"), ("zone", "a")]);
        let version = env!("CARGO_PKG_VERSION");
        let expected = [
            ("service.name", "limits"),
            ("service.version", version),
            ("service.instance.id", "pod-1"),
            ("zone", "a"),
        ];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn an_instance_without_a_stated_id_has_one_random_uuid() {
        let id = |found: Vec<(String, String)>| {
            found.into_iter().find_map(|(key, value)| (key == "service.instance.id").then_some(value))
        };
        assert_eq!(id(attributes(&[])), id(attributes(&[("zone", "a")])));
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
