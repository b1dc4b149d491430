//! URLs of Redis servers, and addresses of servers.

use std::{fmt, str::FromStr, sync::Arc};

use redis::IntoConnectionInfo as _;
use tollgate_runtime::redact;

use crate::key::percent_decoded;

const EXPECTED: &str = "expected redis://HOST:PORT, rediss://HOST:PORT, redis+unix:///PATH, \
     redis+sentinel://HOST:PORT,…/MASTER or redis+cluster://HOST:PORT,…";

/// Maximum length of a host name, that of DNS.
const MAX_HOST_BYTES: usize = 253;

/// The servers of a store. `Display` and `Debug` show no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum RedisUrl {
    /// One server, at a URL of the client library's own form.
    Standalone(String),
    /// The master that Sentinel names.
    Sentinel(Box<Sentinel>),
    /// The masters of a cluster.
    Cluster(Box<Cluster>),
}

/// A master that Sentinel monitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    pub(super) sentinels: Vec<Address>,
    /// Name of the master in the sentinels' configuration.
    pub(super) master: String,
    pub(super) database: i64,
    /// Login at Redis.
    pub(super) login: Option<Login>,
    /// Login at the sentinels.
    pub(super) sentinel_login: Option<Login>,
    pub(super) has_tls: bool,
}

/// A cluster, by some of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub(super) seeds: Vec<Address>,
    pub(super) login: Option<Login>,
    pub(super) has_tls: bool,
}

/// A user, empty for the default one, and the password, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.user)
    }
}

impl RedisUrl {
    /// Whether connections to the servers use TLS.
    pub fn has_tls(&self) -> bool {
        match self {
            Self::Standalone(url) => url.starts_with("rediss://"),
            Self::Sentinel(sentinel) => sentinel.has_tls,
            Self::Cluster(cluster) => cluster.has_tls,
        }
    }
}

impl FromStr for RedisUrl {
    /// The expected form. Quotes nothing of the text, which may contain a password anywhere.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or(EXPECTED)?;
        let has_tls = scheme.starts_with("rediss");
        match scheme {
            "redis" | "rediss" => standalone(text, rest),
            "redis+unix" | "unix" if rest.starts_with('/') && rest.len() > 1 => {
                Ok(Self::Standalone(text.into()))
            }
            "redis+sentinel" | "rediss+sentinel" => sentinel(rest, has_tls).map(Box::new).map(Self::Sentinel),
            "redis+cluster" | "rediss+cluster" => cluster(rest, has_tls).map(Box::new).map(Self::Cluster),
            _ => Err(EXPECTED.into()),
        }
    }
}

fn standalone(url: &str, rest: &str) -> Result<RedisUrl, String> {
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    split_login(authority)?;
    match host {
        "" => Err(EXPECTED.into()),
        host if host.starts_with(['/', ':', '?']) => Err(EXPECTED.into()),
        host if host.contains(',') => {
            Err("several hosts; expected redis+cluster:// or redis+sentinel:// for these".into())
        }
        host if host.contains('#') => {
            Err("unexpected `#`; certificates are always verified, and in a password it is written %23"
                .into())
        }
        _ if Address::parse_list(host.split(['/', '?']).next().unwrap_or_default(), 6379).is_err()
            || url.into_connection_info().is_err() =>
        {
            Err("expected redis://HOST:PORT/DATABASE with a host, and with numbers for port and database"
                .into())
        }
        _ => Ok(RedisUrl::Standalone(url.into())),
    }
}

fn sentinel(rest: &str, has_tls: bool) -> Result<Sentinel, String> {
    const EXPECTED: &str = "expected redis+sentinel://[USER:PASSWORD@]HOST:PORT,…/MASTER";
    let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (servers, master) = servers.split_once('/').ok_or(EXPECTED)?;
    let (login, hosts) = split_login(servers)?;
    let (mut database, mut user, mut password) = (0, String::new(), None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("db", number)) => {
                let number = number.parse::<u16>().map_err(|_| "db: expected the number of a database")?;
                database = i64::from(number);
            }
            Some(("sentinel_username", value)) => user = decoded(value)?,
            Some(("sentinel_password", value)) => password = Some(decoded(value)?),
            _ => return Err("expected db, sentinel_username and sentinel_password after `?`".into()),
        }
    }
    let sentinel_login = match password {
        Some(password) => Some(Login { user, password }),
        None if user.is_empty() => None,
        None => return Err("sentinel_username needs sentinel_password".into()),
    };
    let sentinels = Address::parse_list(hosts, 26379)?;
    match decoded(master)? {
        master if master.is_empty() || master.contains('/') => Err(EXPECTED.into()),
        master => Ok(Sentinel { sentinels, master, database, login, sentinel_login, has_tls }),
    }
}

fn cluster(rest: &str, has_tls: bool) -> Result<Cluster, String> {
    if rest.contains(['/', '?', '#']) {
        return Err(
            "expected redis+cluster://[USER:PASSWORD@]HOST:PORT,… and nothing after it: a cluster has one \
                    database; a `/`, `?` or `#` in a password is written %2F, %3F or %23"
                .into(),
        );
    }
    let (login, hosts) = split_login(rest)?;
    Ok(Cluster { seeds: Address::parse_list(hosts, 6379)?, login, has_tls })
}

fn split_login(text: &str) -> Result<(Option<Login>, &str), String> {
    let Some((login, hosts)) = text.rsplit_once('@') else { return Ok((None, text)) };
    const EXPECTED: &str = "expected USER:PASSWORD or :PASSWORD before `@`";
    let (user, password) = login.split_once(':').ok_or(EXPECTED)?;
    // Such a user would not be authenticated at all.
    if password.is_empty() && !user.is_empty() {
        return Err(EXPECTED.into());
    }
    Ok((Some(Login { user: decoded(user)?, password: decoded(password)? }), hosts))
}

fn decoded(text: &str) -> Result<String, String> {
    percent_decoded(text.as_bytes()).ok_or_else(|| {
        "malformed percent-encoding; expected two hexadecimal digits of UTF-8 after each `%`".into()
    })
}

/// The URL, with `***` in place of every password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone(url) => f.write_str(&redact::url(url)),
            Self::Sentinel(sentinel) => {
                write_several(f, "sentinel", sentinel.has_tls, sentinel.login.as_ref(), &sentinel.sentinels)?;
                write!(f, "/{}", sentinel.master)?;
                let mut mark = '?';
                if sentinel.database != 0 {
                    write!(f, "?db={}", sentinel.database)?;
                    mark = '&';
                }
                match &sentinel.sentinel_login {
                    Some(Login { user, .. }) if user.is_empty() => write!(f, "{mark}sentinel_password=***"),
                    Some(Login { user, .. }) => {
                        write!(f, "{mark}sentinel_username={user}&sentinel_password=***")
                    }
                    None => Ok(()),
                }
            }
            Self::Cluster(cluster) => {
                write_several(f, "cluster", cluster.has_tls, cluster.login.as_ref(), &cluster.seeds)
            }
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_several(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    has_tls: bool,
    login: Option<&Login>,
    servers: &[Address],
) -> fmt::Result {
    write!(f, "redis{}+{kind}://", if has_tls { "s" } else { "" })?;
    if let Some(Login { user, .. }) = login {
        write!(f, "{user}:***@")?;
    }
    for (at, server) in servers.iter().enumerate() {
        write!(f, "{}{server}", if at == 0 { "" } else { "," })?;
    }
    Ok(())
}

/// A host name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Parses a comma-separated list without empty items, with or without blanks around them. The error does not quote
    /// them: they may be the rest of a password that was not escaped.
    pub(super) fn parse_list(text: &str, default_port: u16) -> Result<Vec<Self>, String> {
        let malformed =
            || "malformed server list; expected comma-separated HOST:PORT or [IPV6]:PORT".to_owned();
        text.split(',')
            .map(|address| Self::parse(address.trim(), default_port).ok_or_else(malformed))
            .collect()
    }

    fn parse(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let port = match port {
            "" => default_port,
            port => port.strip_prefix(':')?.parse().ok().filter(|port| *port != 0)?,
        };
        let is_valid = !host.is_empty() && host.bytes().all(|byte| is_host_byte(byte) && byte != b'%');
        is_valid.then(|| Self::new(host, port))
    }

    /// Parses an address of a cluster's redirection: an IPv6 address has no brackets there, and an absent host stands
    /// for that of the `queried` node.
    pub(super) fn from_redirect(text: &str, queried: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::from_node(host, port.parse().ok()?, queried)
    }

    /// The address of a node that announces `host`; `?` stands for a host unknown to the node itself. A text that cannot be
    /// the name of a host counts as unknown too.
    pub(super) fn from_node(host: &str, port: u16, queried: &Self) -> Option<Self> {
        match host {
            // Not announced yet.
            _ if port == 0 => None,
            "?" => None,
            "" => Some(Self { host: Arc::clone(&queried.host), port }),
            host if host.len() > MAX_HOST_BYTES || !host.bytes().all(is_host_byte) => None,
            host => Some(Self::new(host, port)),
        }
    }
}

/// Whether a host name or an IP address, possibly with a zone, can contain a byte.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'%')
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests;
