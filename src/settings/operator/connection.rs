//! How the admin API of a running tollgate is reached.

use std::{fmt, path::PathBuf};

use clap::Args;
use http::Uri;

use super::{super::error::Problem, OperatorSettings, Task};

/// The flag that has a variable, `TOLLGATE_ADMIN_URL`. The others have none: one that reads like a variable of the server
/// might leave a port without its token.
pub(in crate::settings) const FLAGS: [&str; 1] = ["admin-url"];

#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(in crate::settings) struct ConnectionFlags {
    /// The admin port, http or https. [env: TOLLGATE_ADMIN_URL]
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:6070", value_parser = url)]
    admin_url: AdminUrl,
    /// File with the token that tells who asks.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Who asks, where the port knows nobody by a token.
    #[arg(long, global = true, value_name = "NAME", value_parser = author)]
    author: Option<String>,
    /// PEM file of the authorities that the port's certificate is to be of, in place of the usual public ones.
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file of a certificate to show, where the port asks for one.
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, global = true, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write the API's answer as one line of JSON.
    #[arg(long, global = true)]
    json: bool,
}

/// How the admin API is reached. `Debug` shows no secret: these are in files.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Where it is.
    pub url: AdminUrl,
    /// File with the token to show, if any.
    pub token_file: Option<PathBuf>,
    /// Who asks, to be believed where nobody has a token.
    pub author: Option<String>,
    /// File with the authorities to trust; the usual public ones unless said.
    pub authorities: Option<PathBuf>,
    /// The certificate to show, if any.
    pub identity: Option<Identity>,
}

/// The files of a client's certificate.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Text,
    /// As one line of JSON.
    Json,
}

/// A scheme, a host and perhaps a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl(String);

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn url(text: &str) -> Result<AdminUrl, String> {
    const EXPECTED: &str = "expected a URL such as http://127.0.0.1:6070, without a path";
    let url: Uri = text.parse().map_err(|_| EXPECTED)?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    let scheme = url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
    // A name or a password before the host would be shown in errors.
    let authority = url.authority().map(http::uri::Authority::as_str).filter(|host| !host.contains('@'));
    match (scheme, authority) {
        (Some(scheme), Some(authority)) if is_bare => Ok(AdminUrl(format!("{scheme}://{authority}"))),
        _ => Err(EXPECTED.to_owned()),
    }
}

/// Reads a name that a header may have.
fn author(text: &str) -> Result<String, String> {
    let is_good = !text.trim().is_empty() && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_good { Ok(text.to_owned()) } else { Err("expected a name in ASCII".to_owned()) }
}

impl ConnectionFlags {
    pub(super) fn resolve(self, task: Task) -> Result<OperatorSettings, Problem> {
        let identity = match (self.cert, self.key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(Problem::new("--cert", "needs --key")),
            (None, Some(_)) => return Err(Problem::new("--key", "needs --cert")),
        };
        let connection = ConnectionSettings {
            url: self.admin_url,
            token_file: self.token_file,
            author: self.author,
            authorities: self.ca,
            identity,
        };
        let output = if self.json { Output::Json } else { Output::Text };
        Ok(OperatorSettings { connection, output, task })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_and_a_host() {
        assert_eq!(url("http://[::1]:6070/").map(|url| url.to_string()).as_deref(), Ok("http://[::1]:6070"));
        assert!(url("https://admin.example").is_ok());
        for text in ["", "localhost:6070", "ftp://a", "http://a/b", "http://a/?b", "http://me:secret@a"] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
