//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, parser::ValueSource};

use super::{
    Command, Settings, SettingsError,
    admin::AdminFlags,
    answers::{AnswerFlags, BoundFlags},
    environment::{self, Environment, Found},
    error::Problem,
    failure::FailureFlags,
    grpc::GrpcFlags,
    load::LoadFlags,
    metrics_port::MetricsFlags,
    migrate::MigrateFlags,
    operator::{BanFlags, CountersFlags, RulesFlags as VersionFlags, SwitchFlags},
    process::ProcessFlags,
    rules::{ReadingFlags, RulesFlags},
    statsd::StatsdFlags,
    store::StoreFlags,
    traces::TraceFlags,
    value::{DescriptorWords, descriptor},
};

/// A rate-limit service for Envoy and Istio.
///
/// Answers envoy.service.ratelimit.v3 by the rules in a directory of YAML files, counting in Redis or in this
/// process. Without a command it serves.
///
/// Every option is a flag and an environment variable. A flag wins over its TOLLGATE_ variable, which wins over
/// the variable that envoyproxy/ratelimit has for the same (named second), which wins over the default. An
/// empty variable counts as unset; an unknown TOLLGATE_ variable, or a value that cannot be read, stops the
/// start with exit code 2. Durations are written as in Go (10ms, 1h30m), BOOLs are true or false, and a BOOL
/// flag without a value is true.
#[derive(Parser)]
#[command(name = "tollgate", version, args_conflicts_with_subcommands = true, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Subcommand)]
enum Verb {
    /// Answer requests until told to stop; the same as no command.
    Serve(Box<ServeFlags>),
    /// Read a configuration, report every problem in it, and exit with 1 if there is one.
    Check(CheckFlags),
    /// Say which rules a request would meet, and why those: what each entry matched and what it passed over,
    /// the limit, the counter, its hash tag and its slot in a Redis Cluster. Charges nothing.
    Explain(ExplainFlags),
    /// Read how envoyproxy/ratelimit is run (its variables, its rules) and say how tollgate is run the same way, what
    /// differs, and what to do. Exit code 0: it works unchanged; 1: something is refused. Starts and changes nothing.
    Migrate(MigrateFlags),
    /// Put load on a rate-limit service, this one or another, and report how it answered: rates, latencies, and
    /// how many hits each key was admitted.
    Load(Box<LoadFlags>),
    /// Look at the versions of the rules on a running tollgate, and change them.
    Rules(VersionFlags),
    /// Look at a counter of a running tollgate, and give hits back to it.
    Counters(CountersFlags),
    /// Deny requests on a running tollgate at once, or allow them.
    Ban(BanFlags),
    /// Switch single rules of a running tollgate off, or to shadow mode.
    Switch(SwitchFlags),
}

#[derive(Args)]
struct ServeFlags {
    #[command(flatten)]
    rules: RulesFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    failure: FailureFlags,
    #[command(flatten)]
    grpc: GrpcFlags,
    #[command(flatten)]
    answers: AnswerFlags,
    #[command(flatten)]
    bounds: BoundFlags,
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    statsd: StatsdFlags,
}

/// What `tollgate check` is told.
#[derive(Args, Debug)]
pub struct CheckFlags {
    /// Directory with the rules.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    reading: ReadingFlags,
}

/// What `tollgate explain` is told.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// Directory with the rules.
    #[arg(long, value_name = "DIR", default_value = "config/default")]
    pub config: PathBuf,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Domain of the request.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptors of the request, each its entries joined by commas.
    #[arg(value_name = "KEY=VALUE,…", required = true, value_parser = descriptor)]
    pub descriptors: Vec<DescriptorWords>,
}

impl CheckFlags {
    /// How the files are read.
    pub const fn options(&self) -> crate::config::Options {
        self.reading.resolve()
    }
}

impl ExplainFlags {
    /// How the files are read.
    pub const fn options(&self) -> crate::config::Options {
        self.reading.resolve()
    }
}

/// Reads a command line, whose first word is the program's name, and the environment.
///
/// # Errors
/// Every setting that is wrong, or the help that was asked for.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, SettingsError> {
    let command = environment::shown_in_help(Cli::command());
    let mut words: Vec<OsString> = words.into_iter().collect();
    // The words alone come first: help and typing errors do not depend on the environment.
    let said = command.clone().try_get_matches_from(&words)?;
    let said = said.subcommand().map_or(&said, |(_, matches)| matches);
    let is_given = |flag: &str| {
        let id = flag.replace('-', "_");
        said.ids().any(|known| known.as_str() == id)
            && said.value_source(&id) == Some(ValueSource::CommandLine)
    };

    let verb = words.get(1).and_then(|word| command.find_subcommand(word));
    let environment: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let found = match verb.is_some_and(|verb| verb.get_name() == MIGRATE) {
        // What it is told of another process is none of its own settings.
        true => Found::default(),
        false => Environment::new(environment.clone()).flags_of(verb.unwrap_or(&command), &command, is_given),
    };
    if !found.problems.is_empty() {
        return Err(found.problems.into());
    }
    // A flag's last mention counts, so what the environment says goes before the words.
    let at = words.len().min(if verb.is_some() { 2 } else { 1 });
    words.splice(at..at, found.words);
    let mut matches = command.try_get_matches_from(words)?;
    let cli = Cli::from_arg_matches_mut(&mut matches)?;
    match cli.verb {
        None => cli.serve.resolve(found.notices),
        Some(Verb::Serve(flags)) => flags.resolve(found.notices),
        Some(Verb::Check(flags)) => Ok(Command::Check(flags)),
        Some(Verb::Explain(flags)) => Ok(Command::Explain(flags)),
        Some(Verb::Migrate(flags)) => Ok(Command::Migrate(flags.resolve(environment))),
        Some(Verb::Load(flags)) => flags.resolve().map(Command::Load),
        Some(Verb::Rules(flags)) => flags.resolve().map(Command::Operate),
        Some(Verb::Counters(flags)) => flags.resolve().map(Command::Operate),
        Some(Verb::Ban(flags)) => flags.resolve().map(Command::Operate),
        Some(Verb::Switch(flags)) => flags.resolve().map(Command::Operate),
    }
    .map_err(|problem| vec![problem].into())
}

/// The command that looks at the environment of another process.
const MIGRATE: &str = "migrate";

/// What an environment says for `tollgate serve`.
pub(super) fn serving(environment: &Environment) -> Found {
    let command = environment::shown_in_help(Cli::command());
    let verb = command.find_subcommand("serve").unwrap_or(&command);
    environment.flags_of(verb, &command, |_| false)
}

/// Whether a flag of `tollgate serve`, with its dashes, may be given several times, and all of them count.
pub(super) fn collects(flag: &str) -> bool {
    environment::collects(&Cli::command(), flag.trim_start_matches('-'))
}

/// What flags of `tollgate serve` come to, without any environment.
pub(super) fn served(flags: &[OsString]) -> Result<Box<Settings>, SettingsError> {
    let words = ["tollgate", "serve"].map(OsString::from).into_iter().chain(flags.iter().cloned());
    match parse(words, [])? {
        Command::Serve(settings) => Ok(settings),
        _ => Err(vec![Problem::new("serve", "expected flags alone")].into()),
    }
}

impl ServeFlags {
    fn resolve(self, notices: Vec<String>) -> Result<Command, Problem> {
        let store = self.store.resolve()?;
        Ok(Command::Serve(Box::new(Settings {
            rules: self.rules.resolve(&store)?,
            store,
            failure: self.failure.resolve(),
            grpc: self.grpc.resolve()?,
            http_address: self.process.http_address,
            metrics: self.metrics.resolve(self.process.http_address)?,
            workers: self.process.workers(),
            drain_delay: self.process.drain_delay,
            drain_timeout: self.process.drain_timeout,
            handshake_timeout: self.process.handshake_timeout,
            modes: self.answers.modes(),
            answers: self.answers.resolve(),
            bounds: self.bounds.resolve(),
            log: self.process.log(),
            metric_names: self.process.metric_names(),
            http_tls: self.process.http_tls.resolve()?,
            traces: self.traces.resolve(),
            statsd: self.statsd.resolve()?,
            top_talkers: self.admin.top_talkers,
            admin: self.admin.resolve()?,
            notices,
        })))
    }
}

#[cfg(test)]
mod tests;
