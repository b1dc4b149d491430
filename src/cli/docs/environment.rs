//! Page of the variables of envoyproxy/ratelimit.

use super::{head, row};
use crate::settings::reference_variables;

const INTRODUCTION: &str = "# Environment variables of envoyproxy/ratelimit

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

pub(super) fn page() -> String {
    let mut page = INTRODUCTION.to_owned() + &head(["variable", "default", "effect"]);
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
