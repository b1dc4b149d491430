//! Conditions on texts: wildcards, and regular expressions with bounded memory, both compiled and while matching.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{cell::RefCell, collections::HashMap, fmt};

use foldhash::fast::RandomState;
use regex_automata::{Input, meta};

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
        self.matches(&text) && !self.text.contains(unlikely)
    }
}

impl fmt::Display for Wildcard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Size of an expression in bytes besides the part that its engine reports.
const OVERHEAD_BYTES: usize = 8 << 10;
/// Maximum size of the cache of one expression on a thread in bytes, in each direction.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Approximate maximum size of all caches on a thread in bytes.
const MAX_THREAD_BYTES: usize = 32 << 20;

/// A regular expression. Matching takes time linear in the text.
#[derive(Clone, Debug)]
pub struct Regex {
    text: Box<str>,
    engine: meta::Regex,
    /// Identifier, unique also among expressions of earlier versions of the rules.
    id: u64,
}

/// Error of a rejected expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    /// An expression that takes more than 1 MiB compiled.
    #[error("is too large; state fewer repetitions")]
    TooLarge,
    /// A text with a syntax error.
    #[error("is not a regular expression: {0}")]
    Syntax(String),
}

impl Regex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`RegexError`] if the text has a syntax error, or the expression is too large.
    pub fn new(text: &str) -> Result<Self, RegexError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The disabled engines take the most memory, and gain little where only a match is needed.
        let config = meta::Config::new()
            .nfa_size_limit(Some(Self::MAX_BYTES))
            .hybrid_cache_capacity(MAX_CACHE_BYTES)
            .onepass(false)
            .dfa(false);
        let engine = meta::Builder::new().configure(config).build(text).map_err(|error| reason(&error))?;
        Ok(Self { text: text.into(), engine, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// Maximum size of a compiled expression in bytes, and cost of one that turned out too large: ample for paths and names,
    /// too little for `(a{1000}){1000}`.
    pub const MAX_BYTES: usize = 1 << 20;

    /// The expression as written.
    pub const fn as_str(&self) -> &str {
        &self.text
    }

    /// Approximate size of the compiled expression in bytes.
    pub fn bytes(&self) -> usize {
        self.engine.memory_usage().saturating_add(OVERHEAD_BYTES)
    }

    /// Whether the expression matches any part of `text`.
    pub fn is_match(&self, text: &str) -> bool {
        let found = CACHES.try_with(|caches| {
            let mut caches = caches.try_borrow_mut().ok()?;
            Some(caches.is_match(self, text))
        });
        // A thread that is ending has dropped its caches.
        found.ok().flatten().unwrap_or_else(|| self.engine.is_match(text))
    }
}

/// Converts the engine's error to one line.
fn reason(error: &meta::BuildError) -> RegexError {
    let Some(syntax) = error.syntax_error() else { return RegexError::TooLarge };
    let text = syntax.to_string();
    let last = text.lines().last().unwrap_or_default();
    RegexError::Syntax(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}

thread_local! {
    static CACHES: RefCell<Caches> = RefCell::default();
}

/// Caches of matching: states of lazy automata, which grow with the texts.
#[derive(Default)]
struct Caches {
    by_id: HashMap<u64, meta::Cache, RandomState>,
    bytes: usize,
}

impl Caches {
    fn is_match(&mut self, regex: &Regex, text: &str) -> bool {
        if self.bytes > MAX_THREAD_BYTES {
            // Too rare to be worth an order of use.
            *self = Self::default();
        }
        let mut before = 0;
        let cache = self
            .by_id
            .entry(regex.id)
            .and_modify(|cache| before = cache.memory_usage())
            .or_insert_with(|| regex.engine.create_cache());
        let found = regex.engine.search_half_with(cache, &Input::new(text).earliest(true));
        self.bytes = self.bytes.saturating_add(cache.memory_usage()).saturating_sub(before);
        found.is_some()
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

    #[test]
    fn an_expression_matches_anywhere_in_a_text() {
        let matches = |expression, text| Regex::new(expression).expect("an expression").is_match(text);
        assert!(matches("b+", "abbc") && !matches("^b", "abbc") && matches(r"^\w+$", "été"));
        assert!(matches("(?i)curl/[0-9]", "CURL/8") && !matches("x$", "xa"));
    }

    #[test]
    fn a_malformed_or_too_large_expression_is_rejected_in_one_line() {
        assert_eq!(Regex::new("a(").unwrap_err().to_string(), "is not a regular expression: unclosed group");
        assert_eq!(Regex::new("(a{1000}){1000}").unwrap_err(), RegexError::TooLarge);
    }

    #[test]
    fn the_caches_of_a_thread_are_bounded() {
        let text: String = (0..20_000_u64)
            .map(|at| if at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0 { 'a' } else { 'b' })
            .collect();
        for number in 0..100 {
            // Each expression has more states than fit.
            let regex = Regex::new(&format!("a[ab]{{14}}c{number}")).expect("an expression");
            assert!(!regex.is_match(&text));
            let cached = CACHES.with_borrow(|caches| caches.bytes);
            assert!(cached <= MAX_THREAD_BYTES + 3 * MAX_CACHE_BYTES, "{cached} bytes");
        }
    }
}
