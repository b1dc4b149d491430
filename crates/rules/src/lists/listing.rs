//! Entries of the allow and deny lists.

use ipnet::IpNet;
use tollgate_core::descriptor::Entry;

use super::{List, ValueMatch, pattern::Pattern};

/// A key, a value, and the meaning of the value, as an entry of a list states them.
pub type StatedPair<'a> = (&'a str, &'a str, ValueMatch);

/// Validated entry of a list.
#[derive(Clone, Debug)]
pub struct Listing {
    id: Box<str>,
    list: List,
    /// The domain; `None` for all domains.
    domain: Option<Box<str>>,
    /// At least one pair.
    pairs: Box<[(Box<str>, Pattern)]>,
    expires_at_ms: Option<u64>,
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

    /// Unique identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The list of the entry.
    pub const fn list(&self) -> List {
        self.list
    }

    /// End of the entry in milliseconds since 1970, if it has one.
    pub const fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// Whether the entry has not ended.
    pub(super) fn is_active_at(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|end| now_ms < end)
    }

    /// The domain; `None` for all domains.
    pub fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    pub(super) fn pairs(&self) -> &[(Box<str>, Pattern)] {
        &self.pairs
    }

    /// Whether the entry matches every descriptor that has its keys, and so possibly all requests of its domain.
    pub fn is_unselective(&self) -> bool {
        self.pairs.iter().all(|(_, pattern)| pattern.is_unselective())
    }

    /// Whether a descriptor with these entries has all pairs, in any order.
    pub fn matches(&self, entries: &[Entry<'_>]) -> bool {
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
    Ok((key.into(), Pattern::of(bounded("value", value)?, value_match)?))
}

fn bounded<'a>(what: &'static str, text: &'a str) -> Result<&'a str, ListingError> {
    match text.len() {
        0..=Listing::MAX_TEXT_BYTES => Ok(text),
        _ => Err(ListingError::TooLong(what)),
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
}
