//! Injectivity of cell names: different parts make different names.

use std::borrow::Cow;

use tollgate_core::{RecordId, algorithm::Algorithm, descriptor::Entry};
use tollgate_runtime::byte_reader::ByteReader;

use super::CellKey;

/// The parts of a name.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    domain: Cow<'a, str>,
    /// Empty for the cell of a rule.
    entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    rule: u8,
    beyond: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    ending: Ending,
}

#[derive(Debug, PartialEq)]
enum Ending {
    None,
    Dedicated(u8),
    LimitOverride(Option<u8>, Algorithm, u32),
}

impl<'a> Parts<'a> {
    fn read(input: &mut ByteReader<'a>) -> Self {
        let mut pairs = |max_count| {
            let count = input.byte().checked_rem(max_count).unwrap_or_default();
            (0..count).map(|_| (input.text(), input.text())).collect()
        };
        let (entries, beyond): (Vec<_>, Vec<_>) = (pairs(4), pairs(3));
        // Parts that the name does not contain must not differ.
        let rule = if entries.is_empty() { input.byte() % 4 } else { 0 };
        let ending = match input.byte() % 4 {
            0 => Ending::None,
            1 => Ending::Dedicated(input.byte()),
            of => {
                let record = (of == 2).then(|| input.byte());
                let algorithm = input.one_of(&Algorithm::ALL).unwrap_or_default();
                Ending::LimitOverride(record, algorithm, input.u32())
            }
        };
        Self { domain: input.text(), entries, rule, beyond, ending }
    }

    fn name(&self) -> CellKey {
        let record = |number| RecordId::numbered(number, Algorithm::FixedWindow);
        fn entries<'b>(pairs: &'b [(Cow<'_, str>, Cow<'_, str>)]) -> impl Iterator<Item = Entry<'b>> {
            pairs.iter().map(|(key, value)| Entry { key, value })
        }
        let mut name = match self.entries.is_empty() {
            true => CellKey::global(&self.domain, record(self.rule)),
            false => CellKey::open(&self.domain, entries(&self.entries)),
        };
        if !self.beyond.is_empty() {
            name = name.with_entries(entries(&self.beyond));
        }
        match self.ending {
            Ending::None => name,
            Ending::Dedicated(number) => name.dedicated(record(number)),
            Ending::LimitOverride(number, algorithm, seconds) => {
                name.limit_override(number.map(record), algorithm, seconds)
            }
        }
    }
}

/// Builds two names from the bytes.
///
/// # Panics
/// If they are equal although their parts differ or vice versa, or if Redis would not find the tag.
pub fn keys(bytes: &[u8]) {
    let mut input = ByteReader(bytes);
    let (left, right) = (Parts::read(&mut input), Parts::read(&mut input));
    let (first, second) = (left.name(), right.name());
    assert_eq!(first.as_bytes() == second.as_bytes(), left == right, "{left:?} and {right:?}: {first}");
    let has_one_tag = (&left.domain, &left.entries, left.rule) == (&right.domain, &right.entries, right.rule);
    assert_eq!(first.tag() == second.tag(), has_one_tag, "{left:?} and {right:?}");
    let inner = first.tag().strip_prefix(b"{").and_then(|tag| tag.strip_suffix(b"}")).unwrap_or_default();
    assert!(!inner.is_empty() && !inner.iter().any(|byte| matches!(byte, b'{' | b'}')), "{first}");
    assert!(first.as_bytes().len() <= 352 && first.slot() < 16_384);
}
