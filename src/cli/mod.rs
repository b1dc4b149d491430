//! Subcommands beside `serve`.

pub mod docs;
pub mod migrate;
