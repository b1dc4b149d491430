//! Showing values that may hold secrets or characters that mislead a reader.

use std::path::Path;

/// The path, if it names an existing file or a place in an existing directory. A key or a token that was given in place
/// of a path does neither, and is not shown.
pub fn path(path: &Path) -> String {
    let is_inside_directory =
        || path.parent().is_some_and(|parent| parent.parent().is_some() && parent.is_dir());
    if path.exists() || is_inside_directory() {
        path.display().to_string()
    } else {
        "<redacted: no such file>".to_owned()
    }
}

/// Whether a character is safe to print: no control character, none that reorders text, and none that is invisible.
pub fn is_printable(character: char) -> bool {
    let is_hidden = matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    !character.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_path_is_redacted() {
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
            assert!(path(Path::new(secret)).starts_with("<redacted"), "{secret}");
        }
    }
}
