//! Links, the summary and the index; length and beginning of pages.

use super::*;

/// The targets of the links in a text.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// A path relative to a page, without `..`.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => assert!(parts.pop().is_some(), "{page}: {link} leads out of the repository"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn links_resolve() {
    let anchors: BTreeMap<String, BTreeSet<String>> =
        pages().into_iter().map(|page| (page.path.clone(), page.anchors())).collect();
    for page in pages() {
        let text = page.prose();
        for link in links(&text).into_iter().filter(|link| !link.starts_with("https://")) {
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, it)| (file, Some(it)));
            let target = if file.is_empty() { page.path.clone() } else { resolve(&page.path, file) };
            assert!(project(&target).exists(), "{}: no file {link}", page.path);
            if let Some(anchor) = anchor {
                let known =
                    anchors.get(&target).unwrap_or_else(|| panic!("{}: {link} is no page", page.path));
                assert!(known.contains(anchor), "{}: no heading {link}", page.path);
            }
        }
        for path in quoted(&text, '`') {
            let folders = [
                "src/",
                "crates/",
                "tools/",
                "lua/",
                "tests/",
                "benches/",
                "config/",
                "deploy/",
                "docs/",
                "examples/",
            ];
            let is_ours = folders.iter().any(|folder| path.starts_with(folder));
            if is_ours && !path.contains([' ', '*', '<', '{']) {
                let file = path.split(':').next().unwrap_or_default();
                assert!(project(file).exists(), "{}: no file {path}", page.path);
            }
        }
    }
}

#[test]
fn every_page_is_in_the_summary_and_the_index() {
    let (summary, index, runbooks) = ("docs/SUMMARY.md", "docs/README.md", "docs/runbooks/");
    let listed = |list: &str| -> BTreeSet<String> {
        links(&page(list).text).into_iter().map(|link| resolve(list, link)).collect()
    };
    let (in_summary, in_index) = (listed(summary), listed(index));
    for page in pages().into_iter().filter(|page| page.path.starts_with("docs/")) {
        let is_in = |list: &BTreeSet<String>| list.contains(&page.path);
        assert!(page.path == summary || is_in(&in_summary), "{} is not in {summary}", page.path);
        // Runbooks have an index of their own.
        let is_of_index = ![summary, index].contains(&&*page.path) && !page.path.starts_with(runbooks);
        assert!(!is_of_index || is_in(&in_index), "{} is not in {index}", page.path);
    }
    assert!(Path::new(&project("docs/book.toml")).exists());
}

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
