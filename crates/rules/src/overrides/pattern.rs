//! What a value has to be for an entry of a list to match it.

use std::net::IpAddr;

use ipnet::IpNet;

use super::ListingError;
use crate::{Wildcard, cidr};

/// What a value has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// This text.
    Exact(Box<str>),
    /// An address in the range.
    Range(IpNet),
    /// What the pattern matches.
    Wildcard(Wildcard),
}

impl Pattern {
    /// What `text` states: a `*` makes a pattern, an address and a prefix make a range.
    pub(super) fn parse(text: &str) -> Result<Self, ListingError> {
        if let Some(wildcard) = Wildcard::parse(text) {
            return Ok(Self::Wildcard(wildcard));
        }
        match text.rsplit_once('/') {
            Some((address, prefix)) if is_number(prefix) && address.parse::<IpAddr>().is_ok() => {
                range(text).map(Self::Range)
            }
            _ => Ok(Self::Exact(text.into())),
        }
    }

    /// Whether `value` is one.
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::Range(range) => cidr::parse(value).is_some_and(|address| range.contains(&address)),
            Self::Wildcard(wildcard) => wildcard.matches(value),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The range, if it means what it says: in an emergency nobody is to find out that 10.9.9.9/8 was all of 10.0.0.0/8.
fn range(text: &str) -> Result<IpNet, ListingError> {
    let range: IpNet = text.parse().map_err(|_| ListingError::NoRange(text.into()))?;
    if range != range.trunc() {
        return Err(ListingError::HostBits { stated: text.into(), range: range.trunc() });
    }
    match range.addr().to_canonical() {
        // Addresses are taken out of what embeds them before they are compared.
        IpAddr::V4(_) if matches!(range, IpNet::V6(_)) => Err(ListingError::Embedded(text.into())),
        _ => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        Pattern::parse(pattern).expect("good").matches(value)
    }

    #[test]
    fn a_value_is_itself_or_a_pattern_or_a_range() {
        assert!(matches("abc", "abc") && !matches("abc", "abcd"));
        assert!(matches("", "") && !matches("", "x"));
        assert!(matches("key_*_test", "key_1_test") && !matches("key_*_test", "key_1"));
        assert!(matches("*", ""));
        assert!(matches("10.0.0.0/8", "10.1.2.3") && !matches("10.0.0.0/8", "11.0.0.0"));
        assert!(matches("2001:db8::/32", "2001:db8::1") && !matches("2001:db8::/32", "::1"));
        // What is no range is a text like any other.
        assert!(matches("/v1/8", "/v1/8") && matches("10.0.0.0/x", "10.0.0.0/x"));
    }

    #[test]
    fn a_range_holds_embedded_and_masked_addresses_as_it_does_in_rules() {
        assert!(matches("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(matches("10.0.0.0/8", "10.1.0.0/16") && !matches("10.0.0.0/8", "8.0.0.0/5"));
        assert!(!matches("0.0.0.0/0", "2001:db8::1") && !matches("::/0", "::ffff:10.1.2.3"));
    }

    #[test]
    fn a_range_that_does_not_mean_what_it_says_is_refused() {
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/999", "10.9.9.9/8", "::ffff:10.0.0.0/104"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
