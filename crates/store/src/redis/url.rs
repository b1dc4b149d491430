//! URLs of Redis servers.

use std::{borrow::Cow, fmt, str::FromStr};

use percent_encoding::percent_decode_str;
use redis::IntoConnectionInfo as _;
use tollgate_runtime::redact;

use super::address::Address;

const EXPECTED: &str = "expected redis://HOST:PORT, rediss://HOST:PORT, redis+unix:///PATH, \
     redis+sentinel://HOST:PORT,…/MASTER or redis+cluster://HOST:PORT,…";

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

/// Decodes percent-encoding. Refuses malformed sequences, which the crate would keep as they are.
fn decoded(text: &str) -> Result<String, String> {
    const EXPECTED: &str =
        "malformed percent-encoding; expected two hexadecimal digits of UTF-8 after each `%`";
    let is_encoded = |part: &str| {
        part.get(..2).is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    if !text.split('%').skip(1).all(is_encoded) {
        return Err(EXPECTED.into());
    }
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| EXPECTED.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        url.parse::<RedisUrl>().map_or_else(|error| format!("! {error}"), |servers| servers.to_string())
    }

    #[test]
    fn several_servers_are_read_and_shown_without_their_secrets() {
        for (url, expected) in [
            ("redis+cluster://a:1,b,[::1]:3", "redis+cluster://a:1,b:6379,[::1]:3"),
            ("rediss+cluster://u:s%40c@a", "rediss+cluster://u:***@a:6379"),
            ("redis+sentinel:// a , b:1 /main", "redis+sentinel://a:26379,b:1/main"),
            ("redis+cluster://u:p@ a, b:1", "redis+cluster://u:***@a:6379,b:1"),
            ("redis+sentinel://a,b:1/main", "redis+sentinel://a:26379,b:1/main"),
            (
                "rediss+sentinel://:secret@a/my%2Dmain?db=3&sentinel_username=u&sentinel_password=secret",
                "rediss+sentinel://:***@a:26379/my-main?db=3&sentinel_username=u&sentinel_password=***",
            ),
            (
                "redis+sentinel://a/m?sentinel_password=p@ss",
                "redis+sentinel://a:26379/m?sentinel_password=***",
            ),
        ] {
            assert_eq!(shown(url), expected);
        }
        let Ok(RedisUrl::Cluster(cluster)) = "redis+cluster://me%3a:p%C3%A9%25@a".parse() else {
            panic!("valid")
        };
        let login = cluster.login.map(|login| (login.user, login.password));
        assert_eq!(login, Some(("me:".into(), "pé%".into())));
    }

    #[test]
    fn malformed_urls_are_refused_without_quoting_them() {
        for url in [
            "redis+cluster://",
            "redis+cluster://a,",
            "redis+cluster://a/1",
            "redis+cluster://a?db=1",
            "redis+cluster://secret@a",
            "redis+cluster://u:secr%e@a",
            "redis+cluster://u:secret/more@a",
            "redis+sentinel://a",
            "redis+sentinel://a/",
            "redis+sentinel:///m",
            "redis+sentinel://a/m?db=x",
            "redis+sentinel://a/m?sentinel_username=u",
            "redis+sentinel://a/m?secret=1",
            "redis+sentinel://u:sec/ret@a/m",
            "redis://a,b",
            "redis://secret@a",
            "redis://u:@a:1/2",
            "redis+cluster://u:@a",
            "rediss://u:secret@a:1/#insecure",
            "rediss://a#insecure",
            "http://a",
            "redis://a b",
            "redis://a\nb",
            "redis+sentinel://a, ,b/m",
            "redis+sentinel://a b/m",
            "redis+cluster://a:1 b:2",
        ] {
            let error = shown(url);
            assert!(error.starts_with("! ") && !error.contains("sec"), "{url}: {error}");
        }
    }
}
