//! The reference's addresses: a host and a port each.

use crate::settings::environment::{Environment, Found};

/// What makes the admin port safe where others reach it.
const GUARDS: [&str; 2] = ["admin-token-file", "admin-tls-client-ca"];

/// Where gRPC listens there, if that is said.
pub(super) fn grpc(environment: &Environment) -> Option<String> {
    address(environment, ["GRPC_HOST", "GRPC_PORT"], ["0.0.0.0", "8081"])
}

/// Where HTTP listens there, if that is said.
pub(super) fn http(environment: &Environment) -> Option<String> {
    address(environment, ["HOST", "PORT"], ["0.0.0.0", "8080"])
}

/// Where operators look, if that is said. Everyone may there, and here only who shows something: without that it stays
/// where this machine alone reaches it.
pub(super) fn admin(environment: &Environment, given: impl Fn(&str) -> bool) -> Option<String> {
    let address = address(environment, ["DEBUG_HOST", "DEBUG_PORT"], ["127.0.0.1", "6070"])?;
    match is_open(environment, given) {
        true => Some(format!("127.0.0.1:{}", environment.get("DEBUG_PORT").unwrap_or("6070"))),
        false => Some(address),
    }
}

/// Notes where a port is not where it was asked to be.
pub(super) fn review(environment: &Environment, found: &mut Found, given: impl Fn(&str) -> bool) {
    if !given("admin-address") && is_open(environment, &given) {
        found.notices.push(
            "DEBUG_HOST has no effect: the admin port can change limits, so that others than this machine \
             reach it only with --admin-token-file or --admin-tls-client-ca"
                .to_owned(),
        );
    }
}

/// Whether the admin port would be open to everyone.
fn is_open(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_local =
        |host: &str| matches!(host.trim_matches(['[', ']']), "localhost" | "::1") || host.starts_with("127.");
    environment.get("DEBUG_HOST").is_some_and(|host| !is_local(host)) && !GUARDS.into_iter().any(given)
}

fn address(environment: &Environment, names: [&str; 2], usual: [&str; 2]) -> Option<String> {
    let [host, port] = names.map(|name| environment.get(name));
    if host.is_none() && port.is_none() {
        return None;
    }
    let [usual_host, usual_port] = usual;
    Some(joined(host.unwrap_or(usual_host), port.unwrap_or(usual_port)))
}

/// A host and a port as one: there, an address of IPv6 needs no brackets.
pub(super) fn joined(host: &str, port: &str) -> String {
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
