//! Prometheus endpoint of the reference: a separate port, if it is switched on.

use std::path::Path;

use tollgate_runtime::bounded_file;

use crate::settings::{
    environment::{Environment, Setting},
    parsers::boolean,
};

const SWITCH: &str = "USE_PROMETHEUS";

/// Variable that names a file with the mapping of metrics to names and labels.
const MAPPER: &str = "PROMETHEUS_MAPPER_YAML";

/// The mapping that Envoy Gateway sets, whose names and labels are those that the page has.
const ENVOY_GATEWAY_MAPPING: &str = include_str!("envoy_gateway_mapping.yaml");

/// Maximum size of a mapping that is compared, in bytes.
const MAX_MAPPING_BYTES: u64 = 64 << 10;

/// Whether a variable names a file with the mapping that the page follows anyway.
pub(super) fn has_no_effect_anyway(name: &str, value: &str) -> bool {
    if name != MAPPER {
        return false;
    }
    let mapping = bounded_file::read_up_to(Path::new(value), MAX_MAPPING_BYTES);
    mapping.is_ok_and(|text| lines(&String::from_utf8_lossy(&text)).eq(lines(ENVOY_GATEWAY_MAPPING)))
}

/// The lines of a mapping without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.trim_start().starts_with('#'))
}

/// Address and path of the endpoint, if it is on.
pub(super) fn settings(environment: &Environment, given: impl Fn(&str) -> bool) -> Vec<Setting> {
    if environment.get(SWITCH).map(boolean) != Some(Ok(true)) {
        return Vec::new();
    }
    let [address, path] = [("metrics-address", "PROMETHEUS_ADDR"), ("metrics-path", "PROMETHEUS_PATH")].map(
        |(flag, variable)| {
            let value = environment.get(variable);
            let named = if value.is_some() { variable } else { SWITCH };
            (!given(flag)).then(|| (flag, named.to_owned(), value))
        },
    );
    let address = address.map(|(flag, variable, value)| {
        let value = value.unwrap_or(":9090");
        // In Go, a port without a host means all addresses.
        let value = if value.starts_with(':') { format!("[::]{value}") } else { value.to_owned() };
        Setting { flag, variable, value }
    });
    let path =
        path.and_then(|(flag, variable, value)| Some(Setting { flag, variable, value: value?.to_owned() }));
    address.into_iter().chain(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mapping_of_envoy_gateway_needs_no_warning() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("conf.yaml");
        let path = file.to_str().expect("UTF-8");
        assert!(!has_no_effect_anyway(MAPPER, path), "no file");
        for (text, is_usual) in [
            (ENVOY_GATEWAY_MAPPING.to_owned(), true),
            (format!("# A comment\n\n{ENVOY_GATEWAY_MAPPING}"), true),
            (ENVOY_GATEWAY_MAPPING.replace("key1", "rule"), false),
            (String::new(), false),
            ("mappings: []\n".repeat(10_000), false),
        ] {
            std::fs::write(&file, text).expect("written");
            assert_eq!(has_no_effect_anyway(MAPPER, path), is_usual);
            assert!(!has_no_effect_anyway("REDIS_TIMEOUT", path));
        }
    }
}
