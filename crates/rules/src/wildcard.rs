//! Patterns in which `*` matches any number of characters, including zero.

use std::fmt;

/// A pattern with at least one `*`. There is no escape and no other special character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wildcard {
    /// The pattern as written.
    text: Box<str>,
    /// Required beginning of a text.
    prefix: Box<str>,
    /// Required parts between prefix and suffix, in order and without overlap.
    middle: Box<[Box<str>]>,
    /// Required end of a text.
    suffix: Box<str>,
}

impl Wildcard {
    /// Parses a pattern; `None` if `text` contains no `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(Box::from).collect();
        Some(Self { text: text.into(), prefix: prefix.into(), middle, suffix: suffix.into() })
    }

    /// Whether the pattern matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let inner = text.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        let Some(mut rest) = inner else { return false };
        self.middle.iter().all(|part| match rest.split_once(&**part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }

    /// Whether the pattern matches any text: it consists of `*` only.
    pub fn matches_all(&self) -> bool {
        self.prefix.is_empty() && self.suffix.is_empty() && self.middle.is_empty()
    }

    /// Whether this pattern matches every text that `other` matches. `true` is certain; `false` may be a missed case.
    pub fn covers(&self, other: &Self) -> bool {
        // A pattern covers another one if it matches the other's text with each `*` replaced by a character that occurs in
        // neither.
        let unlikely = "\u{10FFFE}";
        let text = [&*other.prefix, &other.middle.join(unlikely), &other.suffix].join(unlikely);
        self.matches(&text) && !self.contains(unlikely)
    }

    fn contains(&self, part: &str) -> bool {
        self.prefix.contains(part)
            || self.suffix.contains(part)
            || self.middle.iter().any(|m| m.contains(part))
    }
}

impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Wildcard::parse(pattern).expect("has a star").matches(text)
    }

    /// Definition of matching: tries every length for the first `*`.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            Some((byte, rest)) => {
                text.split_first().is_some_and(|(head, tail)| head == byte && naive(rest, tail))
            }
        }
    }

    #[test]
    fn a_text_without_a_star_is_not_a_pattern() {
        assert_eq!(Wildcard::parse("plain"), None);
    }

    #[test]
    fn prefix_and_suffix_may_not_overlap() {
        assert!(matches("ab*ba", "abba"));
        assert!(!matches("aba*ba", "aba"));
    }

    #[test]
    fn a_pattern_covers_what_it_always_matches() {
        let covers = |a: &str, b: &str| Wildcard::parse(a).unwrap().covers(&Wildcard::parse(b).unwrap());
        assert!(covers("key_*", "key_foo*"));
        assert!(covers("key_*", "key_*"));
        assert!(covers("key_*o*", "key_foo*bar"));
        assert!(!covers("key_foo*", "key_*"));
        assert!(!covers("key_foo*", "key_fo*o"));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*]{0,6}\\*[ab*]{0,6}", text in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn covering_is_never_claimed_wrongly(
            wide in "[ab*]{0,4}\\*[ab*]{0,4}",
            narrow in "[ab*]{0,4}\\*[ab*]{0,4}",
            text in "[ab]{0,8}",
        ) {
            let (w, n) = (Wildcard::parse(&wide).unwrap(), Wildcard::parse(&narrow).unwrap());
            if w.covers(&n) && n.matches(&text) {
                prop_assert!(w.matches(&text));
            }
        }
    }
}
