//! An argument of a command, as the parts of its help.

use clap::{Arg, ArgAction};

/// An argument of a command.
pub(super) struct Argument {
    /// `--flag VALUE`, or the name of a positional argument.
    pub(super) usage: String,
    /// Variables, the one of tollgate first.
    pub(super) variables: Vec<String>,
    /// Default value.
    pub(super) default: Option<String>,
    /// Help text.
    pub(super) meaning: String,
}

/// Arguments of a command that its help shows, without the help itself.
pub(super) fn arguments(command: &clap::Command) -> impl Iterator<Item = &Arg> {
    let is_own = |arg: &&Arg| !arg.is_hide_set() && !is_about_command(arg.get_action());
    command.get_arguments().filter(is_own)
}

/// Whether the argument is `--help` or `--version`.
const fn is_about_command(action: &ArgAction) -> bool {
    matches!(action, ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
}

impl Argument {
    pub(super) fn new(arg: &Arg) -> Self {
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
