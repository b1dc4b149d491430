//! Ports of the reference: each has a variable for its host and one for its port, and gRPC has TLS.

use tollgate_flags::{Problem, environment::EnvironmentFlags};

use super::Inputs;

/// Flags that authenticate clients of the admin port.
const AUTHENTICATION_FLAGS: [&str; 2] = ["admin-token-file", "admin-tls-client-ca"];

/// Switch of TLS on the gRPC port.
const TLS: &str = "GRPC_SERVER_USE_TLS";
const TLS_CERTIFICATE: &str = "GRPC_SERVER_TLS_CERT";
const TLS_KEY: &str = "GRPC_SERVER_TLS_KEY";

/// gRPC address, if set, or a unix socket.
pub(super) fn grpc(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    match inputs.get("GRPC_UDS") {
        Some(path) => Some(Ok(format!("unix:{path}"))),
        None => Some(Ok(address(inputs, ["GRPC_HOST", "GRPC_PORT"], ["0.0.0.0", "8081"])?)),
    }
}

/// HTTP address, if set.
pub(super) fn http(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    address(inputs, ["HOST", "PORT"], ["0.0.0.0", "8080"]).map(Ok)
}

/// Admin address, if set. The debug port of the reference has no authentication; without it the admin port stays on the
/// loopback interface.
pub(super) fn admin(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let address = address(inputs, ["DEBUG_HOST", "DEBUG_PORT"], ["127.0.0.1", "6070"])?;
    Some(Ok(match is_open(inputs) {
        true => format!("127.0.0.1:{}", inputs.get("DEBUG_PORT").unwrap_or("6070")),
        false => address,
    }))
}

/// Certificate of the gRPC port and its key, if the switch is on.
pub(super) fn tls(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    // The review reports a missing file.
    inputs.pair(TLS_CERTIFICATE, TLS_KEY).filter(|pair| has_tls(inputs) && pair.is_ok())
}

/// Value of a variable of TLS, if the switch is on.
pub(super) fn with_tls(inputs: Inputs<'_>, name: &str) -> Option<Result<String, Problem>> {
    inputs.get(name).filter(|_| has_tls(inputs)).map(|value| Ok(value.to_owned()))
}

fn has_tls(inputs: Inputs<'_>) -> bool {
    inputs.switch(TLS) == Some(true)
}

/// Reports an admin port that stays on the loopback interface, and variables of TLS that are missing or have no effect.
pub(super) fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    if !inputs.is_given("admin-address") && is_open(inputs) {
        found.notices.push(
            "DEBUG_HOST has no effect: the admin port can change limits; an address that is not a loopback address \
             requires --admin-token-file or --admin-tls-client-ca"
                .to_owned(),
        );
    }
    let missing = [TLS_CERTIFICATE, TLS_KEY].into_iter().find(|name| inputs.get(name).is_none());
    if let Some(missing) = missing.filter(|_| has_tls(inputs) && !inputs.is_given("grpc-tls")) {
        // A port without TLS would be less secure than intended.
        found.problems.push(Problem::new(TLS, format!("set, but {missing} is not")));
    }
    // The review of the catalogue reports an invalid switch.
    if inputs.get(TLS).is_none() || inputs.switch(TLS) == Some(false) {
        for (_, variable, _) in inputs.set_for("grpc-tls").filter(|(flag, ..)| !inputs.is_given(flag)) {
            found.notices.push(format!("{} has no effect: {TLS} is not true", variable.name));
        }
    }
}

/// Whether the admin port would be reachable without authentication.
fn is_open(inputs: Inputs<'_>) -> bool {
    let is_local =
        |host: &str| matches!(host.trim_matches(['[', ']']), "localhost" | "::1") || host.starts_with("127.");
    inputs.get("DEBUG_HOST").is_some_and(|host| !is_local(host))
        && !AUTHENTICATION_FLAGS.into_iter().any(|flag| inputs.is_given(flag))
}

fn address(inputs: Inputs<'_>, names: [&str; 2], defaults: [&str; 2]) -> Option<String> {
    let [host, port] = names.map(|name| inputs.get(name));
    host.or(port)?;
    let [default_host, default_port] = defaults;
    Some(joined(host.unwrap_or(default_host), port.unwrap_or(default_port)))
}

/// Joins a host and a port. The reference accepts IPv6 addresses without brackets.
pub(super) fn joined(host: &str, port: &str) -> String {
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
