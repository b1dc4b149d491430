//! Arguments of `tollgate load`.

use std::{num::NonZeroU32, time::Duration};

use clap::{ArgAction, Args};
use tollgate_load::{KEY, LoadModel, LoadSettings, Target};

use super::{
    error::Problem,
    parsers::{DescriptorArgument, boolean, count, descriptor, duration, number, positive_duration},
};

#[derive(Args, Debug)]
pub(super) struct LoadFlags {
    /// Server to call. Repeated: the connections alternate between the servers.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8081")]
    target: Vec<Target>,
    /// Domain of the requests.
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// Descriptor of every request, its entries separated by commas as for `explain`; {key} is replaced by the number of a
    /// key. Repeated: several descriptors per request.
    #[arg(long, value_name = "KEY=VALUE,…", required = true, value_parser = descriptor)]
    descriptor: Vec<DescriptorArgument>,
    /// Hits of each request.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count::<NonZeroU32>)]
    hits: NonZeroU32,
    /// Number of keys, which are numbered from 0.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count::<usize>)]
    keys: usize,
    /// Exponent of a Zipf distribution over the keys, with key 0 the most frequent. 0: uniform.
    #[arg(long, value_name = "EXPONENT", default_value = "0", value_parser = exponent)]
    zipf: f64,
    /// Number of connections, distributed over the targets and the threads.
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = count::<usize>)]
    connections: usize,
    /// Requests in flight on a connection.
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = count::<usize>)]
    streams: usize,
    /// Requests per second (open loop), sent on schedule even if earlier requests are in flight; latency counts from the
    /// scheduled time. Default: each stream sends a request when it has received a response (closed loop).
    #[arg(long, value_name = "NUMBER", value_parser = rate)]
    rate: Option<f64>,
    /// Duration of the measurement.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    duration: Duration,
    /// Duration of the load before the measurement. Only the counts per key include it.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    warmup: Duration,
    /// Timeout of a request.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive_duration)]
    timeout: Duration,
    /// Timeout sent as `grpc-timeout`, like Envoy.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    send_deadline: bool,
    /// Number of threads.
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = count::<usize>)]
    threads: usize,
    /// Seed of the key sequence; the same seed yields the same keys.
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = number::<u64>)]
    seed: u64,
    /// Expected maximum of hits admitted per key: exit code 1 if a key exceeds it; denials below it are counted.
    #[arg(long, value_name = "COUNT", value_parser = number::<u64>)]
    admitted_limit: Option<u64>,
    /// Report as one JSON object.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    json: bool,
    /// No progress display, which appears on terminals only.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false")]
    #[arg(default_missing_value = "true", action = ArgAction::Set, value_parser = boolean)]
    quiet: bool,
}

impl LoadFlags {
    pub(super) fn resolve(self) -> Result<LoadSettings, Problem> {
        let has_key = self.descriptor.iter().flat_map(|words| &words.0);
        if self.keys > 1 && !has_key.into_iter().any(|(key, value)| key.contains(KEY) || value.contains(KEY))
        {
            return Err(Problem::new(
                "--keys",
                format!("several keys, but no descriptor has one; expected {KEY} in a --descriptor"),
            ));
        }
        Ok(LoadSettings {
            targets: self.target,
            domain: self.domain,
            descriptors: self.descriptor.into_iter().map(|DescriptorArgument(entries)| entries).collect(),
            hits: self.hits,
            keys: self.keys,
            zipf: self.zipf,
            connections: self.connections,
            streams: self.streams,
            model: self.rate.map_or(LoadModel::Closed, LoadModel::Open),
            duration: self.duration,
            warmup: self.warmup,
            timeout: self.timeout,
            sends_deadline: self.send_deadline,
            threads: self.threads.min(self.connections),
            seed: self.seed,
            admitted_limit: self.admitted_limit,
            json: self.json,
            quiet: self.quiet,
        })
    }
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
    use crate::settings;

    #[test]
    fn keys_need_a_placeholder_and_descriptors_need_values() {
        for line in ["--descriptor client=a --keys 2", "--descriptor client", "--descriptor =a", ""] {
            let words = format!("tollgate load --domain d {line}");
            let error =
                settings::parse(words.split_whitespace().map(Into::into), []).expect_err("is refused");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn numbers_stay_in_their_ranges() {
        assert_eq!((exponent("1.1"), rate("0.5")), (Ok(1.1), Ok(0.5)));
        assert!(["-1", "NaN", "11", ""].into_iter().all(|text| exponent(text).is_err()));
        assert!(["0", "-1", "NaN", "inf", "2e9"].into_iter().all(|text| rate(text).is_err()));
    }
}
