//! Entries of the allow and deny lists, and their conditions on values.

use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_core::descriptor::Entry;

use super::{List, ValueMatch};
use crate::{Wildcard, addresses};

/// A key, a value, and the meaning of the value, as an entry of a list states them.
pub type StatedPair<'a> = (&'a str, &'a str, ValueMatch);

/// Validated entry of a list.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Unique identifier.
    pub id: Box<str>,
    /// The list of the entry.
    pub list: List,
    /// The domain; `None` for all domains.
    domain: Option<Box<str>>,
    /// At least one pair.
    pub(super) pairs: Box<[(Box<str>, Pattern)]>,
    /// End of the entry in milliseconds since 1970, if it has one.
    pub expires_at_ms: Option<u64>,
}

/// Error of an invalid entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// No domain.
    #[error("the domain is missing; expected a name, or * for all domains")]
    NoDomain,
    /// A pattern of domains.
    #[error("the domain is a pattern; expected a name, or * for all domains")]
    StarInDomain,
    /// A descriptor without entries, which would match every request or none.
    #[error("the descriptor is empty; expected at least one entry")]
    NoPairs,
    /// Too many entries.
    #[error("the descriptor has too many entries; expected at most {}", Listing::MAX_PAIRS)]
    TooManyPairs,
    /// An empty key.
    #[error("a key is empty; expected a descriptor key, such as remote_address")]
    EmptyKey,
    /// A pattern as a key.
    #[error("the key {0} contains *; expected a plain key, since only values can be patterns")]
    StarInKey(Box<str>),
    /// A text that is too long.
    #[error("the {0} is too long; expected at most {max} bytes", max = Listing::MAX_TEXT_BYTES)]
    TooLong(&'static str),
    /// A malformed range of addresses.
    #[error("{0} is not an address range; expected e.g. 10.0.0.0/8 or 2001:db8::/32")]
    NoRange(Box<str>),
    /// A range whose host bits are not zero.
    #[error("{stated} means all of {range}; write that, or a longer prefix")]
    HostBits {
        /// The range as written.
        stated: Box<str>,
        /// The range without host bits.
        range: IpNet,
    },
    /// A range of embedded IPv4 addresses, which matches no address.
    #[error("{0} embeds an IPv4 range; write the IPv4 range itself")]
    Embedded(Box<str>),
}

impl Listing {
    /// Maximum number of pairs of an entry.
    pub const MAX_PAIRS: usize = 8;

    /// Maximum length of a domain, a key or a value in bytes.
    pub const MAX_TEXT_BYTES: usize = 256;

    /// Returns an entry of `list` for a domain, or for all domains by `*`. It matches descriptors that have all of these keys
    /// with matching values, see [`ValueMatch`]. The entry ends at `expires_at_ms`, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`ListingError`] if the entry is invalid.
    pub fn new<'a>(
        id: &str,
        list: List,
        domain: &str,
        pairs: impl IntoIterator<Item = StatedPair<'a>>,
        expires_at_ms: Option<u64>,
    ) -> Result<Self, ListingError> {
        let domain = match domain {
            "" => return Err(ListingError::NoDomain),
            "*" => None,
            name if name.contains('*') => return Err(ListingError::StarInDomain),
            name => Some(bounded("domain", name)?.into()),
        };
        let pairs: Vec<_> = pairs.into_iter().map(pair).collect::<Result<_, _>>()?;
        match pairs.len() {
            0 => Err(ListingError::NoPairs),
            1..=Self::MAX_PAIRS => {
                Ok(Self { id: id.into(), list, domain, pairs: pairs.into(), expires_at_ms })
            }
            _ => Err(ListingError::TooManyPairs),
        }
    }

    /// Whether the entry has not ended.
    pub(super) fn is_active_at(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|end| now_ms < end)
    }

    /// The domain; `None` for all domains.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    /// Whether the entry matches every descriptor that has its keys, and so possibly all requests of its domain.
    pub fn is_unselective(&self) -> bool {
        self.pairs.iter().all(|(_, pattern)| pattern.is_unselective())
    }

    /// Whether a descriptor with these entries has all pairs, in any order.
    pub(super) fn matches(&self, entries: &[Entry<'_>]) -> bool {
        let has = |key: &str, pattern: &Pattern| {
            entries.iter().any(|entry| entry.key == key && pattern.matches(entry.value))
        };
        self.pairs.iter().all(|(key, pattern)| has(key, pattern))
    }
}

fn pair((key, value, value_match): StatedPair<'_>) -> Result<(Box<str>, Pattern), ListingError> {
    if key.is_empty() {
        return Err(ListingError::EmptyKey);
    }
    if bounded("key", key)?.contains('*') {
        return Err(ListingError::StarInKey(key.into()));
    }
    let value = bounded("value", value)?;
    let pattern = match value_match {
        ValueMatch::Exact => Pattern::exact(value),
        ValueMatch::Pattern => Pattern::parse(value)?,
    };
    Ok((key.into(), pattern))
}

fn bounded<'a>(what: &'static str, text: &'a str) -> Result<&'a str, ListingError> {
    match text.len() {
        0..=Listing::MAX_TEXT_BYTES => Ok(text),
        _ => Err(ListingError::TooLong(what)),
    }
}

/// Condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// The value equals the text.
    Exact(Box<str>),
    /// The value is an address in the range.
    Range(IpNet),
    /// The value matches the pattern.
    Wildcard(Wildcard),
}

impl Pattern {
    /// Parses a condition: a `*` makes a pattern, an address with a prefix length makes a range.
    fn parse(text: &str) -> Result<Self, ListingError> {
        if let Some(wildcard) = Wildcard::parse(text) {
            return Ok(Self::Wildcard(wildcard));
        }
        match text.rsplit_once('/') {
            Some((address, prefix)) if is_number(prefix) && address.parse::<IpAddr>().is_ok() => {
                range(text).map(Self::Range)
            }
            _ => Ok(Self::exact(text)),
        }
    }

    /// The text alone; of an address in another text than the canonical one, all texts of that address, since requests may
    /// have the canonical one by now.
    fn exact(text: &str) -> Self {
        match text.parse().map(|address: IpAddr| address.to_canonical()) {
            Ok(address) if address.to_string() != text => Self::Range(address.into()),
            _ => Self::Exact(text.into()),
        }
    }

    /// Whether `value` meets the condition.
    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::Range(range) => addresses::parse(value).is_some_and(|address| range.contains(&address)),
            Self::Wildcard(wildcard) => wildcard.matches(value),
        }
    }

    /// Whether the condition selects no values: a pattern that matches all, or a range of all addresses of a family.
    fn is_unselective(&self) -> bool {
        match self {
            Self::Exact(_) => false,
            Self::Range(range) => range.prefix_len() == 0,
            Self::Wildcard(wildcard) => wildcard.matches_all(),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a range without host bits: in an emergency, an operator must not find out that 10.9.9.9/8 was all of 10.0.0.0/8.
fn range(text: &str) -> Result<IpNet, ListingError> {
    let range: IpNet = text.parse().map_err(|_| ListingError::NoRange(text.into()))?;
    if range != range.trunc() {
        return Err(ListingError::HostBits { stated: text.into(), range: range.trunc() });
    }
    match range.addr().to_canonical() {
        // Embedded IPv4 addresses are extracted before they are compared.
        IpAddr::V4(_) if matches!(range, IpNet::V6(_)) => Err(ListingError::Embedded(text.into())),
        _ => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(domain: &str, pairs: &[(&str, &str)]) -> ListingError {
        let pairs = pairs.iter().map(|(key, value)| (*key, *value, ValueMatch::Pattern));
        Listing::new("1", List::Deny, domain, pairs, None).expect_err("invalid")
    }

    #[test]
    fn an_entry_names_a_domain_and_one_to_eight_pairs_of_bounded_length() {
        let long = "x".repeat(Listing::MAX_TEXT_BYTES);
        let longer = "x".repeat(Listing::MAX_TEXT_BYTES + 1);
        assert_eq!(rejected("", &[("a", "b")]), ListingError::NoDomain);
        assert_eq!(rejected("ed*", &[("a", "b")]), ListingError::StarInDomain);
        assert_eq!(rejected("d", &[]), ListingError::NoPairs);
        assert_eq!(rejected("d", &[("a", "b"); 9]), ListingError::TooManyPairs);
        assert_eq!(rejected("d", &[("", "b")]), ListingError::EmptyKey);
        assert_eq!(rejected("d", &[("a*", "b")]), ListingError::StarInKey("a*".into()));
        assert_eq!(rejected("d", &[("a", &longer)]), ListingError::TooLong("value"));
        assert_eq!(rejected("d", &[(&longer, "b")]), ListingError::TooLong("key"));
        assert_eq!(rejected(&longer, &[("a", "b")]), ListingError::TooLong("domain"));
        assert!(Listing::new("1", List::Deny, &long, [(&*long, &*long, ValueMatch::Exact); 8], None).is_ok());
        let broad = rejected("*", &[("ip", "10.9.9.9/8")]);
        assert_eq!(broad.to_string(), "10.9.9.9/8 means all of 10.0.0.0/8; write that, or a longer prefix");
    }

    #[test]
    fn exact_pairs_match_values_literally() {
        let long = "x".repeat(Listing::MAX_TEXT_BYTES + 1);
        let listing =
            |pairs: &[StatedPair<'_>]| Listing::new("1", List::Deny, "d", pairs.iter().copied(), None);
        let exact =
            listing(&[("a", "*", ValueMatch::Exact), ("b", "c*", ValueMatch::Pattern)]).expect("valid");
        let entries = |a, b| [Entry { key: "a", value: a }, Entry { key: "b", value: b }];
        assert!(exact.matches(&entries("*", "cd")) && !exact.matches(&entries("x", "cd")));
        assert!(!exact.is_unselective());
        assert!(listing(&[("a", "*", ValueMatch::Pattern)]).expect("valid").is_unselective());
        let some = [("a", "*", ValueMatch::Pattern), ("b", "*", ValueMatch::Exact)];
        assert!(!listing(&some).expect("valid").is_unselective());
        let error = listing(&[("a", &long, ValueMatch::Exact)]).expect_err("too long");
        assert_eq!(error, ListingError::TooLong("value"));
    }

    fn matches(pattern: &str, value: &str) -> bool {
        Pattern::parse(pattern).expect("valid").matches(value)
    }

    #[test]
    fn a_value_is_a_text_a_pattern_or_a_range() {
        assert!(matches("abc", "abc") && !matches("abc", "abcd"));
        assert!(matches("", "") && !matches("", "x"));
        assert!(matches("key_*_test", "key_1_test") && !matches("key_*_test", "key_1"));
        assert!(matches("*", ""));
        assert!(matches("10.0.0.0/8", "10.1.2.3") && !matches("10.0.0.0/8", "11.0.0.0"));
        assert!(matches("2001:db8::/32", "2001:db8::1") && !matches("2001:db8::/32", "::1"));
        // Texts that are not ranges are compared as texts.
        assert!(matches("/v1/8", "/v1/8") && matches("10.0.0.0/x", "10.0.0.0/x"));
    }

    #[test]
    fn an_exact_value_is_a_text_whatever_it_looks_like() {
        for text in ["*", "a*b", "10.0.0.0/8", "10.9.9.9/8", "", "a,b=c", r"\*", "ü\n"] {
            let exact = Pattern::exact(text);
            assert!(exact.matches(text) && !exact.matches("a-b") && !exact.matches("10.1.2.3"), "{text}");
            assert!(!exact.is_unselective(), "{text}");
        }
    }

    #[test]
    fn patterns_of_all_values_and_ranges_of_all_addresses_are_unselective() {
        let is_unselective = |text: &str| Pattern::parse(text).expect("valid").is_unselective();
        assert!(["*", "**", "0.0.0.0/0", "::/0"].into_iter().all(is_unselective));
        assert!(!["a*", "*a", "*a*", "10.0.0.0/8", "", "a"].into_iter().any(is_unselective));
    }

    #[test]
    fn a_range_contains_embedded_and_masked_addresses_as_in_rules() {
        assert!(matches("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(matches("10.0.0.0/8", "10.1.0.0/16") && !matches("10.0.0.0/8", "8.0.0.0/5"));
        assert!(!matches("0.0.0.0/0", "2001:db8::1") && !matches("::/0", "::ffff:10.1.2.3"));
    }

    #[test]
    fn an_address_in_another_text_is_found_by_all_of_its_texts() {
        for text in ["::ffff:10.1.2.3", "::ffff:a01:203", "::FFFF:10.1.2.3"] {
            for value in [text, "10.1.2.3", "::ffff:10.1.2.3"] {
                assert!(matches(text, value), "{text}: {value}");
                assert!(Pattern::exact(text).matches(value), "{text}: {value}");
            }
            assert!(!matches(text, "10.1.2.4"), "{text}");
        }
        assert!(matches("2001:DB8::1", "2001:db8::1") && !matches("2001:DB8::1", "2001:db8::2"));
        assert!(!matches("10.1.2.3", "::ffff:10.1.2.3"), "as it was stated");
    }

    #[test]
    fn misleading_and_malformed_ranges_are_rejected() {
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/999", "10.9.9.9/8", "::ffff:10.0.0.0/104"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
