//! `tollgate docs`: the pages of `docs/reference` that are generated from code. Each has a file here and a
//! variant of [`DocsPage`].

mod argument;
mod cli;
mod environment;
mod metrics;
mod settings;

use std::io::{self, Write};

use crate::settings::DocsPage;

/// Prints a page in Markdown.
///
/// # Errors
/// The output is closed.
pub fn run(page: DocsPage, out: &mut impl Write) -> io::Result<bool> {
    write!(out, "{}", text(page))?;
    Ok(true)
}

/// A page in Markdown, with a first line on how to generate it.
fn text(page: DocsPage) -> String {
    let (name, body) = match page {
        DocsPage::Settings => ("settings", settings::page()),
        DocsPage::Environment => ("environment", environment::page()),
        DocsPage::Cli => ("cli", cli::page()),
        DocsPage::Metrics => ("metrics", metrics::page()),
    };
    format!("<!-- Generated: tollgate docs {name} > docs/reference/{name}.md -->\n\n{body}")
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
