//! Addresses: one text for each, so that a client has one counter however its address is written; and tables of ranges.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::{cmp::Reverse, collections::HashMap};

use ipnet::{IpNet, Ipv4Net};
use tollgate_core::descriptor::{Descriptor, Entry};

use crate::Domain;

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
    domain.address_keys.contains(entry.key) && parse(entry.value).is_none()
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
    let range = parse(value)?;
    let text = match range.prefix_len() == range.max_prefix_len() {
        true => range.addr().to_string(),
        false => range.trunc().to_string(),
    };
    (text != value).then(|| text.into())
}

/// Values by address range, looked up by address.
#[derive(Debug)]
pub struct CidrTable<T> {
    /// Values by network, one map for each prefix length, longest first.
    lengths: Vec<(u8, HashMap<IpNet, T>)>,
}

impl<T> Default for CidrTable<T> {
    fn default() -> Self {
        Self { lengths: Vec::new() }
    }
}

impl<T> CidrTable<T> {
    /// Changes the value of `range`, whose host bits are ignored: of a new range, from the default.
    pub fn change(&mut self, range: IpNet, change: impl FnOnce(&mut T))
    where
        T: Default,
    {
        let range = range.trunc();
        let length = range.prefix_len();
        if self.lengths.iter().all(|(known, _)| *known != length) {
            self.lengths.push((length, HashMap::new()));
            self.lengths.sort_unstable_by_key(|(length, _)| Reverse(*length));
        }
        if let Some((_, ranges)) = self.lengths.iter_mut().find(|(known, _)| *known == length) {
            change(ranges.entry(range).or_default());
        }
    }

    /// Values of the ranges that contain the address or range in `text`, longest prefix first.
    pub fn matching<'a>(&'a self, text: &str) -> impl Iterator<Item = (IpNet, &'a T)> + use<'a, T> {
        let address = parse(text);
        self.lengths.iter().filter_map(move |(length, ranges)| {
            let address = address.filter(|address| address.prefix_len() >= *length)?;
            let network = IpNet::new(address.addr(), *length).ok()?.trunc();
            ranges.get_key_value(&network).map(|(range, value)| (*range, value))
        })
    }

    /// The value of a range.
    pub fn get(&self, range: IpNet) -> Option<&T> {
        let (_, ranges) = self.lengths.iter().find(|(length, _)| *length == range.prefix_len())?;
        ranges.get(&range)
    }

    /// All ranges, longest prefix first.
    pub fn ranges(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.lengths.iter().flat_map(|(_, ranges)| ranges.keys().copied())
    }

    /// Whether the table has no range.
    pub const fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

/// Parses an address, as a range of one, or a range, as Envoy's `remote_address` and `masked_remote_address` send them. An
/// address may have a port and brackets, as proxies write it.
pub(crate) fn parse(text: &str) -> Option<IpNet> {
    let with_port = || text.parse::<SocketAddr>().map(|address| address.ip()).ok();
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    // An IPv4 client of a dual-stack listener has an IPv6 address that embeds its IPv4 address.
    if let Some(address) = text.parse().ok().or_else(with_port).or_else(bracketed) {
        return Some(IpNet::from(IpAddr::to_canonical(&address)));
    }
    let range = text.parse::<IpNet>().ok()?;
    match (range.addr().to_canonical(), range.prefix_len().checked_sub(96)) {
        (IpAddr::V4(address), Some(length)) => Ipv4Net::new(address, length).map(IpNet::V4).ok(),
        _ => Some(range),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use tollgate_core::descriptor::Hits;

    use super::*;
    use crate::{Rules, config};

    fn table(ranges: &[&'static str]) -> CidrTable<&'static str> {
        let mut table = CidrTable::default();
        for range in ranges {
            table.change(range.parse().unwrap(), |value| *value = *range);
        }
        table
    }

    fn first(table: &CidrTable<&'static str>, text: &str) -> Option<&'static str> {
        table.matching(text).next().map(|(_, value)| *value)
    }

    #[test]
    fn the_longest_prefix_comes_first_whatever_the_order_of_insertion() {
        let table = table(&["10.0.0.0/8", "10.1.2.0/24", "0.0.0.0/0", "10.1.0.0/16"]);
        assert_eq!(first(&table, "10.1.2.3"), Some("10.1.2.0/24"));
        assert_eq!(first(&table, "10.1.9.9"), Some("10.1.0.0/16"));
        assert_eq!(first(&table, "10.9.9.9"), Some("10.0.0.0/8"));
        assert_eq!(first(&table, "192.0.2.1"), Some("0.0.0.0/0"));
        assert_eq!(table.matching("10.1.2.3").count(), 4);
    }

    #[test]
    fn address_families_are_separate_and_embedded_ipv4_is_ipv4() {
        let table = table(&["0.0.0.0/0", "2001:db8::/32"]);
        assert_eq!(first(&table, "2001:db8::1"), Some("2001:db8::/32"));
        assert_eq!(first(&table, "2001:db9::1"), None);
        assert_eq!(first(&table, "::ffff:192.0.2.1"), Some("0.0.0.0/0"));
    }

    #[test]
    fn a_masked_address_matches_ranges_that_contain_it() {
        let table = table(&["10.1.0.0/16", "10.0.0.0/8"]);
        assert_eq!(first(&table, "10.1.2.0/24"), Some("10.1.0.0/16"));
        assert_eq!(first(&table, "10.0.0.0/12"), Some("10.0.0.0/8"));
        assert_eq!(first(&table, "10.0.0.0/4"), None);
    }

    #[test]
    fn other_texts_match_nothing_and_a_range_is_added_once() {
        let mut table = table(&["10.0.0.0/8"]);
        assert_eq!(first(&table, "localhost"), None);
        table.change("10.9.9.9/8".parse().unwrap(), |value| assert_eq!(*value, "10.0.0.0/8"));
        assert_eq!(table.ranges().count(), 1);
    }

    fn rules(yaml: &str) -> Rules {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("rules.yaml"), yaml).expect("writable");
        config::load(directory.path(), &config::Options::default()).expect("valid").rules
    }

    const RULES: &str = "
domain: d
descriptors:
- {key: plain, rate_limit: {unit: day, requests_per_unit: 1}}
- key: app
  descriptors:
  - {key: ip, cidr: 0.0.0.0/0, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: ip, cidr: '::/0', rate_limit: {unit: day, requests_per_unit: 1}}
";

    fn canonical(key: &str, value: &str) -> String {
        let rules = rules(RULES);
        let domain = rules.domain("d").expect("is there");
        let descriptors = [Descriptor {
            entries: [Entry { key, value }].into_iter().collect(),
            limit: None,
            hits: Hits::ONE,
        }];
        let addresses = CanonicalAddresses::of(domain, &descriptors);
        let applied = addresses.apply(&descriptors);
        let descriptor = applied.first().expect("one descriptor");
        descriptor.entries.first().expect("one entry").value.to_owned()
    }

    #[test]
    fn an_address_has_one_text_however_it_is_written() {
        let texts = |texts: &[&str]| texts.iter().map(|text| canonical("ip", text)).collect::<BTreeSet<_>>();
        let only = |text: &str| BTreeSet::from([text.to_owned()]);
        let ipv4 = [
            "1.2.3.4",
            "::ffff:1.2.3.4",
            "::ffff:102:304",
            "::FFFF:102:304",
            "0:0:0:0:0:ffff:1.2.3.4",
            "1.2.3.4:5678",
            "[::ffff:1.2.3.4]:80",
            "[::ffff:102:304]",
            "1.2.3.4/32",
            "::ffff:1.2.3.4/128",
        ];
        assert_eq!(texts(&ipv4), only("1.2.3.4"));
        let ipv6 =
            ["2001:db8::1", "2001:DB8:0:0::1", "[2001:db8::1]:443", "[2001:db8::1]", "2001:db8::1/128"];
        assert_eq!(texts(&ipv6), only("2001:db8::1"));
        assert_eq!(texts(&["1.2.3.0/24", "1.2.3.4/24", "::ffff:1.2.3.0/120"]), only("1.2.3.0/24"));
        assert_eq!(texts(&["2001:db8::/64", "2001:DB8::5/64"]), only("2001:db8::/64"));
    }

    #[test]
    fn values_of_rules_match_addresses_in_any_text() {
        let rules = rules(
            "
domain: d
descriptors:
- {key: ip, cidr: 0.0.0.0/0, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: ip, value: 10.1.2.3/32, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: ip, value: '2001:DB8::1', rate_limit: {unit: day, requests_per_unit: 1}}
- key: app
  descriptors:
  - {key: ip, value: '::ffff:1.2.3.4', rate_limit: {unit: day, requests_per_unit: 1}}
",
        );
        let domain = rules.domain("d").expect("is there");
        let path = |entries: &[(&str, &str)]| {
            let texts: Vec<_> = entries
                .iter()
                .map(|(_, value)| canonical_text(value).unwrap_or_else(|| (*value).into()))
                .collect();
            let entries = entries.iter().zip(&texts).map(|((key, _), value)| Entry { key, value });
            domain.root.rule(&entries.collect::<Vec<_>>()).map(|rule| rule.path())
        };
        assert_eq!(path(&[("ip", "10.1.2.3/32")]).as_deref(), Some("ip_10.1.2.3/32"));
        assert_eq!(path(&[("ip", "10.1.2.3:80")]).as_deref(), Some("ip_10.1.2.3/32"));
        assert_eq!(path(&[("ip", "2001:db8:0::1")]).as_deref(), Some("ip_2001:DB8::1"));
        assert_eq!(path(&[("app", ""), ("ip", "1.2.3.4")]).as_deref(), Some("app.ip_::ffff:1.2.3.4"));
        assert_eq!(path(&[("ip", "10.1.2.4")]).as_deref(), Some("ip_0.0.0.0/0"));
    }

    #[test]
    fn other_texts_and_other_keys_stay_as_they_are() {
        for value in
            ["a, b", "1.2.3.4, 5.6.7.8", "1.2.3", "", "localhost:80", "01.2.3.4", "1.2.3.4:", "::ffff:"]
        {
            assert_eq!(canonical("ip", value), value);
        }
        assert_eq!(canonical("plain", "::ffff:1.2.3.4"), "::ffff:1.2.3.4");
    }
}
