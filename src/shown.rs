//! How a file is named to people, when someone may have put a secret in place of its path.

use std::path::Path;

/// The path, if it leads to a file or into a directory that is there; a key or a token does not.
pub(crate) fn path(path: &Path) -> String {
    let is_inside_something =
        || path.parent().is_some_and(|parent| parent.parent().is_some() && parent.is_dir());
    match path.exists() || is_inside_something() {
        true => path.display().to_string(),
        false => "(not shown, as nothing is there: expected the path of a file)".to_owned(),
    }
}

/// Whether a letter shows as itself: neither a command to a terminal, nor one that has other letters shown in another
/// order, nor one that is not seen.
pub(crate) fn is_plain(letter: char) -> bool {
    let is_hidden = matches!(
        letter,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    !letter.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_not_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("cert.pem");
        assert_eq!(path(&missing), missing.display().to_string());
        for secret in [
            "open-sesame-20-bytes",
            "/open-sesame-20-bytes",
            "open/sesame",
            "/open/sesame",
            "-----BEGIN PRIVATE KEY-----\nMIGH/sesame\n-----END PRIVATE KEY-----\n",
        ] {
            assert!(path(Path::new(secret)).starts_with("(not shown"), "{secret}");
        }
    }
}
