//! Differences between files.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use similar::{Algorithm, TextDiff};
use tollgate_control::Files;

use super::Change;

/// Time limit for finding the shortest patches of all files; after it, longer ones are accepted.
const SHORTEST_PATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Context lines around a change.
const CONTEXT_LINES: usize = 3;

/// The difference of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilePatch {
    pub(crate) name: String,
    pub(crate) change: Change,
    /// The difference, in the format of `diff -u`.
    pub(crate) patch: String,
}

/// Patches of the files that differ, sorted by name. Slow for large files.
pub(super) fn patches(from: &Files, to: &Files) -> Vec<FilePatch> {
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = names.into_iter().filter(|name| from.get(*name) != to.get(*name));
    let deadline = Instant::now().checked_add(SHORTEST_PATCH_TIMEOUT);
    differs.map(|name| patch(name, from.get(name), to.get(name), deadline)).collect()
}

fn patch(name: &str, from: Option<&String>, to: Option<&String>, deadline: Option<Instant>) -> FilePatch {
    let side = |side: &str, text: Option<&String>| match text {
        Some(_) => format!("{side}/{name}"),
        None => "/dev/null".to_owned(),
    };
    let (before, after) = (from.map_or("", String::as_str), to.map_or("", String::as_str));
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers);
    if let Some(deadline) = deadline {
        config.deadline(deadline);
    }
    let diff = config.diff_lines(before, after);
    let patch = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&side("a", from), &side("b", to))
        .to_string();
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
        let from = some(&[("a.yaml", "1\n2\n"), ("deleted.yaml", "x\n"), ("same.yaml", "y")]);
        let to = some(&[("a.yaml", "1\n3\n"), ("new.yaml", "z\n"), ("same.yaml", "y")]);
        let patches = patches(&from, &to);
        let changes: Vec<_> = patches.iter().map(|patch| (&*patch.name, patch.change)).collect();
        assert_eq!(
            changes,
            [("a.yaml", Change::Changed), ("deleted.yaml", Change::Removed), ("new.yaml", Change::Added)]
        );
        assert_eq!(patches[0].patch, "--- a/a.yaml\n+++ b/a.yaml\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
        assert!(patches[1].patch.starts_with("--- a/deleted.yaml\n+++ /dev/null\n"));
        assert!(patches[2].patch.starts_with("--- /dev/null\n+++ b/new.yaml\n"));
    }

    #[test]
    fn files_with_nothing_in_common_are_compared_in_bounded_time() {
        let lines = |of: &str| (0..20_000).map(|at| format!("{of} {at}\n")).collect::<String>();
        let many = |of: &str| Files::from_iter((0..20).map(|at| (format!("{at}.yaml"), lines(of))));
        let started = Instant::now();
        let patches = patches(&many("old"), &many("new"));
        assert_eq!(patches.len(), 20);
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}
