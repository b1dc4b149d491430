//! One text for each address, so that a client has one counter however its address is written.

use std::net::Ipv4Addr;

use tollgate_core::descriptor::{Descriptor, Entry};

use crate::{Domain, cidr};

/// Canonical texts of the addresses in a request that are written otherwise. Most requests have none.
#[derive(Debug, Default)]
pub struct CanonicalAddresses(Vec<CanonicalAddress>);

#[derive(Debug)]
struct CanonicalAddress {
    descriptor: usize,
    entry: usize,
    text: Box<str>,
}

impl CanonicalAddresses {
    /// Returns the texts for these descriptors, in the entries whose keys are matched by ranges somewhere in the domain.
    pub fn of(domain: &Domain, descriptors: &[Descriptor<'_>]) -> Self {
        if domain.address_keys.is_empty() {
            return Self::default();
        }
        let mut texts = Vec::new();
        for (descriptor, of_request) in descriptors.iter().enumerate() {
            for (entry, pair) in of_request.entries.iter().enumerate() {
                texts.extend(canonical(domain, *pair).map(|text| CanonicalAddress {
                    descriptor,
                    entry,
                    text,
                }));
            }
        }
        Self(texts)
    }

    /// Whether all addresses are canonical.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The descriptors with these texts.
    pub fn apply<'a>(&'a self, descriptors: &'a [Descriptor<'_>]) -> Vec<Descriptor<'a>> {
        let copy = |of_request: &'a Descriptor<'_>| Descriptor {
            entries: of_request.entries.iter().map(|Entry { key, value }| Entry { key, value }).collect(),
            limit: of_request.limit,
            hits: of_request.hits,
        };
        let mut applied: Vec<_> = descriptors.iter().map(copy).collect();
        for CanonicalAddress { descriptor, entry, text } in &self.0 {
            let of_request = applied.get_mut(*descriptor);
            if let Some(pair) = of_request.and_then(|of_request| of_request.entries.get_mut(*entry)) {
                pair.value = text;
            }
        }
        applied
    }
}

/// Whether ranges of the domain match values of the entry's key, but not this one, since it is no address.
pub fn lacks_address(domain: &Domain, entry: Entry<'_>) -> bool {
    domain.address_keys.contains(entry.key) && cidr::parse(entry.value).is_none()
}

/// The canonical text of the entry's value, if ranges match values of its key and it is an address in another text.
pub(crate) fn canonical(domain: &Domain, entry: Entry<'_>) -> Option<Box<str>> {
    if domain.address_keys.contains(entry.key) { canonical_text(entry.value) } else { None }
}

/// The canonical text of an address or a range in another text.
pub(crate) fn canonical_text(value: &str) -> Option<Box<str>> {
    if value.parse::<Ipv4Addr>().is_ok() {
        return None;
    }
    let range = cidr::parse(value)?;
    let text = match range.prefix_len() == range.max_prefix_len() {
        true => range.addr().to_string(),
        false => range.trunc().to_string(),
    };
    (text != value).then(|| text.into())
}

#[cfg(test)]
mod tests;
