//! Command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{
    Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum, parser::ValueSource,
};

use super::{
    Command, Settings, SettingsError,
    admin::AdminFlags,
    admin_client::{
        AdminCommand, CounterCommand, CounterSelector, EventsQuery, ListCommand, OverrideCommand, QueryFlags,
        RegionsCommand, RuleQuery, RulesCommand, SubcommandFlags, SwitchCommand, TopQuery,
    },
    environment::{self, Environment, EnvironmentFlags},
    error::Problem,
    grpc::GrpcFlags,
    metrics_port::MetricsFlags,
    on_store_error::StoreErrorFlags,
    otlp::OtlpFlags,
    parsers::{DescriptorArgument, descriptor},
    process::ProcessFlags,
    regions::RegionFlags,
    response::{BoundFlags, ResponseFlags},
    rules::{ReadingFlags, RulesFlags},
    statsd::StatsdFlags,
    store::StoreFlags,
    webhook::WebhookFlags,
};

/// A rate-limit service for Envoy and Istio.
///
/// Implements envoy.service.ratelimit.v3 with rules from YAML files, a control plane or its admin API, and counters in
/// Redis or in memory. Without a command it serves.
///
/// Every option is a flag and an environment variable. A flag overrides its TOLLGATE_ variable, which overrides the
/// variables of envoyproxy/ratelimit (listed after it), which override the default. An empty variable counts as unset; an
/// unknown TOLLGATE_ variable or an invalid value fails startup with exit code 2. Durations have the syntax of Go (10ms,
/// 1h30m). A BOOL is true or false; a BOOL flag without a value is true.
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
    /// Serve requests until SIGTERM or SIGINT. The default command.
    Serve(Box<ServeFlags>),
    /// Validate a configuration: report every problem, and exit with 1 if there is one.
    Check(CheckFlags),
    /// Explain the rules that a request matches: the branch that each entry takes and those it passes over, the limit, the
    /// counter, its hash tag and its Redis Cluster slot. Charges nothing.
    Explain(ExplainFlags),
    /// List, compare and change the rule versions of a running server.
    Rules(SubcommandFlags<RulesCommand>),
    /// Reset and refund counters of a running server, and list and lift their bans.
    Counters(SubcommandFlags<CounterCommand>),
    /// Show what a key has used of its limit on a running server, and when it resets. Charges nothing.
    Usage(QueryFlags<CounterSelector>),
    /// Deny or allow requests on a running server, by the deny and allow lists. For bans of rules see `counters bans`.
    Lists(SubcommandFlags<ListCommand>),
    /// Switch rules of a running server off, to shadow mode, or to decide without Redis (`emergency`).
    Switch(SubcommandFlags<SwitchCommand>),
    /// Override the limit of a rule, or of one key of it, on a running server, with or without an end.
    Override(SubcommandFlags<OverrideCommand>),
    /// Show the regions of a running server, and drop one from a region table.
    Regions(SubcommandFlags<RegionsCommand>),
    /// Show the keys with the most hits and the most denied hits of the last minute, in all instances.
    Top(QueryFlags<TopQuery>),
    /// Compare rules with their candidates: hits that only one of both denied, in all instances.
    Candidates(QueryFlags<RuleQuery>),
    /// Recommend limits for the rules of a running server, from the demand of their keys.
    Recommend(QueryFlags<RuleQuery>),
    /// Show the events of all instances, newest first.
    Events(QueryFlags<EventsQuery>),
    /// Print the JSON Schema of the rules and of overlays, for editors.
    Schema,
    /// Print the completions of a shell, for a file that it loads.
    Completions(CompletionsFlags),
    /// Print the manual page, or write one for each command to a directory.
    Man(ManFlags),
    /// Print a generated page of the documentation, in Markdown.
    #[command(hide = true)]
    Docs(DocsFlags),
}

#[derive(Args)]
struct ServeFlags {
    #[command(flatten)]
    rules: RulesFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    on_store_error: StoreErrorFlags,
    #[command(flatten)]
    grpc: GrpcFlags,
    #[command(flatten)]
    response: ResponseFlags,
    #[command(flatten)]
    bounds: BoundFlags,
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
    #[command(flatten)]
    admin: AdminFlags,
    #[command(flatten)]
    region: RegionFlags,
    #[command(flatten)]
    webhook: WebhookFlags,
    #[command(flatten)]
    otlp: OtlpFlags,
    #[command(flatten)]
    statsd: StatsdFlags,
}

/// Arguments of `tollgate check`.
#[derive(Args, Debug)]
pub struct CheckFlags {
    /// Directory of the rules, or a single file.
    #[arg(value_name = "DIR|FILE")]
    pub directory: PathBuf,
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    bounds: BoundFlags,
    /// Region table, for warnings of limits of `scope: global`.
    #[arg(long, value_name = "FILE")]
    pub regions: Option<PathBuf>,
}

/// Arguments of `tollgate explain`.
#[derive(Args, Debug)]
pub struct ExplainFlags {
    /// Directory of the rules, or a single file.
    #[arg(long, value_name = "DIR|FILE", default_value = "config/default")]
    pub config: PathBuf,
    #[command(flatten)]
    reading: ReadingFlags,
    /// Domain of the request.
    #[arg(long, value_name = "NAME")]
    pub domain: String,
    /// Descriptors of the request, each with its entries separated by commas. A comma without a following `KEY=` is part of
    /// the value before it, and a value in double quotes is escaped as in JSON: `'forwarded="for=a, for=b"'`.
    #[arg(value_name = "KEY=VALUE,…", required = true, value_parser = descriptor)]
    pub descriptors: Vec<DescriptorArgument>,
}

#[derive(Args, Debug)]
struct CompletionsFlags {
    /// Shell that loads the completions.
    #[arg(value_name = "SHELL", value_enum)]
    shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
struct ManFlags {
    /// Directory for the pages, which is created.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct DocsFlags {
    /// Page of docs/reference.
    #[arg(value_name = "PAGE", value_enum)]
    page: DocsPage,
}

/// Generated page of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocsPage {
    /// Flags and variables of `tollgate serve`.
    Settings,
    /// Variables of envoyproxy/ratelimit.
    Environment,
    /// Subcommands.
    Cli,
    /// Metrics.
    Metrics,
}

impl CheckFlags {
    /// Directory of files to lay over the rules.
    pub fn overlay(&self) -> Option<&Path> {
        self.reading.overlay()
    }

    /// Options for reading the files.
    pub fn options(&self) -> tollgate_rules::config::Options {
        tollgate_rules::config::Options { bounds: self.bounds.resolve(), ..self.reading.resolve() }
    }
}

impl ExplainFlags {
    /// Directory of files to lay over the rules.
    pub fn overlay(&self) -> Option<&Path> {
        self.reading.overlay()
    }

    /// Options for reading the files.
    pub fn options(&self) -> tollgate_rules::config::Options {
        self.reading.resolve()
    }
}

/// Parses a command line, whose first word is the name of the program, and the environment.
///
/// # Errors
/// Every invalid setting, or the requested help.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, SettingsError> {
    let command = command();
    let words: Vec<OsString> = words.into_iter().map(environment::trimmed).collect();
    let verb = words.get(1).and_then(|word| command.find_subcommand(word)).map(clap::Command::get_name);
    let verb = verb.filter(|verb| *verb != SERVE).map(ToOwned::to_owned);
    parse_words(command, words, environment).map_err(|error| error.of_command(verb))
}

fn parse_words(
    command: clap::Command,
    mut words: Vec<OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, SettingsError> {
    // The words alone are parsed first: help and usage errors do not depend on the environment.
    let said = command.clone().try_get_matches_from(&words)?;
    let said = said.subcommand().map_or(&said, |(_, matches)| matches);
    let multi_line = environment::multi_line(&words);
    if !multi_line.is_empty() {
        return Err(multi_line.into());
    }
    let is_given = |flag: &str| {
        let id = flag.replace('-', "_");
        said.ids().any(|known| known.as_str() == id)
            && said.value_source(&id) == Some(ValueSource::CommandLine)
    };

    let verb = words.get(1).and_then(|word| command.find_subcommand(word));
    let found = match verb.map(clap::Command::get_name) {
        // These print files for other programs.
        Some(DOCS | SCHEMA | COMPLETIONS | MAN) => EnvironmentFlags::default(),
        Some(_) | None => {
            Environment::new(environment).flags_of(verb.unwrap_or(&command), &command, is_given)
        }
    };
    if !found.problems.is_empty() {
        return Err(found.problems.into());
    }
    // The last occurrence of a flag applies, so the environment goes before the words.
    let at = words.len().min(if verb.is_some() { 2 } else { 1 });
    words.splice(at..at, found.words);
    let mut matches = command.try_get_matches_from(words)?;
    let cli = Cli::from_arg_matches_mut(&mut matches)?;
    resolve(cli, found.notices).map_err(|problem| vec![problem].into())
}

/// The command that the flags of a verb state. `notices` are about variables of the environment.
fn resolve(cli: Cli, notices: Vec<String>) -> Result<Command, Problem> {
    match cli.verb {
        None => cli.serve.resolve(notices),
        Some(Verb::Serve(flags)) => flags.resolve(notices),
        Some(Verb::Check(flags)) => Ok(Command::Check(flags)),
        Some(Verb::Explain(flags)) => Ok(Command::Explain(flags)),
        Some(Verb::Rules(flags)) => flags.resolve(AdminCommand::Rules),
        Some(Verb::Counters(flags)) => flags.resolve(AdminCommand::Counter),
        Some(Verb::Usage(flags)) => flags.resolve(AdminCommand::Usage),
        Some(Verb::Lists(flags)) => flags.resolve(AdminCommand::List),
        Some(Verb::Switch(flags)) => flags.resolve(AdminCommand::Switch),
        Some(Verb::Override(flags)) => flags.resolve(AdminCommand::Override),
        Some(Verb::Regions(flags)) => flags.resolve(AdminCommand::Regions),
        Some(Verb::Top(flags)) => flags.resolve(AdminCommand::Top),
        Some(Verb::Candidates(flags)) => flags.resolve(AdminCommand::Candidates),
        Some(Verb::Recommend(flags)) => flags.resolve(AdminCommand::Recommend),
        Some(Verb::Events(flags)) => flags.resolve(AdminCommand::Events),
        Some(Verb::Schema) => Ok(Command::Schema),
        Some(Verb::Completions(flags)) => Ok(Command::Completions(flags.shell)),
        Some(Verb::Man(flags)) => Ok(Command::Man(flags.directory)),
        Some(Verb::Docs(flags)) => Ok(Command::Docs(flags.page)),
    }
}

const SERVE: &str = "serve";
const DOCS: &str = "docs";
const SCHEMA: &str = "schema";
const COMPLETIONS: &str = "completions";
const MAN: &str = "man";

/// The command line, with the variables of each flag in its help.
pub fn command() -> clap::Command {
    environment::shown_in_help(Cli::command())
}

/// The flags that an environment sets for `tollgate serve`.
pub fn serving(environment: &Environment) -> EnvironmentFlags {
    let command = command();
    let verb = command.find_subcommand("serve").unwrap_or(&command);
    environment.flags_of(verb, &command, |_| false)
}

/// Whether a flag of `tollgate serve`, given with its dashes, accumulates its values.
pub fn collects(flag: &str) -> bool {
    environment::collects(&Cli::command(), flag.trim_start_matches('-'))
}

/// The settings that flags of `tollgate serve` resolve to, without an environment.
///
/// # Errors
/// Every invalid flag.
pub fn served(flags: &[OsString]) -> Result<Box<Settings>, SettingsError> {
    let words = ["tollgate", "serve"].map(OsString::from).into_iter().chain(flags.iter().cloned());
    match parse(words, [])? {
        Command::Serve(settings) => Ok(settings),
        _ => Err(vec![Problem::new("serve", "expected only flags")].into()),
    }
}

impl ServeFlags {
    fn resolve(self, notices: Vec<String>) -> Result<Command, Problem> {
        let store = self.store.resolve()?;
        let mut rules = self.rules.resolve(&store)?;
        rules.options.bounds = self.bounds.resolve();
        let grpc = self.grpc.resolve()?;
        let metrics = self.metrics.resolve(self.process.http_address)?;
        let (http, process) = self.process.resolve()?;
        Ok(Command::Serve(Box::new(Settings {
            bounds: rules.options.bounds,
            rules,
            store,
            on_store_error: self.on_store_error.resolve(),
            grpc,
            metrics,
            http,
            process,
            modes: self.response.modes(),
            response: self.response.resolve(),
            traces: self.otlp.resolve(),
            statsd: self.statsd.resolve()?,
            top_talkers: self.admin.top_talkers,
            admin: self.admin.resolve()?,
            region: self.region.resolve()?,
            webhook: self.webhook.resolve()?,
            notices,
        })))
    }
}

#[cfg(test)]
mod tests;
