//! `tollgate schema`: the JSON Schema of the rules.

use std::io::{self, Write};

use tollgate_rules::config::schema::schema;

/// Prints the schema.
///
/// # Errors
/// The output is closed.
pub fn run(out: &mut impl Write) -> io::Result<bool> {
    writeln!(out, "{:#}", schema())?;
    Ok(true)
}
