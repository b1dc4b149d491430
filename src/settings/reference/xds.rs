//! Control plane of the reference: one variable selects it, the others configure it.

use super::catalogue;
use crate::settings::{
    environment::{Environment, EnvironmentFlags, Setting},
    parsers::boolean,
};

/// Source of the rules.
const SOURCE: &str = "CONFIG_TYPE";
const SERVER: &str = "CONFIG_GRPC_XDS_SERVER_URL";
const USE_TLS: &str = "CONFIG_GRPC_XDS_SERVER_USE_TLS";
const JITTER: &str = "XDS_CLIENT_BACKOFF_JITTER";
const MAX_MESSAGE: &str = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES";

/// Flags and their variables; the first variable of a flag overrides the second.
const FLAGS: [(&str, &str); 9] = [
    ("xds-node-id", "CONFIG_GRPC_XDS_NODE_ID"),
    ("xds-node-metadata", "CONFIG_GRPC_XDS_NODE_METADATA"),
    ("xds-headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"),
    ("xds-backoff-initial", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
    ("xds-backoff-initial", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
    ("xds-backoff-max", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
    ("xds-backoff-jitter", "XDS_CLIENT_BACKOFF_RANDOM_FACTOR"),
    ("xds-max-message-bytes", MAX_MESSAGE),
    ("xds-server-name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
];

/// Flags and their variables if the control plane has TLS.
const TLS_FLAGS: [(&str, &str); 3] = [
    ("xds-ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
    ("xds-client-cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
    ("xds-client-key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
];

/// Whether the reference has its rules from a control plane, and no flag of tollgate overrides it.
fn selects_xds(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    !given("rules") && environment.get(SOURCE).is_some_and(|kind| kind.eq_ignore_ascii_case("GRPC_XDS_SOTW"))
}

fn has_tls(environment: &Environment) -> bool {
    matches!(environment.get(USE_TLS).map(boolean), Some(Ok(true)))
}

/// Reports invalid variables and those without effect.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    let known = ["FILE", "GRPC_XDS_SOTW"];
    if let Some(kind) = environment.get(SOURCE)
        && !known.iter().any(|known| kind.eq_ignore_ascii_case(known))
    {
        found.problems.push(environment.invalid(SOURCE, "expected FILE or GRPC_XDS_SOTW"));
    }
    for switch in [USE_TLS, JITTER] {
        found.problems.extend(environment.invalid_boolean(switch));
    }
    let selects_xds = selects_xds(environment, &given);
    let others = FLAGS.iter().chain(&TLS_FLAGS).chain(&[("xds-server", SERVER)]);
    for (flag, variable) in
        others.filter(|(_, variable)| catalogue::is_changed(variable, environment.get(variable)))
    {
        let is_of_tls = TLS_FLAGS.iter().any(|(known, _)| known == flag) || *flag == "xds-server-name";
        if !selects_xds {
            let why = match given("rules") {
                true => "--rules selects the source; use the --xds flags",
                false => "CONFIG_TYPE is not GRPC_XDS_SOTW",
            };
            found.notices.push(format!("{variable} has no effect: {why}"));
        } else if is_of_tls && !has_tls(environment) && !given(flag) {
            found.notices.push(format!("{variable} has no effect: {USE_TLS} is not true"));
        }
    }
}

/// The flags that the variables set.
pub(super) fn settings(environment: &Environment, given: impl Fn(&str) -> bool) -> Vec<Setting> {
    if !selects_xds(environment, &given) {
        return Vec::new();
    }
    let has_tls = has_tls(environment);
    let mut settings = vec![Setting { flag: "rules", variable: SOURCE.to_owned(), value: "xds".to_owned() }];
    if !given("xds-server") {
        let server = environment.get(SERVER).unwrap_or("localhost:18000");
        settings.push(Setting {
            flag: "xds-server",
            variable: SERVER.to_owned(),
            value: url(server, has_tls),
        });
    }
    let tls: &[_] = if has_tls { &TLS_FLAGS } else { &[] };
    for (flag, variable) in FLAGS.iter().chain(tls).copied().filter(|(flag, _)| !given(flag)) {
        let is_set = settings.iter().any(|known: &Setting| known.flag == flag);
        let applies = flag != "xds-server-name" || has_tls;
        // In the reference, a size of 0 means the default of its library.
        let selects_xds = |value: &&str| !is_set && applies && (variable, *value) != (MAX_MESSAGE, "0");
        if let Some(value) = environment.get(variable).filter(selects_xds) {
            let value = match variable {
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" => headers(value),
                _ => value.to_owned(),
            };
            settings.push(Setting { flag, variable: variable.to_owned(), value });
        }
    }
    // The factor of the reference may exceed 1, and is not a share then.
    if matches!(environment.get(JITTER).map(boolean), Some(Ok(false))) && !given("xds-backoff-jitter") {
        settings.retain(|setting| setting.flag != "xds-backoff-jitter");
        let flag = "xds-backoff-jitter";
        settings.push(Setting { flag, variable: JITTER.to_owned(), value: "0".to_owned() });
    }
    settings
}

/// URL of a grpc-go target.
fn url(server: &str, has_tls: bool) -> String {
    let address = server.strip_prefix("dns:").map_or(server, |name| name.trim_start_matches('/'));
    let address = address.strip_prefix("passthrough:///").unwrap_or(address);
    format!("{}://{address}", if has_tls { "https" } else { "http" })
}

/// Headers in the syntax of the flag; the reference separates names and values by a colon.
fn headers(text: &str) -> String {
    let pairs = text.split(',').map(|pair| match pair.split_once(':') {
        Some((name, value)) => format!("{name}={value}"),
        None => pair.to_owned(),
    });
    pairs.collect::<Vec<_>>().join(",")
}
