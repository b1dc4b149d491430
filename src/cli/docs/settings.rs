//! Page of the flags and variables of `tollgate serve`.

use super::{
    argument::{Argument, arguments},
    code, head, row,
};
use crate::settings::command;

const INTRODUCTION: &str = "# Settings

Every setting is a flag of `tollgate serve` and an environment variable. A flag overrides its `TOLLGATE_` variable, which
overrides the variables of envoyproxy/ratelimit (listed after it; see [environment](environment.md)), which override the
default. An empty variable counts as unset, except for variables of TLS and of tokens, where it is an error. An unknown
`TOLLGATE_` variable or an invalid value fails startup with exit code 2; the message names every mistake.

Durations have the syntax of Go (`10ms`, `1h30m`). A `BOOL` is `true` or `false`; a `BOOL` flag without a value is `true`.
";

pub(super) fn page() -> String {
    let command = command();
    let mut page = INTRODUCTION.to_owned();
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
