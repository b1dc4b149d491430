//! Shares of the counted keys for which a limit is enforced.

use std::{fmt, num::NonZeroU64};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::record_id::{Fnv, RecordId};

/// Share of a limit's keys for which it denies; for the others it is in shadow mode. In hundredths of a percent, 0 to
/// [`EnforcedShare::WHOLE`].
///
/// A key is on the same side in every process, after every restart, and with any store. A larger share contains all keys
/// of a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnforcedShare(u16);

/// [`EnforcedShare::WHOLE`] as a divisor.
const DIVISOR: NonZeroU64 = match NonZeroU64::new(EnforcedShare::WHOLE as u64) {
    Some(whole) => whole,
    None => NonZeroU64::MIN,
};

/// Error of a number that is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a percentage from 0 to 100 with at most two decimals, such as 10 or 0.5")]
pub struct NotAShare;

impl EnforcedShare {
    /// All keys, in hundredths of a percent.
    pub const WHOLE: u16 = 10_000;

    /// The share of all keys.
    pub const ALL: Self = Self(Self::WHOLE);

    /// The share of no key.
    pub const NONE: Self = Self(0);

    /// Returns a share in hundredths of a percent.
    ///
    /// # Errors
    /// [`NotAShare`] if it is more than the whole.
    pub const fn from_hundredths(hundredths: u16) -> Result<Self, NotAShare> {
        if hundredths <= Self::WHOLE { Ok(Self(hundredths)) } else { Err(NotAShare) }
    }

    /// Returns the share of a percentage.
    ///
    /// # Errors
    /// [`NotAShare`] if it is outside 0 to 100, or has more than two decimals.
    #[allow(clippy::float_arithmetic)] // Checked to be exact.
    pub fn from_percent(percent: f64) -> Result<Self, NotAShare> {
        let hundredths = (percent * 100.0).round();
        let is_exact = (percent * 100.0 - hundredths).abs() < 1e-6;
        if is_exact && (0.0..=f64::from(Self::WHOLE)).contains(&hundredths) {
            Ok(Self(hundredths as u16))
        } else {
            Err(NotAShare)
        }
    }

    /// The share in hundredths of a percent.
    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// The share as a percentage.
    #[allow(clippy::float_arithmetic)] // Shown to people.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// Whether the limit is enforced for some keys and not for others.
    pub const fn is_partial(self) -> bool {
        0 < self.0 && self.0 < Self::WHOLE
    }

    /// Whether the limit is enforced for a key.
    pub fn contains(self, key: CountedKey) -> bool {
        key.0 % DIVISOR < u64::from(self.0)
    }
}

impl fmt::Display for EnforcedShare {
    /// A percentage without needless decimals: `10`, `0.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.percent())
    }
}

impl Serialize for EnforcedShare {
    /// Serializes the percentage as a number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 100 {
            0 => serializer.serialize_u16(self.0 / 100),
            _ => serializer.serialize_f64(self.percent()),
        }
    }
}

impl<'de> Deserialize<'de> for EnforcedShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_percent(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Hash of what a limit counts: its domain, its rule without the algorithm, and the values that it leaves open. Fixed
/// forever, as [`Fnv`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CountedKey(u64);

impl CountedKey {
    /// The key of a rule's counter for these open entries, keys and values.
    pub fn new<'a>(domain: &str, rule: RecordId, open: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut hash = Fnv::default();
        hash.text(domain);
        hash.bytes(&rule.path());
        for (key, value) in open {
            hash.text(key);
            hash.text(value);
        }
        Self(hash.finish())
    }

    /// The hash.
    pub const fn hash(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PathStep, algorithm::Algorithm};

    fn rule(name: &str) -> RecordId {
        RecordId::of([PathStep::Open(name)], Algorithm::FixedWindow)
    }

    fn key(rule_name: &str, value: &str) -> CountedKey {
        CountedKey::new("edge", rule(rule_name), [("api_key", value)])
    }

    fn share(percent: f64) -> EnforcedShare {
        EnforcedShare::from_percent(percent).expect("a share")
    }

    #[test]
    fn a_tenth_of_ten_thousand_keys_of_any_shape_is_enforced() {
        let shapes: [fn(u32) -> String; 4] = [
            |number| format!("client-{number}"),
            |number| format!("10.0.{}.{}", number / 256, number % 256),
            |number| format!("{number:032x}"),
            |number| number.to_string(),
        ];
        for (at, shape) in shapes.into_iter().enumerate() {
            let enforced = (0..10_000).filter(|number| share(10.0).contains(key("api_key", &shape(*number))));
            let enforced = enforced.count();
            assert!((900..=1_100).contains(&enforced), "{enforced} of shape {at}");
        }
    }

    #[test]
    fn a_larger_share_contains_a_smaller_one_and_the_ends_are_exact() {
        for number in 0..2_000 {
            let key = key("api_key", &number.to_string());
            assert!(share(100.0).contains(key) && !share(0.0).contains(key));
            let sides = [0.01, 1.0, 10.0, 50.0, 99.99].map(|percent| share(percent).contains(key));
            assert!(sides.is_sorted(), "{number}: {sides:?}");
        }
    }

    #[test]
    fn the_hash_of_a_key_never_changes() {
        // Other releases and other instances depend on these.
        assert_eq!(key("api_key", "abc").hash(), KNOWN[0]);
        assert_eq!(CountedKey::new("", rule("a"), []).hash(), KNOWN[1]);
        let of_bucket = RecordId::of([PathStep::Open("api_key")], Algorithm::TokenBucket);
        let of_window = key("api_key", "abc");
        assert_eq!(CountedKey::new("edge", of_bucket, [("api_key", "abc")]), of_window);
    }

    const KNOWN: [u64; 2] = [9_199_860_883_259_228_489, 7_672_917_442_734_659_022];

    #[test]
    fn rules_and_domains_choose_different_keys() {
        let of = |rule: &str| -> Vec<u32> {
            (0..1_000).filter(|number| share(10.0).contains(key(rule, &number.to_string()))).collect()
        };
        let (one, other) = (of("one"), of("other"));
        let shared = one.iter().filter(|number| other.contains(number)).count();
        assert!(shared < one.len() / 3, "{shared} of {}", one.len());
    }

    #[test]
    fn a_share_has_at_most_two_decimals() {
        for (percent, text) in [(0.0, "0"), (0.01, "0.01"), (0.5, "0.5"), (10.0, "10"), (100.0, "100")] {
            assert_eq!(share(percent).to_string(), text);
        }
        for percent in [-1.0, 100.01, 0.005, f64::NAN, f64::INFINITY] {
            assert_eq!(EnforcedShare::from_percent(percent), Err(NotAShare), "{percent}");
        }
        assert!(EnforcedShare::from_hundredths(10_001).is_err());
    }
}
