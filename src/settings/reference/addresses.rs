//! Addresses of the reference, each in a variable for the host and one for the port.

use crate::settings::environment::{Environment, EnvironmentFlags};

/// Flags that authenticate clients of the admin port.
const AUTHENTICATION_FLAGS: [&str; 2] = ["admin-token-file", "admin-tls-client-ca"];

/// gRPC address, if set.
pub(super) fn grpc(environment: &Environment) -> Option<String> {
    address(environment, ["GRPC_HOST", "GRPC_PORT"], ["0.0.0.0", "8081"])
}

/// HTTP address, if set.
pub(super) fn http(environment: &Environment) -> Option<String> {
    address(environment, ["HOST", "PORT"], ["0.0.0.0", "8080"])
}

/// Admin address, if set. The debug port of the reference has no authentication; without it the admin port stays on the
/// loopback interface.
pub(super) fn admin(environment: &Environment, given: impl Fn(&str) -> bool) -> Option<String> {
    let address = address(environment, ["DEBUG_HOST", "DEBUG_PORT"], ["127.0.0.1", "6070"])?;
    match is_open(environment, given) {
        true => Some(format!("127.0.0.1:{}", environment.get("DEBUG_PORT").unwrap_or("6070"))),
        false => Some(address),
    }
}

/// Reports an admin port that stays on the loopback interface.
pub(super) fn review(environment: &Environment, found: &mut EnvironmentFlags, given: impl Fn(&str) -> bool) {
    if !given("admin-address") && is_open(environment, &given) {
        found.notices.push(
            "DEBUG_HOST has no effect: the admin port can change limits; an address that is not a loopback address \
             requires --admin-token-file or --admin-tls-client-ca"
                .to_owned(),
        );
    }
}

/// Whether the admin port would be reachable without authentication.
fn is_open(environment: &Environment, given: impl Fn(&str) -> bool) -> bool {
    let is_local =
        |host: &str| matches!(host.trim_matches(['[', ']']), "localhost" | "::1") || host.starts_with("127.");
    environment.get("DEBUG_HOST").is_some_and(|host| !is_local(host))
        && !AUTHENTICATION_FLAGS.into_iter().any(given)
}

fn address(environment: &Environment, names: [&str; 2], defaults: [&str; 2]) -> Option<String> {
    let [host, port] = names.map(|name| environment.get(name));
    if host.is_none() && port.is_none() {
        return None;
    }
    let [default_host, default_port] = defaults;
    Some(joined(host.unwrap_or(default_host), port.unwrap_or(default_port)))
}

/// Joins a host and a port. The reference accepts IPv6 addresses without brackets.
pub(super) fn joined(host: &str, port: &str) -> String {
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
