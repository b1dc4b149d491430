//! Problems of a directory's files that no content has.

use super::*;

#[test]
fn a_directory_without_files_has_no_domains() {
    let loaded = load_all(&[], Options::default()).unwrap();
    assert_eq!(loaded.rules.domains().count(), 0);
    assert_says(&loaded.warnings.to_string(), &[".: warning: no files, so every request passes; expected"]);
}

#[test]
fn a_directory_without_files_is_an_error_if_strict_unless_it_is_meant() {
    let strict = Options { strict: true, ..Options::default() };
    assert_says(&load_all(&[], strict).unwrap_err().to_string(), &[".: no files, so every request passes"]);
    assert!(load_all(&[], Options { allow_empty: true, ..strict }).unwrap().allow_empty);
    let meant = load_all(&[(".allow-empty", "")], strict).unwrap();
    assert!(meant.allow_empty && meant.warnings.is_empty());
    assert!(!load_all(&[("sub/.allow-empty", ""), ("a.yaml", "domain: a\n")], strict).unwrap().allow_empty);
}

#[test]
fn a_directory_with_files_of_other_names_alone_is_an_error_that_names_them() {
    let files = [("ratelimit-config", "domain: a\n"), ("sub/b.conf", "domain: b\n")];
    let text = load_all(&files, Options::default()).unwrap_err().to_string();
    assert_says(&text, &["ratelimit-config: no file here ends in .yaml or .yml", "sub/b.conf: no file here"]);
    let more = [files[0], files[1], ("c.yaml", "domain: c\n")];
    assert_eq!(load_all(&more, Options::default()).unwrap().rules.domains().count(), 1);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let directory = TempDir::new().unwrap();
    let error = load(&directory.path().join("none"), &Options::default()).unwrap_err();
    assert!(matches!(error, LoadError::Directory(_)));
    assert_says(&error.to_string(), &["none cannot be read"]);
}

#[test]
fn files_that_are_too_large_are_rejected() {
    let directory = TempDir::new().unwrap();
    let file = fs::File::create(directory.path().join("a.yaml")).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let text = load(directory.path(), &Options::default()).unwrap_err().to_string();
    assert_says(&text, &["a.yaml: cannot be read: larger than 16 MiB"]);
}

#[test]
fn equal_content_has_equal_fingerprints() {
    let print = |files: &[(&str, &str)]| load_all(files, Options::default()).unwrap().fingerprint;
    let one = print(&[("a.yaml", "domain: a\n")]);
    assert_eq!(one, print(&[("a.yaml", "domain: a\n"), ("notes.txt", "hello")]));
    assert_ne!(one, print(&[("b.yaml", "domain: a\n")]));
    assert_ne!(one, print(&[("a.yaml", "domain: b\n")]));
    assert_ne!(one, print(&[("a.yaml", "domain: a\n"), (".allow-empty", "")]));
}
