//! The documentation is true: its commands run, its YAML loads, its tables are complete, its links resolve.

mod blocks;
mod coverage;
mod links;
mod tables;
mod walkthroughs;

use tollgate::settings;

use crate::{architecture::files_below, support::prelude::*};

/// Markdown files beside `docs/` that are documentation.
const TOP: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

/// A Markdown file, by its path within the repository.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    path: String,
    pub(crate) text: String,
}

/// A fenced block: the info string of its first fence, and its lines.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) info: String,
    pub(crate) text: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The page at a path, such as `docs/guides/redis.md`.
pub(crate) fn page(path: &str) -> Page {
    Page { path: path.to_owned(), text: read(path) }
}

/// All pages: `README.md` first, then those beside it, then `docs/` in the order of paths.
pub(crate) fn pages() -> Vec<Page> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let relative = |path: PathBuf| {
        let path =
            path.strip_prefix(project("")).expect("of the project").to_str().expect("UTF-8").to_owned();
        path.trim_start_matches('/').to_owned()
    };
    let mut below: Vec<String> =
        files_below(&project("docs")).into_iter().filter(is_page).map(relative).collect();
    below.sort();
    let top = TOP.into_iter().map(str::to_owned).filter(|path| project(path).exists());
    top.chain(below).map(|path| page(&path)).collect()
}

impl Page {
    fn is_generated(&self) -> bool {
        self.text.starts_with("<!-- Generated")
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: the last block has no end", self.path);
        blocks
    }

    /// The page without its blocks.
    fn prose(&self) -> String {
        self.text.split("```").step_by(2).collect()
    }

    /// The prose below a heading, up to the next one of the same or a higher level.
    fn section(&self, heading: &str) -> String {
        let text = self.prose();
        let below = text.split_once(&format!("\n{heading}\n"));
        let below = below.unwrap_or_else(|| panic!("{}: no {heading}", self.path)).1;
        let deepest = heading.split(' ').next().unwrap_or_default().len();
        let ends = (1..=deepest).filter_map(|level| below.find(&format!("\n{} ", "#".repeat(level))));
        below[..ends.min().unwrap_or(below.len())].to_owned()
    }

    /// The anchors of its headings.
    fn anchors(&self) -> BTreeSet<String> {
        let text = self.prose();
        let headings = text.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let title = line.trim_start_matches('#').trim().to_lowercase();
                title.chars().filter(plain).collect::<String>().replace(' ', "-")
            })
            .collect()
    }
}

/// The only block of that kind in all pages.
pub(crate) fn block(info: &str) -> String {
    let mut found = pages().into_iter().flat_map(|page| page.blocks()).filter(|block| block.info == info);
    let block = found.next().unwrap_or_else(|| panic!("no block {info}"));
    assert!(found.next().is_none(), "two blocks {info}");
    block.text
}

/// Every command, and the output that is shown right after it.
pub(crate) fn commands() -> Vec<(String, Option<String>)> {
    pages().iter().flat_map(commands_of).collect()
}

fn commands_of(page: &Page) -> Vec<(String, Option<String>)> {
    let mut commands: Vec<(String, Option<String>)> = Vec::new();
    let mut follows_command = false;
    for Block { info, text } in page.blocks() {
        match info.as_str() {
            "sh" => commands.extend(text.lines().map(|line| (line.trim().to_owned(), None))),
            "text" | "json" => {
                assert!(follows_command, "{}: this output follows no command:\n{text}", page.path);
                commands.last_mut().expect("a command").1 = Some(text);
            }
            _ => {}
        }
        follows_command = info == "sh";
    }
    commands
}

/// The rows of the tables in a text, each without its outer bars.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    lines.map(|line| line.split(" | ").map(str::trim).collect()).collect()
}

/// The parts of a text between pairs of a quote character.
fn quoted(text: &str, quote: char) -> BTreeSet<String> {
    text.split(quote).skip(1).step_by(2).map(str::to_owned).collect()
}
