//! Compatibility with envoyproxy/ratelimit: its variables, kinds of rules, and environments, unchanged.

mod environments;
mod rules;
mod program;
mod variables;

use crate::support::prelude::*;
