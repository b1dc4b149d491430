//! One entry of a list.

use ipnet::IpNet;

use super::{List, pattern::Pattern};
use tollgate_core::descriptor::Entry;

/// One entry of a list, as it is enforced.
#[derive(Clone, Debug)]
pub struct Listing {
    id: Box<str>,
    list: List,
    /// The domain that it is for; none for every one.
    domain: Option<Box<str>>,
    /// At least one.
    pairs: Box<[(Box<str>, Pattern)]>,
    expires_at_ms: Option<u64>,
}

/// Why something can't be an entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// It is for no domain.
    #[error("the domain is missing; * is every domain")]
    NoDomain,
    /// It is for a pattern of domains.
    #[error("the domain is a name, or * for every one")]
    StarInDomain,
    /// It would match everything, or nothing.
    #[error("the descriptor has no entry; at least one is needed")]
    NoPairs,
    /// It has too many.
    #[error("the descriptor has more than {} entries", Listing::MAX_PAIRS)]
    TooManyPairs,
    /// A key is missing.
    #[error("a key is empty")]
    EmptyKey,
    /// A key is a pattern.
    #[error("the key {0} has a *, which makes patterns of values only")]
    StarInKey(Box<str>),
    /// Something is too long.
    #[error("the {0} has more than {longest} bytes", longest = Listing::MAX_TEXT_BYTES)]
    TooLong(&'static str),
    /// It looks like a range of addresses, and is none.
    #[error("{0} is no range of addresses")]
    NoRange(Box<str>),
    /// It is a range that holds more than it seems.
    #[error("{stated} means all of {range}; write that, or a longer prefix")]
    HostBits {
        /// What was stated.
        stated: Box<str>,
        /// What it means.
        range: IpNet,
    },
    /// It is a range of IPv4 in IPv6, which no address is in.
    #[error("{0} embeds a range of IPv4: write that by itself")]
    Embedded(Box<str>),
}

impl Listing {
    /// Pairs of an entry at the most.
    pub const MAX_PAIRS: usize = 8;

    /// Bytes of a domain, a key or a value at the most.
    pub const MAX_TEXT_BYTES: usize = 256;

    /// An entry of `list` for a domain, or `*` for every one: it matches descriptors that have all of these keys with such
    /// values. A value is a text, a pattern with `*`, or a range of addresses. It ends at `expires_at_ms`, in milliseconds
    /// since 1970.
    ///
    /// # Errors
    /// When it makes no sense; see [`ListingError`].
    pub fn new<'a>(
        id: &str,
        list: List,
        domain: &str,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        expires_at_ms: Option<u64>,
    ) -> Result<Self, ListingError> {
        let domain = match domain {
            "" => return Err(ListingError::NoDomain),
            "*" => None,
            name if name.contains('*') => return Err(ListingError::StarInDomain),
            name => Some(short("domain", name)?.into()),
        };
        let pairs: Vec<_> =
            pairs.into_iter().map(|(key, value)| pair(key, value)).collect::<Result<_, _>>()?;
        match pairs.len() {
            0 => Err(ListingError::NoPairs),
            1..=Self::MAX_PAIRS => {
                Ok(Self { id: id.into(), list, domain, pairs: pairs.into(), expires_at_ms })
            }
            _ => Err(ListingError::TooManyPairs),
        }
    }

    /// Tells entries apart.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which list it is on.
    pub const fn list(&self) -> List {
        self.list
    }

    /// When it ends, in milliseconds since 1970, if it does.
    pub const fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// Whether it has not ended.
    pub(super) fn holds_at(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_none_or(|end| now_ms < end)
    }

    pub(super) fn domain(&self) -> Option<&str> {
        self.domain.as_deref()
    }

    pub(super) fn pairs(&self) -> &[(Box<str>, Pattern)] {
        &self.pairs
    }

    /// Whether a descriptor with these entries has all that is asked for, in any order.
    pub(super) fn matches(&self, entries: &[Entry<'_>]) -> bool {
        let has = |key: &str, pattern: &Pattern| {
            entries.iter().any(|entry| entry.key == key && pattern.matches(entry.value))
        };
        self.pairs.iter().all(|(key, pattern)| has(key, pattern))
    }
}

fn pair(key: &str, value: &str) -> Result<(Box<str>, Pattern), ListingError> {
    if key.is_empty() {
        return Err(ListingError::EmptyKey);
    }
    if short("key", key)?.contains('*') {
        return Err(ListingError::StarInKey(key.into()));
    }
    Ok((key.into(), Pattern::parse(short("value", value)?)?))
}

fn short<'a>(what: &'static str, text: &'a str) -> Result<&'a str, ListingError> {
    match text.len() {
        0..=Listing::MAX_TEXT_BYTES => Ok(text),
        _ => Err(ListingError::TooLong(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(domain: &str, pairs: &[(&str, &str)]) -> ListingError {
        let listing = Listing::new("1", List::Deny, domain, pairs.iter().copied(), None);
        listing.expect_err("is refused")
    }

    #[test]
    fn an_entry_names_a_domain_and_one_to_eight_pairs_of_bounded_length() {
        let long = "x".repeat(Listing::MAX_TEXT_BYTES);
        let longer = "x".repeat(Listing::MAX_TEXT_BYTES + 1);
        assert_eq!(refused("", &[("a", "b")]), ListingError::NoDomain);
        assert_eq!(refused("ed*", &[("a", "b")]), ListingError::StarInDomain);
        assert_eq!(refused("d", &[]), ListingError::NoPairs);
        assert_eq!(refused("d", &[("a", "b"); 9]), ListingError::TooManyPairs);
        assert_eq!(refused("d", &[("", "b")]), ListingError::EmptyKey);
        assert_eq!(refused("d", &[("a*", "b")]), ListingError::StarInKey("a*".into()));
        assert_eq!(refused("d", &[("a", &longer)]), ListingError::TooLong("value"));
        assert_eq!(refused("d", &[(&longer, "b")]), ListingError::TooLong("key"));
        assert_eq!(refused(&longer, &[("a", "b")]), ListingError::TooLong("domain"));
        assert!(Listing::new("1", List::Deny, &long, [(&*long, &*long); 8], None).is_ok());
        let broad = refused("*", &[("ip", "10.9.9.9/8")]);
        assert_eq!(broad.to_string(), "10.9.9.9/8 means all of 10.0.0.0/8; write that, or a longer prefix");
    }
}
