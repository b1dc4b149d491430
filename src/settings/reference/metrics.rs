//! Prometheus endpoint of the reference: a separate port, if it is switched on.

use crate::settings::{
    environment::{Environment, Setting},
    parsers::boolean,
};

const SWITCH: &str = "USE_PROMETHEUS";

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
