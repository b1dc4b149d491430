//! Flags that the environment sets.

use clap::{Arg, ArgAction, Command};
use tollgate_envoyproxy::variables::{self, Inputs};
use tollgate_flags::Problem;
use tollgate_flags::environment::{Environment, EnvironmentFlags, PREFIX, is_link_to_port};

pub(super) use tollgate_rules::config::nearest;

/// Flags with a variable that only the commands that call a server have: `TOLLGATE_ADMIN_URL`. Their others have none, because
/// a name similar to a variable of the server might leave a port without its token.
const CLIENT_FLAGS: [&str; 1] = ["admin-url"];

/// Flags whose values may have lines.
pub(super) const WITH_LINES: [&str; 3] = ["--statsd-rewrite", "--comment", "--reason"];

/// Collects the flags of `verb`, a subcommand of `root`, which has every flag with a variable. Variables of the
/// reference are ignored for flags that are `given` as words or by the `TOLLGATE_` variable: some, such as HOST, have
/// other meanings in other programs.
pub(super) fn flags_of(
    environment: &Environment,
    verb: &Command,
    root: &Command,
    given: impl Fn(&str) -> bool,
) -> EnvironmentFlags {
    let mut found = EnvironmentFlags::default();
    let is_given = |flag: &str| {
        !has_flag(verb, flag) || given(flag) || environment.variables.contains_key(&variable(flag))
    };
    if has_flag(verb, "grpc-address") {
        found.problems.extend(unknown_variables(environment, root));
        found.problems.extend(unsafely_empty(environment));
        variables::review(Inputs::new(environment, &is_given), &mut found);
    }
    for setting in variables::settings(Inputs::new(environment, &is_given), &mut found.problems) {
        if has_flag(verb, setting.flag) {
            found.add(verb, setting.flag, &setting.variable, setting.value.as_ref(), &WITH_LINES);
        }
    }
    for flag in flags(verb).filter(|flag| has_flag(root, flag) || CLIENT_FLAGS.contains(flag)) {
        let name = variable(flag);
        // The last occurrence does not override the others of a flag that accumulates.
        if given(flag) && collects(verb, flag) {
            continue;
        }
        if let Some(value) = environment.variables.get(&name) {
            found.add(verb, flag, &name, value, &WITH_LINES);
        }
    }
    found
}

/// Reports empty variables that would make a port more secure: most likely their source is missing.
fn unsafely_empty(environment: &Environment) -> impl Iterator<Item = Problem> {
    let ours = environment.empty.iter().filter(|name| name.starts_with(PREFIX));
    let guards = ours.filter(|name| name.contains("_TLS") || name.ends_with("_ADMIN_TOKEN_FILE"));
    guards.map(|name| {
        Problem::new(name, "is set but empty, which would disable this protection; unset it to confirm")
    })
}

/// Reports unknown variables with the prefix of tollgate: most likely misspelled.
fn unknown_variables(environment: &Environment, root: &Command) -> impl Iterator<Item = Problem> {
    let known: Vec<String> = flags(root).chain(CLIENT_FLAGS).map(variable).collect();
    let ours = environment.variables.iter().filter(|(name, _)| name.starts_with(PREFIX));
    ours.filter_map(move |(name, value)| {
        let is_known = known.contains(name) || is_service_link(name, value.to_str().unwrap_or_default());
        (!is_known).then(|| Problem::new(name, unknown(name.trim_start_matches(PREFIX), &known)))
    })
}

/// Reason of an unknown variable, with the one that was likely meant. `name` has no prefix.
fn unknown(name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(|known| known.trim_start_matches(PREFIX)).collect();
    let own = meant(name, &known);
    let of_reference = variables::all().map(|variable| variable.name).find(|known| *known == name);
    let meant = own.map(|own| format!("{PREFIX}{own}")).or(of_reference.map(ToOwned::to_owned));
    match meant {
        Some(meant) => format!("unknown setting; did you mean `{meant}`?"),
        None => "unknown setting; expected one of those in `tollgate --help`".to_owned(),
    }
}

/// Reason of an unknown flag, with the one that was likely meant. `path` has the program and the subcommands that are stated.
pub(super) fn unknown_flag(flag: &str, path: &[&Command]) -> String {
    let known: Vec<&str> = path.iter().copied().flat_map(flags).collect();
    if let Some(meant) = meant(flag, &known) {
        return format!("unknown flag; did you mean `--{meant}`?");
    }
    let names: Vec<&str> = path.iter().map(|command| command.get_name()).collect();
    format!("unknown flag; expected one of those in `{} --help`", names.join(" "))
}

/// The known name that is like `name`, or that `name` begins with: what is now a part of a setting may have had its own name.
fn meant<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let is_part = |whole: &&str| name.strip_prefix(whole).is_some_and(|part| part.starts_with(['_', '-']));
    let known = known.iter().copied();
    nearest(name, known.clone()).or_else(|| known.filter(is_part).max_by_key(|whole| whole.len()))
}

fn flags(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter_map(Arg::get_long).filter(|flag| !matches!(*flag, "help" | "version"))
}

fn has_flag(command: &Command, flag: &str) -> bool {
    flags(command).any(|known| known == flag)
}

/// Whether a repeated flag accumulates its values.
pub(super) fn collects(command: &Command, flag: &str) -> bool {
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag));
    arg.is_some_and(|arg| matches!(arg.get_action(), ArgAction::Append))
}

/// The `TOLLGATE_` variable of a flag.
pub fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_ascii_uppercase())
}

/// Whether Kubernetes created this variable, for a Service whose name begins with `tollgate`: every pod of the
/// namespace has them, and they are not settings.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || is_link_to_port(name, value)
        || name.split("_PORT_").skip(1).any(is_port)
}

/// Whether `text` begins like `8081_TCP`.
fn is_port(text: &str) -> bool {
    let mut parts = text.split('_');
    parts.next().is_some_and(|number| number.parse::<u16>().is_ok())
        && parts.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"))
}

/// Adds the variables of each flag to its help. Flags that only subcommands have get none.
pub(super) fn shown_in_help(command: Command) -> Command {
    let known: Vec<String> = flags(&command).map(ToOwned::to_owned).collect();
    let of_verb = |arg: Arg| match arg.get_long() {
        Some(flag) if known.iter().any(|name| name == flag) => shown(arg),
        _ => arg,
    };
    command.mut_args(shown).mut_subcommands(|verb| verb.mut_args(of_verb))
}

fn shown(arg: Arg) -> Arg {
    let Some(flag) = arg.get_long() else { return arg };
    let variables: Vec<String> =
        std::iter::once(variable(flag)).chain(variables::variables(flag).map(ToOwned::to_owned)).collect();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help}\n[env: {}]", variables.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn a_service_named_like_a_variable_of_the_reference_sets_nothing() {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let environment = Environment::new([
            variable("STATSD_PORT", "tcp://10.0.0.5:8125"),
            variable("GRPC_PORT", "tcp://10.0.0.6:80"),
            variable("DEBUG_PORT", "6071"),
        ]);
        let get = |name| environment.get(name);
        assert_eq!(["STATSD_PORT", "GRPC_PORT", "DEBUG_PORT"].map(get), [None, None, Some("6071")]);
    }

    #[test]
    fn variables_that_kubernetes_creates_are_not_settings() {
        for (name, value) in [
            ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
            ("TOLLGATE_SERVICE_PORT", "8081"),
            ("TOLLGATE_SERVICE_PORT_GRPC", "8081"),
            ("TOLLGATE_PORT", "tcp://10.0.0.1:8081"),
            ("TOLLGATE_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("TOLLGATE_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("TOLLGATE_REDIS_PORT_6379_TCP_PROTO", "tcp"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
        for name in ["TOLLGATE_SERVICE", "TOLLGATE_GRPC_PORT", "TOLLGATE_PORT_X", "TOLLGATE_HTTP_ADDRES"] {
            assert!(!is_service_link(name, "8081"), "{name}");
        }
    }
}
