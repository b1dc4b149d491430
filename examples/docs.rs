//! Prints a page of `docs/reference` that is generated from code: `cargo run --example docs metrics`.

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, clippy::print_stdout)]

use clap::{Arg, ArgAction, Command};
use tollgate::bootstrap::catalogue;
use tollgate::settings::{command, reference_variables};

/// The generated pages.
pub(crate) const PAGES: [&str; 4] = ["settings", "environment", "cli", "metrics"];

const SETTINGS: &str = "# Settings

Every setting is a flag of `tollgate serve` and an environment variable. A flag overrides its `TOLLGATE_` variable, which
overrides the variables of envoyproxy/ratelimit (listed after it; see [environment](environment.md)), which override the
default. An empty variable counts as unset, except for variables of TLS and of tokens, where it is an error. An unknown
`TOLLGATE_` variable or an invalid value fails startup with exit code 2; the message names every mistake.

Durations have the syntax of Go (`10ms`, `1h30m`). A `BOOL` is `true` or `false`; a `BOOL` flag without a value is `true`.
";

const ENVIRONMENT: &str = "# Environment variables of envoyproxy/ratelimit

tollgate accepts the environment of envoyproxy/ratelimit. Each of its variables sets a flag (see [settings](settings.md)),
requests behaviour that is always on, or is reported by a startup warning; none that would change behaviour is ignored
silently.

- Values have the same syntax: durations and booleans of Go, `KEY:VALUE` lists. An invalid value fails startup and is
  named, except for `OTEL_` variables, which are often set cluster-wide: those are ignored with a warning.
- A flag or a `TOLLGATE_` variable overrides all variables of envoyproxy/ratelimit for the same setting.
- A variable without effect causes one warning, unless its value is the default of envoyproxy/ratelimit. Details of a
  feature that is off (`REDIS_PERSECOND_*`, `MEMCACHE_*`) cause none.

| effect | meaning |
|---|---|
| `--flag` | value of the flag |
| part of `--flag` | part of the flag's value, or its value in another syntax |
| always on | behaviour that cannot be switched off |
| no effect | reported by a startup warning, with the reason or the replacement |
| refused | fails startup, unless the value is the default or the named flag is given |
| see | detail of the named variable |

";

const COMMAND_LINE: &str = "# Command line

`tollgate` without a command serves, like `tollgate serve`; [settings](settings.md) lists its flags. The commands that
call the admin API of a running server (`rules`, `record`, `counters`, `usage`, `regions`, `top`, `candidates`,
`recommend`, `events`) share the flags of their connection. The load generator `tollgate-load` and `tollgate-migrate`,
which plans a migration, are programs of their own: see [load testing](../guides/load-testing.md) and [migration](../migrate/from-envoyproxy-ratelimit.md#plan).

Exit codes: 0 for success, 1 for a failure or a negative result, 2 for a usage error.
";

const METRICS: &str = "# Metrics

Metrics of `/metrics`, in Prometheus' text format. A metric of a part that is not in use, such as Redis, TLS or a control
plane, has no series. Those that begin with `ratelimit_` are exported with `--reference-metrics`.
[Metrics by topic](../guides/metrics.md) has the values of the labels.

";

#[allow(dead_code, reason = "tests call `page`")]
fn main() {
    let name = std::env::args().nth(1).filter(|name| PAGES.contains(&name.as_str()));
    print!("{}", page(&name.expect("the name of a generated page of docs/reference")));
}

/// A page in Markdown, with a first line on how to generate it.
pub(crate) fn page(name: &str) -> String {
    let body = match name {
        "settings" => settings_page(),
        "environment" => environment_page(),
        "cli" => cli_page(),
        _ => metrics_page(),
    };
    format!("<!-- Generated: cargo run --example docs {name} > docs/reference/{name}.md -->\n\n{body}")
}

/// Flags and variables of `tollgate serve`.
fn settings_page() -> String {
    let command = command();
    let mut page = SETTINGS.to_owned();
    let mut section = None;
    for arg in arguments(&command) {
        let heading = arg.get_help_heading().unwrap_or("Options");
        if section != Some(heading) {
            page.push_str(&format!(
                "\n## {heading}\n\n{}",
                head(["flag", "variables", "default", "meaning"])
            ));
            section = Some(heading);
        }
        let Argument { usage, variables, default, meaning } = Argument::new(arg);
        let variables = code(variables.iter().map(String::as_str));
        let default = default.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        page.push_str(&row([&format!("`{usage}`"), &variables, &default, &meaning]));
    }
    page
}

/// Variables of envoyproxy/ratelimit.
fn environment_page() -> String {
    let mut page = ENVIRONMENT.to_owned() + &head(["variable", "default", "effect"]);
    for variable in reference_variables() {
        let default = match variable.default {
            "" => "none".to_owned(),
            default => format!("`{default}`"),
        };
        page.push_str(&row([&format!("`{}`", variable.name), &default, &variable.mapping.to_string()]));
    }
    page.push_str(
        "| `DOG_STATSD_MOGRIFIER_NAME_PATTERN`, `…_NAME`, `…_TAGS` | none | part of `--statsd-rewrite`, for each NAME in \
         `USE_DOG_STATSD_MOGRIFIERS` |\n",
    );
    page
}

/// Depth of the first heading of a command.
const HEADING_LEVEL: usize = 2;

/// Subcommands.
fn cli_page() -> String {
    let mut root = command();
    root.build();
    let mut page = COMMAND_LINE.to_owned();
    for verb in root.get_subcommands().filter(|verb| is_shown(verb)) {
        describe(verb, &format!("tollgate {}", verb.get_name()), HEADING_LEVEL, &mut page);
    }
    page
}

fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn describe(command: &Command, name: &str, level: usize, page: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    page.push_str(&format!("\n{} {name}\n\n{}.\n", "#".repeat(level), about.trim_end_matches('.')));
    // Its flags have a page of their own.
    if command.get_name() == "serve" {
        return;
    }
    let is_nested = level > HEADING_LEVEL;
    let rows: String =
        arguments(command).filter(|arg| !(is_nested && arg.is_global_set())).map(argument_row).collect();
    if !rows.is_empty() {
        page.push_str(&format!("\n{}{rows}", head(["argument", "default", "meaning"])));
    }
    for verb in command.get_subcommands().filter(|verb| is_shown(verb)) {
        describe(verb, &format!("{name} {}", verb.get_name()), level + 1, page);
    }
}

fn argument_row(arg: &Arg) -> String {
    let Argument { usage, default, meaning, .. } = Argument::new(arg);
    let default = match default {
        Some(value) => format!("`{value}`"),
        None if arg.is_required_set() => "required".to_owned(),
        None => "none".to_owned(),
    };
    row([&format!("`{usage}`"), &default, &meaning])
}

/// Metrics.
fn metrics_page() -> String {
    let rows = catalogue().into_iter().map(|declared| {
        let labels = code(declared.labels.iter().copied());
        row([&code([declared.name]), declared.kind.name(), &labels, declared.help])
    });
    format!("{METRICS}{}{}", head(["Metric", "Type", "Labels", "Meaning"]), rows.collect::<String>())
}

/// An argument of a command.
struct Argument {
    /// `--flag VALUE`, or the name of a positional argument.
    usage: String,
    /// Variables, the one of tollgate first.
    variables: Vec<String>,
    /// Default value.
    default: Option<String>,
    /// Help text.
    meaning: String,
}

/// Arguments of a command that its help shows, without `--help` and `--version`.
fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_about_command = |action: &ArgAction| {
        matches!(action, ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
    };
    command.get_arguments().filter(move |arg| !arg.is_hide_set() && !is_about_command(arg.get_action()))
}

impl Argument {
    fn new(arg: &Arg) -> Self {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let (meaning, variables) = match help.split_once("[env: ") {
            Some((meaning, variables)) => (meaning, variables.trim_end().trim_end_matches(']')),
            None => (&*help, ""),
        };
        let values: Vec<String> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
        let default = values.join(",");
        Self {
            usage: usage(arg),
            variables: variables.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            default: Some(default).filter(|value| !value.is_empty() && takes_value(arg)),
            meaning: sentence(meaning, arg),
        }
    }
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn usage(arg: &Arg) -> String {
    let value = arg.get_value_names().into_iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
    match arg.get_long() {
        Some(flag) if takes_value(arg) => format!("--{flag} {}", value.join(" ")),
        Some(flag) => format!("--{flag}"),
        None => value.join(" "),
    }
}

/// Help with the values of an enumeration, and its final stop.
fn sentence(help: &str, arg: &Arg) -> String {
    let mut text = help.trim().replace('\n', " ");
    if !text.ends_with('.') {
        text.push('.');
    }
    let values = arg.get_possible_values();
    let names: Vec<String> =
        values.iter().filter(|_| takes_value(arg)).map(|value| format!("`{}`", value.get_name())).collect();
    if !names.is_empty() && !arg.is_hide_possible_values_set() {
        text.push_str(&format!(" One of {}.", names.join(", ")));
    }
    text
}

/// A row of a table.
fn row<const COLUMNS: usize>(cells: [&str; COLUMNS]) -> String {
    let cells = cells.map(|cell| cell.replace('\n', " ").replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table.
fn head<const COLUMNS: usize>(titles: [&str; COLUMNS]) -> String {
    format!("| {} |\n|{}\n", titles.join(" | "), "---|".repeat(COLUMNS))
}

/// Texts as code, separated by commas.
fn code<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ")
}
