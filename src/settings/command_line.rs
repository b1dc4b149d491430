//! Command line: its commands, and the settings of each from words and environment.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, parser::ValueSource};
use tollgate_flags::environment::{Environment, EnvironmentFlags, alone, multi_line, trimmed};
use tollgate_flags::{Problem, switch};

use super::{Settings, SettingsError, environment};

/// Flags of `tollgate serve` that `-h` shows; `--help` shows all.
const BASIC: &str = "config rules store store-timeout on-store-error grpc-address grpc-tls response-headers shadow-mode \
                     http-address workers drain-delay log-level admin-address admin-token-file otlp-endpoint";

/// A parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Serve requests until a signal.
    Serve(Box<Settings>),
    /// Another subcommand.
    #[cfg(feature = "cli")]
    Cli(Box<tollgate_cli::Verb>),
}

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
    serve: Settings,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve requests until SIGTERM or SIGINT. The default command.
    Serve(Box<Settings>),
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Cli(Box<tollgate_cli::Verb>),
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
    let words: Vec<OsString> = words.into_iter().map(trimmed).collect();
    let verb = words.get(1).and_then(|word| command.find_subcommand(word)).map(clap::Command::get_name);
    let verb = verb.filter(|verb| *verb != SERVE).map(ToOwned::to_owned);
    parse_words(&command, words, environment).map_err(|error| error.of_command(verb))
}

fn parse_words(
    command: &clap::Command,
    mut words: Vec<OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, SettingsError> {
    let verb = words.get(1).and_then(|word| command.find_subcommand(word));
    // The words alone are parsed first: help and usage errors do not depend on the environment, which may have a flag that
    // another one requires.
    let stated = match command.clone().try_get_matches_from(&words) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            command.clone().ignore_errors(true).try_get_matches_from(&words)?
        }
        stated => stated.map_err(|error| match unknown_word(command, &words, &error) {
            Some(problem) => vec![problem].into(),
            None => SettingsError::from(error),
        })?,
    };
    let stated = stated.subcommand().map_or(&stated, |(_, matches)| matches);
    let multi_line = multi_line(&words, &environment::WITH_LINES);
    if !multi_line.is_empty() {
        return Err(multi_line.into());
    }
    let is_given = |flag: &str| {
        let mut arguments = verb.unwrap_or(command).get_arguments();
        let id = arguments.find(|arg| arg.get_long() == Some(flag)).map(clap::Arg::get_id);
        id.is_some_and(|id| stated.value_source(id.as_str()) == Some(ValueSource::CommandLine))
    };
    let found = match verb.map(clap::Command::get_name) {
        // These print files for other programs.
        #[cfg(feature = "cli")]
        Some(verb) if tollgate_cli::prints_files(verb) => EnvironmentFlags::default(),
        Some(_) | None => {
            environment::flags_of(&Environment::new(environment), verb.unwrap_or(command), command, is_given)
        }
    };
    if !found.problems.is_empty() {
        return Err(found.problems.into());
    }
    // The last occurrence of a flag applies, so the environment goes before the words.
    let at = words.len().min(if verb.is_some() { 2 } else { 1 });
    words.splice(at..at, found.words);
    let matches = command.clone().try_get_matches_from(&words);
    let matches = matches.map_err(|error| match lacking(command, &words, &error) {
        problems if problems.is_empty() => SettingsError::from(error),
        problems => problems.into(),
    })?;
    stated_command(&matches, found.notices)
}

/// The command that arguments state. `notices` are about variables of the environment.
fn stated_command(matches: &ArgMatches, notices: Vec<String>) -> Result<Command, SettingsError> {
    let cli = Cli::from_arg_matches(matches)?;
    Ok(match cli.verb.unwrap_or_else(|| Verb::Serve(Box::new(cli.serve))) {
        Verb::Serve(settings) => Command::Serve(Box::new(settings.resolved(notices)?)),
        #[cfg(feature = "cli")]
        Verb::Cli(verb) => Command::Cli(verb),
    })
}

/// The problem of a word that the command does not know, unless it is similar to a subcommand or has one dash.
fn unknown_word(command: &clap::Command, words: &[OsString], error: &clap::Error) -> Option<Problem> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            ContextKind::InvalidSubcommand
        }
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let word = error.get(kind)?.to_string();
    // The first line of a PEM key begins with dashes too.
    let of_a_flag = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    if !word.starts_with('-') || !word.chars().all(of_a_flag) {
        let reason = "unknown argument; expected a flag or a command of `tollgate --help`";
        return Some(Problem::of_text("command line", &word, reason));
    }
    let mut path = vec![command];
    for word in words.iter().skip(1) {
        path.extend(path.last().and_then(|verb| verb.find_subcommand(word)));
    }
    Some(Problem::new(&word, environment::unknown_flag(word.strip_prefix("--")?, &path)))
}

/// The problems of flags that require others, if that is the error. The parser names only those that are required.
fn lacking(command: &clap::Command, words: &[OsString], error: &clap::Error) -> Vec<Problem> {
    let Ok(matches) = command.clone().ignore_errors(true).try_get_matches_from(words) else {
        return Vec::new();
    };
    let verb =
        matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    let (verb, matches) = verb.unwrap_or((command, &matches));
    let lacks = |flag: &str, value: &OsStr, required: &str| {
        let (_, error) = alone(verb, flag, value);
        error.is_some_and(|error| required_flags(&error).any(|flag| flag == required))
    };
    let stated = verb.get_arguments().filter_map(|arg| {
        let id = arg.get_id().as_str();
        let is_stated = matches.value_source(id) == Some(ValueSource::CommandLine);
        Some((arg.get_long().filter(|_| is_stated)?, matches.get_raw(id)?.next()?))
    });
    let stated: Vec<_> = stated.collect();
    let problem = |required: String| {
        let (flag, _) = stated.iter().find(|(flag, value)| lacks(flag, value, &required))?;
        Some(Problem::new(format!("--{flag}"), format!("requires {required}")))
    };
    // Without the reason of each, the parser's own list of them is shown.
    required_flags(error).map(problem).collect::<Option<_>>().unwrap_or_default()
}

/// The flags that are missing.
fn required_flags(error: &clap::Error) -> impl Iterator<Item = String> {
    let missing = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => missing.as_slice(),
        _ => &[],
    };
    let flags = missing.iter().filter(|argument| argument.starts_with("--"));
    flags.filter_map(|flag| flag.split(' ').next().map(ToOwned::to_owned))
}

const SERVE: &str = "serve";

/// The command line, with the variables of each flag in its help.
pub fn command() -> clap::Command {
    let verb = |verb: clap::Command| {
        let verb = verb.mut_args(switch);
        if verb.get_name() == SERVE { verb.mut_args(brief) } else { verb }
    };
    let command = Cli::command().mut_args(switch).mut_args(brief).mut_subcommands(verb);
    environment::shown_in_help(command)
}

/// A flag that `-h` shows only if it is a basic one.
fn brief(arg: clap::Arg) -> clap::Arg {
    let is_basic = arg.get_long().is_none_or(|flag| BASIC.split(' ').any(|basic| basic == flag));
    arg.hide_short_help(!is_basic)
}

/// The flags that an environment sets for `tollgate serve`.
pub fn serving(environment: &Environment) -> EnvironmentFlags {
    let command = command();
    let verb = command.find_subcommand("serve").unwrap_or(&command);
    environment::flags_of(environment, verb, &command, |_| false)
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
        #[cfg(feature = "cli")]
        Command::Cli(_) => Err(vec![Problem::new("serve", "expected only flags")].into()),
    }
}
