//! Redis of the reference: several variables that compose a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tollgate_flags::{Problem, boolean, environment::EnvironmentFlags};

use super::Inputs;

/// Variables that imply a Redis: without REDIS_URL they fail startup rather than select counters in memory.
const REDIS_VARIABLES: [&str; 5] =
    ["REDIS_TYPE", "REDIS_AUTH", "REDIS_SOCKET_TYPE", "REDIS_TLS", "BACKEND_TYPE"];

/// Reports variables without effect, and a missing REDIS_URL.
pub(super) fn review(inputs: Inputs<'_>, found: &mut EnvironmentFlags) {
    let is_sentinel = inputs.get("REDIS_TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("sentinel"));
    if inputs.get("REDIS_SENTINEL_AUTH").is_some() && !is_sentinel {
        found.notices.push("REDIS_SENTINEL_AUTH has no effect: REDIS_TYPE is not SENTINEL".to_owned());
    }
    let runs_there = inputs.get("RUNTIME_ROOT").is_some() || inputs.get("RUNTIME_SUBDIRECTORY").is_some();
    let is_configured = inputs.get("REDIS_URL").is_some()
        || REDIS_VARIABLES.into_iter().any(|name| names_redis(inputs, name))
        || inputs.is_given("store");
    if runs_there && !is_configured {
        found.notices.push("REDIS_URL is not set: limits apply to each instance separately".to_owned());
    }
}

/// Whether a variable is set to a value that implies a Redis.
fn names_redis(inputs: Inputs<'_>, name: &str) -> bool {
    inputs.get(name).is_some_and(|value| match name {
        "BACKEND_TYPE" => value.eq_ignore_ascii_case("redis"),
        "REDIS_TLS" => boolean(value) == Ok(true),
        _ => true,
    })
}

/// URL of the Redis that the reference would use, if one is configured.
pub(super) fn url(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    let Some(url) = inputs.get("REDIS_URL") else {
        let orphan = REDIS_VARIABLES.into_iter().find(|name| names_redis(inputs, name));
        return orphan.map(|name| {
            Err(Problem::new(name, "set, but REDIS_URL is not; expected REDIS_URL, or --store memory"))
        });
    };
    let Ok(tls) = inputs.get("REDIS_TLS").map_or(Ok(false), boolean) else {
        return inputs.environment.invalid_boolean("REDIS_TLS").map(Err);
    };
    let kind = inputs.get("REDIS_TYPE").unwrap_or("single").to_ascii_lowercase();
    Some(match kind.as_str() {
        "single" => single_url(inputs, url, tls),
        "sentinel" => sentinel_url(inputs, url, tls),
        "cluster" => {
            let user_info = user_info_prefix(inputs, url);
            Ok(format!("{}+cluster://{user_info}{url}", scheme(tls)))
        }
        _ => Err(inputs.environment.invalid("REDIS_TYPE", "expected SINGLE, SENTINEL or CLUSTER")),
    })
}

/// Files of the client certificate.
pub(super) fn client_certificate(inputs: Inputs<'_>, _: &str) -> Option<Result<String, Problem>> {
    inputs.pair("REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY")
}

fn single_url(inputs: Inputs<'_>, url: &str, tls: bool) -> Result<String, Problem> {
    // The default of the reference is unix, which a URL with a host contradicts.
    let kind = inputs.get("REDIS_SOCKET_TYPE").unwrap_or("tcp").to_ascii_lowercase();
    if !["tcp", "unix"].contains(&&*kind) {
        return Err(inputs.environment.invalid("REDIS_SOCKET_TYPE", "expected unix or tcp"));
    }
    if kind == "unix" && !url.starts_with('/') && !url.contains("://") {
        return Err(Problem::new(
            "REDIS_SOCKET_TYPE",
            "unix, but REDIS_URL is not a path of a socket; expected tcp",
        ));
    }
    if url.starts_with('/') {
        if tls {
            return Err(Problem::new(
                "REDIS_TLS",
                "true, but REDIS_URL is a socket, which has no TLS; expected false",
            ));
        }
        let query = login(inputs, "REDIS_AUTH").map(|(user, password)| match user.as_str() {
            "" => format!("?pass={password}"),
            user => format!("?user={user}&pass={password}"),
        });
        return Ok(format!("redis+unix://{url}{}", query.unwrap_or_default()));
    }
    let (scheme, host) = url.split_once("://").unwrap_or(("redis", url));
    let scheme = if scheme == "redis" && tls { "rediss" } else { scheme };
    let user_info = user_info_prefix(inputs, host);
    Ok(format!("{scheme}://{user_info}{host}"))
}

/// URL of Sentinel; REDIS_URL of the reference begins with the name of the master.
fn sentinel_url(inputs: Inputs<'_>, url: &str, tls: bool) -> Result<String, Problem> {
    let (master, sentinels) = url.split_once(',').ok_or_else(|| {
        inputs.environment.invalid("REDIS_URL", "expected MASTER,HOST:PORT,… with REDIS_TYPE SENTINEL")
    })?;
    let master = master.trim_end();
    let query = login(inputs, "REDIS_SENTINEL_AUTH").map(|(user, password)| match user.as_str() {
        "" => format!("?sentinel_password={password}"),
        user => format!("?sentinel_username={user}&sentinel_password={password}"),
    });
    let user_info = user_info_prefix(inputs, sentinels);
    let (scheme, master, query) = (scheme(tls), encoded(master), query.unwrap_or_default());
    Ok(format!("{scheme}+sentinel://{user_info}{sentinels}/{master}{query}"))
}

const fn scheme(tls: bool) -> &'static str {
    if tls { "rediss" } else { "redis" }
}

/// User, empty for the default one, and password of a variable, both percent-encoded.
fn login(inputs: Inputs<'_>, variable: &str) -> Option<(String, String)> {
    let login = inputs.get(variable)?;
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    Some((encoded(user), encoded(password)))
}

/// Login of `REDIS_AUTH` for a URL, unless the servers have one.
fn user_info_prefix(inputs: Inputs<'_>, servers: &str) -> String {
    let login = login(inputs, "REDIS_AUTH").filter(|_| !servers.contains('@'));
    login.map(|(user, password)| format!("{user}:{password}@")).unwrap_or_default()
}

/// Percent-encodes `text` for any part of a URL.
fn encoded(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}
