//! Page of the subcommands.

use clap::Command;

use super::{
    argument::{Argument, arguments},
    head, row,
};
use crate::settings::command;

const INTRODUCTION: &str = "# Command line

`tollgate` without a command serves, like `tollgate serve`; [settings](settings.md) lists its flags. The commands that
call the admin API of a running server (`rules`, `counters`, `usage`, `lists`, `switch`, `override`, `regions`, `top`,
`candidates`, `recommend`, `events`) share the flags of their connection. The load generator `tollgate-load` and
`tollgate-migrate`, which plans a migration, are programs of their own: see [load testing](../guides/load-testing.md) and
[migration](../migrate/from-envoyproxy-ratelimit.md#plan).

Exit codes: 0 for success, 1 for a failure or a negative result, 2 for a usage error.
";

/// Depth of the first heading of a command.
const HEADING_LEVEL: usize = 2;

pub(super) fn page() -> String {
    let mut root = command();
    root.build();
    let mut page = INTRODUCTION.to_owned();
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
    let about = about.trim_end_matches('.');
    page.push_str(&format!("\n{} {name}\n\n{about}.\n", "#".repeat(level)));
    // Its flags have a page of their own.
    if command.get_name() == "serve" {
        return;
    }
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| is_shown(verb)).collect();
    let is_nested = level > HEADING_LEVEL;
    let rows: String =
        arguments(command).filter(|arg| !(is_nested && arg.is_global_set())).map(argument).collect();
    if !rows.is_empty() {
        page.push_str(&format!("\n{}{rows}", head(["argument", "default", "meaning"])));
    }
    for verb in verbs {
        describe(verb, &format!("{name} {}", verb.get_name()), level.saturating_add(1), page);
    }
}

fn argument(arg: &clap::Arg) -> String {
    let Argument { usage, default, meaning, .. } = Argument::new(arg);
    let default = match default {
        Some(value) => format!("`{value}`"),
        None if arg.is_required_set() => "required".to_owned(),
        None => "none".to_owned(),
    };
    row([&format!("`{usage}`"), &default, &meaning])
}
