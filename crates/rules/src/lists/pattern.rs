//! Conditions of list entries on a value.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{ListingError, ValueMatch};
use crate::{Wildcard, cidr};

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
    /// The condition that a value states: the text itself, or what [`Pattern::parse`] makes of it.
    pub(super) fn of(text: &str, value_match: ValueMatch) -> Result<Self, ListingError> {
        match value_match {
            ValueMatch::Exact => Ok(Self::exact(text)),
            ValueMatch::Pattern => Self::parse(text),
        }
    }

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
    pub(super) fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::Range(range) => cidr::parse(value).is_some_and(|address| range.contains(&address)),
            Self::Wildcard(wildcard) => wildcard.matches(value),
        }
    }

    /// Whether the condition selects no values: a pattern that matches all, or a range of all addresses of a family.
    pub(super) fn is_unselective(&self) -> bool {
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
            let exact = Pattern::of(text, ValueMatch::Exact).expect("any text");
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
                assert!(
                    Pattern::of(text, ValueMatch::Exact).expect("valid").matches(value),
                    "{text}: {value}"
                );
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
