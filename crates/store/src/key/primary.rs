//! Names of counters that the primary region decides for all regions.
//!
//! Their tags begin with a tilde, which no escaped domain does. So they share no step with other counters, and a name
//! alone shows where its counters are decided.

use tollgate_core::{RecordId, region::hash_of};

use super::{Bytes, CellKey, MAX_PEER_BYTES, escape, write_hex, write_id};

/// Mark of a tag of the primary region, behind its brace.
const MARK: u8 = b'~';

/// Keys and values.
type Pairs = Vec<(String, String)>;

impl CellKey {
    /// The cell of the same counters in `domain` at the primary region.
    #[must_use]
    pub fn at_primary(self, domain: &str) -> Self {
        let mut bytes = Bytes::from_slice(b"{~");
        // A hashed tag does not show its domain.
        if self.bytes.get(1) == Some(&b'#') {
            write_domain(&mut bytes, domain);
        }
        let added = bytes.len().saturating_sub(1);
        bytes.extend_from_slice(self.bytes.get(1..).unwrap_or_default());
        Self { bytes, tag: self.tag.saturating_add(added) }
    }

    /// Whether the primary region decides its counters for all regions.
    pub fn is_at_primary(&self) -> bool {
        self.bytes.get(1) == Some(&MARK)
    }

    /// The cell of the counter `record` in `domain` that a call of another region names; `None` for a name that no counter
    /// of the domain at the primary region has. `has_own_key`: whether the counter's algorithm needs a key of its own.
    pub fn of_call(domain: &str, name: &[u8], record: RecordId, has_own_key: bool) -> Option<Self> {
        let is_of_domain = name.starts_with(&plain_start(domain)) || name.starts_with(&hashed_start(domain));
        if name.len() > MAX_PEER_BYTES || !is_of_domain {
            return None;
        }
        // A brace within a part is escaped.
        let tag = name.iter().position(|byte| *byte == b'}')?.checked_add(1)?;
        let mut rest = name.get(tag..)?;
        if has_own_key {
            let mut own = Bytes::from_slice(b"~");
            write_id(&mut own, record);
            rest = rest.strip_suffix(own.as_slice())?;
        }
        let is_plain = rest.is_empty() || rest.first() == Some(&b'+');
        let is_clean = !rest.iter().any(|byte| matches!(byte, 0..=b' ' | b'{' | b'}' | b'~' | 0x7f));
        (is_plain && is_clean).then(|| Self { bytes: Bytes::from_slice(name), tag })
    }

    /// The open values in the name of a cell in `domain` at the primary region, in the name's order; `None` if a part of it
    /// is hashed.
    pub fn open_values(&self, domain: &str) -> Option<Pairs> {
        let tag = self.tag().strip_prefix(plain_start(domain).as_slice())?.strip_suffix(b"}")?;
        let beyond = self.bytes.get(self.tag..).unwrap_or_default();
        let beyond = beyond.split(|byte| *byte == b'~').next().unwrap_or_default();
        let parts = [tag, beyond.strip_prefix(b"+").unwrap_or_default()];
        let entries = parts.into_iter().filter(|part| !part.is_empty() && part.first() != Some(&b'@'));
        entries.flat_map(|part| part.split(|byte| *byte == b',')).map(pair).collect()
    }
}

fn plain_start(domain: &str) -> Bytes {
    let mut bytes = Bytes::from_slice(b"{~");
    escape(&mut bytes, domain);
    bytes.push(b'|');
    bytes
}

fn hashed_start(domain: &str) -> Bytes {
    let mut bytes = Bytes::from_slice(b"{~");
    write_domain(&mut bytes, domain);
    bytes.push(b'#');
    bytes
}

fn write_domain(bytes: &mut Bytes, domain: &str) {
    write_hex(bytes, &hash_of(domain.as_bytes()).to_be_bytes());
}

/// Key and value of an entry in a name.
fn pair(entry: &[u8]) -> Option<(String, String)> {
    let at = entry.iter().position(|byte| *byte == b'=')?;
    let (key, value) = entry.split_at(at);
    Some((unescape(key)?, unescape(value.get(1..)?)?))
}

fn unescape(text: &[u8]) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use tollgate_core::{algorithm::Algorithm, descriptor::Entry};

    use super::*;

    fn key(domain: &str, entries: &[(String, String)]) -> CellKey {
        CellKey::open(domain, entries.iter().map(|(key, value)| Entry { key, value })).at_primary(domain)
    }

    fn entry(value: &str) -> Pairs {
        vec![("k".to_owned(), value.to_owned())]
    }

    #[test]
    fn a_name_at_the_primary_region_has_a_tag_of_its_own() {
        let cell = key("edge", &entry("v"));
        assert_eq!((cell.to_string().as_str(), cell.tag()), ("{~edge|k=v}", &b"{~edge|k=v}"[..]));
        assert!(cell.is_at_primary() && cell.open_values("other").is_none());
        let plain = CellKey::open("~edge", std::iter::empty());
        assert!(!plain.is_at_primary(), "the tilde of a domain is escaped");
        let record = RecordId::alone(Algorithm::Concurrency);
        let own = cell.clone().dedicated(record);
        assert_eq!(CellKey::of_call("edge", own.as_bytes(), record, true), Some(own.clone()));
        assert_eq!(CellKey::of_call("edge", own.as_bytes(), record, false), None);
        assert_eq!(CellKey::of_call("edge", cell.as_bytes(), record, true), None);
        assert_eq!(own.open_values("edge"), Some(entry("v")));
    }

    #[test]
    fn a_hashed_name_shows_its_domain() {
        let long = entry(&"v".repeat(10_000));
        let cells = ["one", "two"].map(|domain| key(domain, &long));
        let record = RecordId::alone(Algorithm::FixedWindow);
        for (domain, [own, other]) in [("one", [0, 1]), ("two", [1, 0])] {
            let taken = |at: usize| CellKey::of_call(domain, cells[at].as_bytes(), record, false);
            assert_eq!((taken(own), taken(other)), (Some(cells[own].clone()), None));
        }
        assert_eq!(cells[0].open_values("one"), None);
    }

    #[test]
    fn a_name_that_no_counter_of_the_domain_has_is_not_taken() {
        let record = RecordId::alone(Algorithm::FixedWindow);
        for name in [
            "",
            "{~edge|",
            "{edge|k=v}",
            "{~edge|k=v}~utilization",
            "{~edge|k=v}~0.60",
            "{~edge|k=v}more",
            "{~edge|k=v}+k=v w",
            "{~edge|k=v}+k={tollgate-rules}",
            "{tollgate-rules}head",
        ] {
            assert_eq!(CellKey::of_call("edge", name.as_bytes(), record, false), None, "{name}");
        }
        let long = format!("{{~edge|{}}}", "v".repeat(1_000));
        assert_eq!(CellKey::of_call("edge", long.as_bytes(), record, false), None);
    }

    /// Text of the characters that structure names, and some others.
    fn awkward() -> impl Strategy<Value = String> {
        prop_oneof!["[{}|=,%@#~+ a0é\n]{0,6}", ".{0,8}"]
    }

    proptest! {
        #[test]
        fn names_are_taken_and_read_as_they_were_made(
            domain in awkward(),
            tag in vec((awkward(), awkward()), 1..3),
            beyond in vec((awkward(), awkward()), 0..3),
            has_own_key in any::<bool>(),
        ) {
            let record = RecordId::alone(Algorithm::SlidingWindowLog);
            let mut cell = key(&domain, &tag);
            if !beyond.is_empty() {
                cell = cell.with_entries(beyond.iter().map(|(key, value)| Entry { key, value }));
            }
            if has_own_key {
                cell = cell.dedicated(record);
            }
            let taken = CellKey::of_call(&domain, cell.as_bytes(), record, has_own_key);
            prop_assert_eq!(taken.as_ref(), Some(&cell));
            let is_hashed = cell.to_string().contains('#');
            let all: Pairs = tag.into_iter().chain(beyond).collect();
            prop_assert_eq!(cell.open_values(&domain), (!is_hashed).then_some(all));
        }
    }
}
