//! Connection to the admin API.

use std::{fmt, path::PathBuf};

use clap::Args;

use super::{
    super::{error::Problem, parsers::web_url},
    AdminClientSettings, AdminCommand, Command,
};

/// Flags that have a variable: `TOLLGATE_ADMIN_URL`. The others have none, because a name similar to a variable of the
/// server might leave a port without its token.
pub(in crate::settings) const FLAGS: [&str; 1] = ["admin-url"];

#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(super) struct ConnectionFlags {
    /// URL of the admin port, http or https. [env: TOLLGATE_ADMIN_URL]
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:6070", value_parser = url)]
    admin_url: AdminUrl,
    /// File with the token of the caller.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Name of the caller in the audit log, for a port without tokens.
    #[arg(long, global = true, value_name = "NAME", value_parser = author)]
    author: Option<String>,
    /// PEM file of the CAs for the certificate of the port. Default: the Mozilla root CAs.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of the client certificate; requires --key.
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// PEM file of the key of that certificate.
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Response of the API as one line of JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// Connection to the admin API. `Debug` shows no secret: these are in files.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// URL of the admin port.
    pub url: AdminUrl,
    /// File with the token of the caller.
    pub token_file: Option<PathBuf>,
    /// Name of the caller, for a port without tokens.
    pub author: Option<String>,
    /// PEM file of the trusted CAs. `None`: the Mozilla root CAs.
    pub authorities: Option<PathBuf>,
    /// Client certificate.
    pub identity: Option<ClientIdentity>,
}

/// PEM files of a client certificate.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Key of the certificate.
    pub key: PathBuf,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Plain text.
    Text,
    /// One line of JSON.
    Json,
}

/// URL of the admin port: a scheme, a host and an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl(String);

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn url(text: &str) -> Result<AdminUrl, String> {
    const EXPECTED: &str = "expected a URL such as http://127.0.0.1:6070, without a path";
    let url = web_url(text, EXPECTED)?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    match (url.scheme_str(), url.authority()) {
        (Some(scheme), Some(authority)) if is_bare => Ok(AdminUrl(format!("{scheme}://{authority}"))),
        _ => Err(EXPECTED.to_owned()),
    }
}

/// Parses a name that is valid in a header.
fn author(text: &str) -> Result<String, String> {
    let is_good = !text.trim().is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_good { Ok(text.to_owned()) } else { Err("expected a name in ASCII".to_owned()) }
}

impl ConnectionFlags {
    pub(super) fn resolve(self, command: AdminCommand) -> Result<Command, Problem> {
        let identity = match (self.cert, self.key) {
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(Problem::new("--cert", "requires --key")),
            (None, Some(_)) => return Err(Problem::new("--key", "requires --cert")),
        };
        let connection = ConnectionSettings {
            url: self.admin_url,
            token_file: self.token_file,
            author: self.author,
            authorities: self.ca,
            identity,
        };
        let output = if self.json { OutputFormat::Json } else { OutputFormat::Text };
        Ok(Command::AdminClient(AdminClientSettings { connection, output, command }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        assert_eq!(url("http://[::1]:6070/").map(|url| url.to_string()).as_deref(), Ok("http://[::1]:6070"));
        assert!(url("https://admin.example").is_ok());
        for text in ["", "localhost:6070", "ftp://a", "http://a/b", "http://a/?b", "http://me:secret@a"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
