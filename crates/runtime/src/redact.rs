//! Showing errors, texts of other servers, and values that may hold secrets or characters that mislead a reader.

use std::{error::Error, path::Path};

/// Stands for a secret.
pub const MASK: &str = "***";

/// Minimum length in bytes of a text without a word in it that may be a token.
const MIN_TOKEN_BYTES: usize = 16;

/// The path, unless no such file exists and a key or a token was likely given in place of it.
pub fn path(path: &Path) -> String {
    let shown = path.display().to_string();
    if path.exists() { shown } else { text(&shown) }
}

/// The text of a user, with [`MASK`] in place of the passwords of a URL, or of the whole text if it is likely a key or a
/// token.
pub fn text(text: &str) -> String {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+=".contains(&byte);
    let is_token = text.len() >= MIN_TOKEN_BYTES
        && text.bytes().all(is_of_token)
        && text.bytes().any(|byte| byte.is_ascii_digit());
    match is_token || text.contains(char::is_control) {
        true => MASK.to_owned(),
        false if text.contains("://") || text.contains('@') => url(text),
        false => text.to_owned(),
    }
}

/// The URL with [`MASK`] in place of its password, in every position that a URL allows for one.
pub fn url(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at.saturating_add(3)));
    // The login first: its password may contain an unescaped `?`.
    // A path to a socket has no login, and the password is in its query.
    let login = rest.rsplit_once('@').filter(|_| !rest.starts_with('/'));
    let (login, rest) = login.map_or((None, rest), |(login, host)| (Some(login), host));
    let (host, query) = rest.split_once('?').map_or((rest, None), |(host, query)| (host, Some(query)));
    let is_of_port = |byte: u8| byte.is_ascii_digit() || matches!(byte, b' ' | b']');
    let has_no_port =
        |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| !port.bytes().all(is_of_port));
    let mut text = match login {
        Some(login) => {
            let user = login.split_once(':').map_or("", |(user, _)| user);
            format!("{scheme}{user}:{MASK}@{host}")
        }
        // What is no port may be the password of a login without its `@`.
        None if scheme.starts_with("redis") && host.split([',', '/']).any(has_no_port) => {
            format!("{scheme}{MASK}")
        }
        None => format!("{scheme}{host}"),
    };
    for (at, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((name, _)) if ["pass", "secret", "token"].iter().any(|word| name.contains(word)) => {
                text.push_str(&format!("{name}={MASK}"));
            }
            _ => text.push_str(pair),
        }
    }
    text
}

/// Whether a character is safe to print: no control character, none that reorders text, and none that is invisible.
pub fn is_printable(character: char) -> bool {
    // Line separators, and what Unicode calls default ignorable, except the selectors of emoji.
    let is_hidden = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    !character.is_control() && !is_hidden
}

/// Returns the text of an error, followed by those of its sources that it does not contain.
pub fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = error.source();
    }
    text
}

/// Maximum length of a text that another server sent, in bytes, without its mark of truncation.
const MAX_TEXT_BYTES: usize = 512;

/// The text with control and invisible characters escaped, truncated to half a kilobyte.
pub fn bounded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    for character in text.chars() {
        if shown.len() >= MAX_TEXT_BYTES {
            shown.push('…');
            break;
        }
        match is_printable(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_default()),
        }
    }
    shown
}

/// The beginning of a text, of at most `max_bytes` bytes: no character is split.
pub fn beginning(text: &str, max_bytes: usize) -> &str {
    (0..=max_bytes.min(text.len())).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_begin_a_line_reorder_one_or_hide_in_it() {
        for shown in ['a', ' ', 'é', 'あ', 'ا', '\u{301}', '👩', '\u{fe0f}'] {
            assert!(is_printable(shown), "{shown:?}");
        }
        for hidden in "\n\r\u{1b}\u{85}\u{ad}\u{61c}\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{3164}\u{feff}\u{fffb}\u{e0041}".chars() {
            assert!(!is_printable(hidden), "{hidden:?}");
        }
    }

    #[test]
    fn a_value_that_is_no_path_is_redacted() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("cert.pem");
        assert_eq!(path(&missing), missing.display().to_string());
        for shown in ["/no/such/file", "no/file", "tokens", "cert.pem"] {
            assert_eq!(path(Path::new(shown)), shown);
        }
        let key = "-----BEGIN PRIVATE KEY-----\nMIGH/sesame\n-----END PRIVATE KEY-----\n";
        for secret in ["open-sesame-20-bytes", key] {
            assert_eq!(path(Path::new(secret)), MASK, "{secret}");
        }
    }

    #[test]
    fn a_text_is_shown_without_its_secrets() {
        for (given, shown) in [
            ("20%", "20%"),
            ("host:6379", "host:6379"),
            ("redis://h:port", "redis://***"),
            ("udp://h:port", "udp://h:port"),
            ("redis://[::1]:6379/x", "redis://[::1]:6379/x"),
            ("redis://a:1,b:2", "redis://a:1,b:2"),
            ("redis://a:1, b:2", "redis://a:1, b:2"),
            ("me:secret@host:1", "me:***@host:1"),
            ("redis://me:secret/more", "redis://***"),
            ("http://h/?access_token=secret", "http://h/?access_token=***"),
        ] {
            assert_eq!(text(given), shown);
        }
    }

    #[test]
    fn passwords_are_masked_in_every_form_of_a_url() {
        for (given, shown) in [
            ("redis://host:6379/1", "redis://host:6379/1"),
            ("redis://:secret@host:6379", "redis://:***@host:6379"),
            ("rediss://user:secret@host", "rediss://user:***@host"),
            ("redis://user:se@cret@host", "redis://user:***@host"),
            ("redis://:se?cret@host?db=1", "redis://:***@host?db=1"),
            ("redis+unix:///run/redis?pass=p@ss:w@rd&db=1", "redis+unix:///run/redis?pass=***&db=1"),
            ("redis://secret@host", "redis://:***@host"),
            (
                "redis+unix:///run/redis?db=1&pass=secret&user=u",
                "redis+unix:///run/redis?db=1&pass=***&user=u",
            ),
        ] {
            assert_eq!(url(given), shown);
        }
    }

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(
            bounded("a\n2026 ERROR \u{1b}[31mb\r\u{85}\u{2028}é\""),
            "a\\n2026 ERROR \\u{1b}[31mb\\r\\u{85}\\u{2028}é\""
        );
    }

    #[test]
    fn a_long_text_is_truncated() {
        let exact = "x".repeat(MAX_TEXT_BYTES);
        assert_eq!(bounded(&exact), exact);
        assert_eq!(bounded(&format!("{exact}y")), format!("{exact}…"));
        assert!(bounded(&"\n".repeat(1 << 20)).len() < MAX_TEXT_BYTES + 8);
    }
}
