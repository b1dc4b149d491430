//! How files differ.

use std::time::{Duration, Instant};

use serde::Serialize;
use similar::{Algorithm, TextDiff};

use crate::control::Files;

/// How long the best way to tell the differences of all files is looked for; then a longer one will do.
const EFFORT: Duration = Duration::from_secs(1);

/// Lines that are shown around a change.
const AROUND: usize = 3;

/// What became of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    Added,
    Removed,
    Changed,
}

impl Change {
    /// What became of what was there before, or after, or both.
    pub(super) const fn of(was: bool, is: bool) -> Self {
        match (was, is) {
            (false, _) => Self::Added,
            (true, false) => Self::Removed,
            (true, true) => Self::Changed,
        }
    }
}

/// How one file differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct FilePatch {
    name: String,
    change: Change,
    /// The difference, as `diff -u` writes it.
    patch: String,
}

/// How files differ, by their names. Takes long where they are large.
pub(super) fn files(from: &Files, to: &Files) -> Vec<FilePatch> {
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = names.into_iter().filter(|name| from.get(*name) != to.get(*name));
    let until = Instant::now().checked_add(EFFORT);
    differs.map(|name| patch(name, from.get(name), to.get(name), until)).collect()
}

fn patch(name: &str, from: Option<&String>, to: Option<&String>, until: Option<Instant>) -> FilePatch {
    let side = |side: &str, text: Option<&String>| match text {
        Some(_) => format!("{side}/{name}"),
        None => "/dev/null".to_owned(),
    };
    let (before, after) = (from.map_or("", String::as_str), to.map_or("", String::as_str));
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers);
    if let Some(until) = until {
        config.deadline(until);
    }
    let diff = config.diff_lines(before, after);
    let patch =
        diff.unified_diff().context_radius(AROUND).header(&side("a", from), &side("b", to)).to_string();
    FilePatch { name: name.to_owned(), change: Change::of(from.is_some(), to.is_some()), patch }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn each_file_that_differs_has_a_patch() {
        let from = some(&[("a.yaml", "1\n2\n"), ("gone.yaml", "x\n"), ("same.yaml", "y")]);
        let to = some(&[("a.yaml", "1\n3\n"), ("new.yaml", "z\n"), ("same.yaml", "y")]);
        let patches = files(&from, &to);
        let told: Vec<_> = patches.iter().map(|patch| (&*patch.name, patch.change)).collect();
        assert_eq!(
            told,
            [("a.yaml", Change::Changed), ("gone.yaml", Change::Removed), ("new.yaml", Change::Added)]
        );
        assert_eq!(patches[0].patch, "--- a/a.yaml\n+++ b/a.yaml\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
        assert!(patches[1].patch.starts_with("--- a/gone.yaml\n+++ /dev/null\n"));
        assert!(patches[2].patch.starts_with("--- /dev/null\n+++ b/new.yaml\n"));
    }

    #[test]
    fn files_that_have_nothing_in_common_take_no_longer() {
        let lines = |of: &str| (0..20_000).map(|at| format!("{of} {at}\n")).collect::<String>();
        let many = |of: &str| Files::from_iter((0..20).map(|at| (format!("{at}.yaml"), lines(of))));
        let begun = Instant::now();
        let patches = files(&many("old"), &many("new"));
        assert_eq!(patches.len(), 20);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
