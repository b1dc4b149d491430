//! Settings of a run: the command line.

use std::{ffi::OsString, num::NonZeroU32, time::Duration};

use clap::{CommandFactory as _, Parser, error::ErrorKind};
use http::uri::Authority;
use tollgate_flags::{DescriptorArgument, count, descriptor, duration, positive_duration, web_url};

/// The placeholder in a descriptor that the number of a key replaces.
pub const KEY: &str = "{key}";

/// Generates load for any rate-limit service of Envoy's protocol, and reports request rates, latencies and the hits admitted
/// per key.
#[derive(Clone, Debug, Parser)]
#[command(name = "tollgate-load", version, args_override_self = true)]
pub struct LoadSettings {
    /// Server to call. Repeated: the connections alternate between the servers.
    #[arg(long = "target", value_name = "URL", default_value = "http://127.0.0.1:8081", value_parser = target)]
    pub targets: Vec<Authority>,
    /// Domain of the requests.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptor of every request, its entries separated by commas; {key} is replaced by the number of a key. A comma without
    /// a following `KEY=` is part of the value before it, and a value in double quotes is escaped as in JSON. Repeated:
    /// several descriptors per request.
    #[arg(long = "descriptor", value_name = "KEY=VALUE,…", required = true, value_parser = descriptor)]
    pub descriptors: Vec<DescriptorArgument>,
    /// Hits of each request.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub hits: NonZeroU32,
    /// Number of keys, which are numbered from 0.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count::<usize>)]
    pub keys: usize,
    /// Exponent of a Zipf distribution over the keys, with key 0 the most frequent. 0: uniform.
    #[arg(long, value_name = "EXPONENT", default_value = "0", value_parser = exponent)]
    pub zipf: f64,
    /// Number of connections, distributed over the targets and the threads.
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = count::<usize>)]
    pub connections: usize,
    /// Requests in flight on a connection.
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = count::<usize>)]
    pub streams: usize,
    /// Requests per second (open loop), sent on schedule even if earlier requests are in flight; latency counts from the
    /// scheduled time. Default: each stream sends a request when it has received a response (closed loop).
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    pub rate: Option<f64>,
    /// Duration of the measurement.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Duration of the load before the measurement. Only the counts per key include it.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub warmup: Duration,
    /// Timeout of a request.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    pub timeout: Duration,
    /// Timeout sent as `grpc-timeout`, like Envoy.
    #[arg(long)]
    pub send_deadline: bool,
    /// Number of threads, at most one for each connection.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count::<usize>)]
    pub threads: usize,
    /// Seed of the key sequence; the same seed yields the same keys.
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub seed: u64,
    /// Expected maximum of hits admitted per key: exit code 1 if a key exceeds it; denials below it are counted.
    #[arg(long, value_name = "COUNT")]
    pub admitted_limit: Option<u64>,
    /// Report as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// No progress display, which appears on terminals only.
    #[arg(long)]
    pub quiet: bool,
}

impl LoadSettings {
    /// Reads a command line, whose first word is the name of the program.
    ///
    /// # Errors
    /// An invalid flag, or the requested help.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let settings = Self::try_parse_from(words)?;
        let mut texts = settings.descriptors.iter().flatten();
        if settings.keys > 1 && !texts.any(|(key, value)| key.contains(KEY) || value.contains(KEY)) {
            let reason =
                format!("--keys: several keys, but no descriptor has one; expected {KEY} in a --descriptor");
            return Err(Self::command().error(ErrorKind::ValueValidation, reason));
        }
        Ok(Self { threads: settings.threads.min(settings.connections), ..settings })
    }
}

/// Parses the URL of a server to its host and port.
fn target(text: &str) -> Result<Authority, String> {
    const EXPECTED: &str = "expected http://HOST:PORT";
    let uri = web_url(text, EXPECTED)?;
    let is_plain = uri.scheme_str() == Some("http") && uri.port().is_some();
    let has_no_path = uri.path_and_query().is_none_or(|path| path == "/");
    let server = uri.into_parts().authority.filter(|_| is_plain && has_no_path);
    server.ok_or_else(|| EXPECTED.to_owned())
}

fn exponent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(exponent),
        _ => Err("expected a number from 0 to 10".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err("expected a number above 0, at most a billion".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        let words = format!("tollgate-load --domain d {line}");
        let error = LoadSettings::read(words.split_whitespace().map(Into::into)).expect_err("is refused");
        assert_eq!(error.exit_code(), 2, "{line}");
        error.to_string()
    }

    #[test]
    fn keys_need_a_placeholder_and_descriptors_need_values() {
        for (line, expected) in [
            ("--descriptor client=a --keys 2", "expected {key} in a --descriptor"),
            ("--descriptor client", "`client` is not an entry; expected KEY=VALUE"),
            ("--descriptor =a", "`=a` is not an entry"),
            ("--descriptor k=v --hits 0", "--hits"),
            ("--descriptor k=v --keys 0", "--keys"),
            ("--descriptor k=v --timeout 0s", "expected more than zero"),
            ("", "--descriptor"),
        ] {
            assert!(refusal(line).contains(expected), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn there_are_no_more_threads_than_connections() {
        let words = "tollgate-load --domain d --descriptor k=v --threads 8 --connections 2";
        let settings = LoadSettings::read(words.split(' ').map(Into::into)).expect("valid");
        assert_eq!((settings.threads, settings.rate, settings.json), (2, None, false));
    }

    #[test]
    fn numbers_stay_in_their_ranges() {
        assert_eq!((exponent("1.1"), rate("0.5")), (Ok(1.1), Ok(0.5)));
        assert!(["-1", "NaN", "11", ""].into_iter().all(|text| exponent(text).is_err()));
        assert!(["0", "-1", "NaN", "inf", "2e9"].into_iter().all(|text| rate(text).is_err()));
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let authority = |text| target(text).map(|server| server.to_string());
        assert_eq!(authority("http://localhost:8081").as_deref(), Ok("localhost:8081"));
        assert_eq!(authority("http://[::1]:1/").as_deref(), Ok("[::1]:1"));
        for text in ["", "localhost:8081", "http://localhost", "https://a:1", "http://a:1/b", "http://:1"] {
            assert!(authority(text).is_err(), "{text}");
        }
    }
}
