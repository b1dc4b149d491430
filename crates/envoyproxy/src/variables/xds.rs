//! Control plane of the reference: one variable selects it, the others configure it.

use tollgate_flags::{Problem, environment::EnvironmentFlags, positive_duration, ratio};
use tollgate_xds::BACKOFF;

use super::Inputs;

/// Source of the rules.
const SOURCE: &str = "CONFIG_TYPE";
const USE_TLS: &str = "CONFIG_GRPC_XDS_SERVER_USE_TLS";
const JITTER: &str = "XDS_CLIENT_BACKOFF_JITTER";

/// Flags that apply if the control plane has TLS.
const TLS_FLAGS: [&str; 3] = ["xds-ca", "xds-client-cert", "xds-server-name"];

/// Whether the reference has its rules from a control plane, and no flag of tollgate overrides it.
fn selects_xds(inputs: Inputs<'_>) -> bool {
    let kind = inputs.get(SOURCE);
    !inputs.is_given("rules") && kind.is_some_and(|kind| kind.eq_ignore_ascii_case("GRPC_XDS_SOTW"))
}

fn has_tls(inputs: Inputs<'_>) -> bool {
    selects_xds(inputs) && inputs.switch(USE_TLS) == Some(true)
}

/// Reports invalid variables and those without effect.
pub(super) fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    let known = ["FILE", "GRPC_XDS_SOTW"];
    if let Some(kind) = inputs.get(SOURCE)
        && !known.iter().any(|known| kind.eq_ignore_ascii_case(known))
    {
        found.problems.push(inputs.environment.invalid(SOURCE, "expected FILE or GRPC_XDS_SOTW"));
    }
    for switch in [USE_TLS, JITTER] {
        found.problems.extend(inputs.environment.invalid_boolean(switch));
    }
    let selects_xds = selects_xds(inputs);
    for (flag, variable, value) in inputs.set_for("xds-") {
        if [USE_TLS, JITTER].contains(&variable.name) || variable.is_default(value) == Ok(true) {
            continue;
        }
        let why = match () {
            () if !selects_xds && inputs.is_given("rules") => {
                "--rules selects the source; use the --xds flags"
            }
            () if !selects_xds => "CONFIG_TYPE is not GRPC_XDS_SOTW",
            () if TLS_FLAGS.contains(&flag) && !has_tls(inputs) && !inputs.is_given(flag) => {
                "CONFIG_GRPC_XDS_SERVER_USE_TLS is not true"
            }
            () => continue,
        };
        found.notices.push(format!("{} has no effect: {why}", variable.name));
    }
}

/// Source of the rules, if it is a control plane.
pub(super) fn source(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    selects_xds(inputs).then(|| Ok("xds".to_owned()))
}

/// URL of the control plane, which the reference has as a target of grpc-go.
pub(super) fn server(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let server = inputs.get("CONFIG_GRPC_XDS_SERVER_URL").unwrap_or("localhost:18000");
    let address = server.strip_prefix("dns:").map_or(server, |name| name.trim_start_matches('/'));
    let address = address.strip_prefix("passthrough:///").unwrap_or(address);
    let scheme = if has_tls(inputs) { "https" } else { "http" };
    selects_xds(inputs).then(|| Ok(format!("{scheme}://{address}")))
}

/// Value of a variable, if there is a control plane. In the reference, a size of 0 means the default of its library.
pub(super) fn value(inputs: Inputs<'_>, name: &str) -> Option<Result<String, Problem>> {
    let is_stated = |value: &&str| (name, *value) != ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0");
    let value = inputs.get(name).filter(|_| selects_xds(inputs)).filter(is_stated);
    value.map(|value| Ok(value.to_owned()))
}

/// Value of a variable, if the control plane has TLS.
pub(super) fn with_tls(inputs: Inputs<'_>, name: &str) -> Option<Result<String, Problem>> {
    inputs.get(name).filter(|_| has_tls(inputs)).map(|value| Ok(value.to_owned()))
}

/// Files of the client certificate, if the control plane has TLS.
pub(super) fn client_certificate(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let pair = inputs.pair("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY");
    pair.filter(|_| has_tls(inputs))
}

/// Headers in the syntax of the flag; the reference separates names and values by a colon.
pub(super) fn headers(inputs: Inputs<'_>, name: &str) -> Option<Result<String, Problem>> {
    let pairs = inputs.get(name).filter(|_| selects_xds(inputs))?.split(',');
    let pairs = pairs.map(|pair| match pair.split_once(':') {
        Some((name, value)) => format!("{name}={value}"),
        None => pair.to_owned(),
    });
    Some(Ok(pairs.collect::<Vec<_>>().join(",")))
}

/// Pauses between connection attempts, with the defaults of the flag for those that are not set.
pub(super) fn backoff(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let stated = match backoff_parts(inputs) {
        Ok(parts) => parts,
        Err(problem) => return selects_xds(inputs).then_some(Err(problem)),
    };
    let is_stated = stated.iter().any(|part| !part.is_empty());
    let mut parts: Vec<&str> = BACKOFF.split(',').collect();
    for (part, stated) in parts.iter_mut().zip(stated).filter(|(_, stated)| !stated.is_empty()) {
        *part = stated;
    }
    (is_stated && selects_xds(inputs)).then(|| Ok(parts.join(",")))
}

/// First pause, longest pause and jitter, each empty if it is not set.
fn backoff_parts(inputs: Inputs<'_>) -> Result<[&str; 3], Problem> {
    let initial = match inputs.checked("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", positive_duration)? {
        "" => inputs.checked("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", positive_duration)?,
        initial => initial,
    };
    // The factor of the reference may exceed 1, and is not a share then.
    let jitter = match inputs.switch(JITTER) {
        Some(false) => "0",
        _ => inputs.checked("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", ratio)?,
    };
    Ok([initial, inputs.checked("XDS_CLIENT_BACKOFF_MAX_INTERVAL", positive_duration)?, jitter])
}
