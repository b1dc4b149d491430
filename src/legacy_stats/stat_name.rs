//! Dotted names of rules, as envoyproxy/ratelimit has them.

use std::sync::LazyLock;

use regex_automata::meta::Regex;
use tollgate_rules::unescaped_path as unescaped;

/// An IPv4 address, whose dots do not separate parts.
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}").ok());

/// The name of a rule: its domain and the parts of its path, with dots between them and no escapes. Characters that would end the name or
/// its line are `_`; so are the dots within an address.
pub(super) fn of(domain: &str, path: &str) -> String {
    let is_no_part = |character: char| matches!(character, ':' | '|') || character.is_control();
    let mut name = format!("{domain}.{}", unescaped(path)).replace(is_no_part, "_");
    let Some(regex) = &*ADDRESS else { return name };
    let addresses: Vec<_> = regex.find_iter(&name).map(|found| found.range()).collect();
    for range in addresses {
        if let Some(address) = name.get(range.clone()).map(|address| address.replace('.', "_")) {
            name.replace_range(range, &address);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_character_that_ends_it_and_no_dots_within_addresses() {
        for (domain, path, expected) in [
            ("edge", "tenant_acme.path", "edge.tenant_acme.path"),
            ("a:b", "c|d.e", "a_b.c_d.e"),
            ("d", "remote_address_10.0.0.255.x", "d.remote_address_10_0_0_255.x"),
            ("1.2.3", "4.5", "1_2_3_4.5"),
            ("d", "10.0.0.1 192.168.0.1/16", "d.10_0_0_1 192_168_0_1/16"),
            ("d", "version_1.2.3", "d.version_1.2.3"),
            ("d", r"host_a\.example\.com.\404", "d.host_a.example.com.404"),
            ("d", "x\ny:1|c\r", "d.x_y_1_c_"),
        ] {
            assert_eq!(of(domain, path), expected);
        }
    }
}
