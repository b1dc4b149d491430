//! Regular expressions that are bounded in what they take of memory, when they are made and when they match.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::fast::RandomState;
use regex_automata::{Input, meta};

/// Bytes that one compiled expression may take: plenty for paths and names, little for `(a{1000}){1000}`.
const MAX_BYTES: usize = 1 << 20;
/// Bytes that an expression takes beside what its engine counts.
const OVERHEAD: usize = 8 << 10;
/// Bytes that matching one expression may keep on a thread, in each direction.
const MAX_CACHE_BYTES: usize = 1 << 20;
/// Bytes that matching all expressions keeps on a thread, about.
const MAX_THREAD_BYTES: usize = 32 << 20;

/// A regular expression. Matching takes time in proportion to the text, whatever that is.
#[derive(Clone, Debug)]
pub struct Regex {
    text: Box<str>,
    engine: meta::Regex,
    /// Tells expressions apart, also those of earlier versions of the rules.
    id: u64,
}

/// Why a text is no expression that is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    /// Compiled, it takes more than 1 MiB.
    #[error("is too large an expression; state fewer repetitions")]
    TooLarge,
    /// It is none.
    #[error("is no regular expression: {0}")]
    Syntax(String),
}

impl Regex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`RegexError`] where it is none, or too large.
    pub fn new(text: &str) -> Result<Self, RegexError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The engines that are left out are the ones that take most memory, for little where a match is all that is
        // asked for.
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_BYTES))
            .hybrid_cache_capacity(MAX_CACHE_BYTES)
            .onepass(false)
            .dfa(false);
        let engine = meta::Builder::new().configure(config).build(text).map_err(|error| reason(&error))?;
        Ok(Self { text: text.into(), engine, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// The most that compiling an expression is to be charged for, in bytes, also where it turned out too large.
    pub const MAX_BYTES: usize = MAX_BYTES;

    /// The expression as it was stated.
    pub const fn as_str(&self) -> &str {
        &self.text
    }

    /// The bytes that the compiled expression takes, about.
    pub fn bytes(&self) -> usize {
        self.engine.memory_usage().saturating_add(OVERHEAD)
    }

    /// Whether the expression finds something in `text`.
    pub fn is_match(&self, text: &str) -> bool {
        let found = CACHES.try_with(|caches| {
            let mut caches = caches.try_borrow_mut().ok()?;
            Some(caches.is_match(self, text))
        });
        // A thread that ends has no caches any more.
        found.ok().flatten().unwrap_or_else(|| self.engine.is_match(text))
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why an expression was refused, in one line.
fn reason(error: &meta::BuildError) -> RegexError {
    let Some(syntax) = error.syntax_error() else { return RegexError::TooLarge };
    let text = syntax.to_string();
    let last = text.lines().last().unwrap_or_default();
    RegexError::Syntax(last.strip_prefix("error: ").unwrap_or(last).to_owned())
}

thread_local! {
    static CACHES: RefCell<Caches> = RefCell::default();
}

/// What matching keeps for the next time: states of lazy automata, which grow with the texts that come.
#[derive(Default)]
struct Caches {
    by_id: HashMap<u64, meta::Cache, RandomState>,
    bytes: usize,
}

impl Caches {
    fn is_match(&mut self, regex: &Regex, text: &str) -> bool {
        if self.bytes > MAX_THREAD_BYTES {
            // Seldom enough that no order is kept of which was used last.
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
    use super::*;

    #[test]
    fn an_expression_finds_what_it_states_anywhere_in_a_text() {
        let matches = |expression, text| Regex::new(expression).expect("an expression").is_match(text);
        assert!(matches("b+", "abbc") && !matches("^b", "abbc") && matches(r"^\w+$", "été"));
        assert!(matches("(?i)curl/[0-9]", "CURL/8") && !matches("x$", "xa"));
    }

    #[test]
    fn what_is_no_expression_or_too_large_a_one_is_refused_in_one_line() {
        assert_eq!(Regex::new("a(").unwrap_err().to_string(), "is no regular expression: unclosed group");
        assert_eq!(Regex::new("(a{1000}){1000}").unwrap_err(), RegexError::TooLarge);
    }

    #[test]
    fn what_matching_keeps_on_a_thread_is_bounded() {
        let text: String = (0..20_000_u64)
            .map(|at| if at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0 { 'a' } else { 'b' })
            .collect();
        for number in 0..100 {
            // Each has more states than fit.
            let regex = Regex::new(&format!("a[ab]{{14}}c{number}")).expect("an expression");
            assert!(!regex.is_match(&text));
            let held = CACHES.with_borrow(|caches| caches.bytes);
            assert!(held <= MAX_THREAD_BYTES + 3 * MAX_CACHE_BYTES, "{held} bytes");
        }
    }
}
