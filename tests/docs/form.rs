//! Length and beginning of pages.

use super::{Page, page, pages};

#[test]
fn the_readme_is_short() {
    let readme = page("README.md").text;
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    assert!(readme.len() <= 10 * 1024, "{} bytes", readme.len());
}

/// A page begins with its title and one paragraph that says what it is for.
#[test]
fn every_page_begins_with_its_purpose() {
    for folder in ["docs/concepts/", "docs/guides/", "docs/migrate/", "docs/reference/"] {
        let is_written = |page: &Page| page.path.starts_with(folder) && !page.is_generated();
        for page in pages().into_iter().filter(is_written) {
            let mut lines = page.text.lines();
            assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{} has no title", page.path);
            assert_eq!(lines.next(), Some(""), "{}", page.path);
            let first = lines.next().unwrap_or_default();
            assert!(first.starts_with("This page "), "{}: {first}", page.path);
        }
    }
}
