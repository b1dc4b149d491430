//! Table of address ranges, ordered by prefix length.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use ipnet::{IpNet, Ipv4Net};

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
    /// Adds `value` for `range`, whose host bits are ignored.
    ///
    /// # Errors
    /// Returns `value` if the range has a value already.
    pub fn insert(&mut self, range: IpNet, value: T) -> Result<(), T> {
        let range = range.trunc();
        let length = range.prefix_len();
        let at = match self.lengths.binary_search_by(|(known, _)| length.cmp(known)) {
            Ok(at) => at,
            Err(at) => {
                self.lengths.insert(at, (length, HashMap::new()));
                at
            }
        };
        let Some((_, ranges)) = self.lengths.get_mut(at) else { return Err(value) };
        match ranges.contains_key(&range) {
            true => Err(value),
            false => {
                ranges.insert(range, value);
                Ok(())
            }
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

    /// All values, longest prefix first.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.lengths.iter().flat_map(|(_, ranges)| ranges.values())
    }

    /// All values, longest prefix first, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.lengths.iter_mut().flat_map(|(_, ranges)| ranges.values_mut())
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
pub(super) fn parse(text: &str) -> Option<IpNet> {
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
    use super::*;

    fn table(ranges: &[&'static str]) -> CidrTable<&'static str> {
        let mut table = CidrTable::default();
        for range in ranges {
            table.insert(range.parse().unwrap(), *range).unwrap();
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
        assert_eq!(table.insert("10.9.9.9/8".parse().unwrap(), "again"), Err("again"));
    }
}
