//! What replaces envoyproxy/ratelimit: its variables, its kinds of rules, and its environments, as they are.

mod environments;
mod expected;
mod ports;
mod rules;
mod program;
mod variables;
