//! What callers are called where nobody has a token.

use std::sync::Arc;

use axum::http::HeaderMap;

use crate::redact::is_printable;

/// The header in which they may say so.
const HEADER: &str = "tollgate-author";

/// Bytes of a name.
const MOST: usize = 64;

/// The name of one who says none.
const ANONYMOUS: &str = "anonymous";

/// The name that a caller goes by: what the header says, as far as it can be printed, cut at 64 bytes.
pub(super) fn author(headers: &HeaderMap) -> Arc<str> {
    let said = headers.get(HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let mut name = String::new();
    let printable = |c: &char| is_printable(*c) && *c != char::REPLACEMENT_CHARACTER;
    for c in said.as_deref().unwrap_or_default().trim().chars().filter(printable) {
        if name.len().saturating_add(c.len_utf8()) > MOST {
            break;
        }
        name.push(c);
    }
    match name.trim() {
        "" => ANONYMOUS.into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_name_is_what_can_be_printed_of_it_and_not_long() {
        let named = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_bytes(bytes).expect("a header"));
            author(&headers).to_string()
        };
        assert_eq!(&*author(&HeaderMap::new()), "anonymous");
        assert_eq!((named(b" "), named(b" ann ")), ("anonymous".to_owned(), "ann".to_owned()));
        assert_eq!(named(b"an\tn\xff"), "ann");
        assert_eq!(named("an\u{202e}n\u{feff}".as_bytes()), "ann");
        assert_eq!(named("é".repeat(40).as_bytes()), "é".repeat(32));
    }
}
