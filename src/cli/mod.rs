//! The subcommands: each reads its settings, writes to what it is given, and returns whether it succeeded.

pub mod admin_client;
pub mod check;
pub mod docs;
pub mod explain;
pub mod schema;
pub mod shell;
