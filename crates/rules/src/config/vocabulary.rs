//! Which keys the language has, and where.

/// A place that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The root of a file.
    File,
    /// The mapping under `defaults`.
    Defaults,
    /// An element of `descriptors`.
    Descriptor,
    /// The mapping under `rate_limit`.
    RateLimit,
    /// An element of `replaces`.
    Replaces,
}

/// What a key is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It belongs there.
    Known,
    /// The reference knows it and ignores it there in silence; it belongs to the other place.
    Ignored(Place),
    /// It is one of ours and belongs to the other place.
    Misplaced(Place),
    /// No such key; perhaps this one was meant.
    Unknown(Option<&'static str>),
}

/// The keys of the reference's language.
const REFERENCE: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

impl Place {
    const ALL: [Self; 5] = [Self::Descriptor, Self::RateLimit, Self::File, Self::Replaces, Self::Defaults];

    /// The keys that belong here.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::File => &["domain", "descriptors", "defaults", "hash_tag", "atomic"],
            Self::Defaults => &[
                "algorithm",
                "burst",
                "min_interval",
                "lease_ttl",
                "on_store_error",
                "requests_per_unit",
                "sync",
                "unit",
                "unit_multiplier",
                "window",
            ],
            Self::Descriptor => &[
                "key",
                "value",
                "regex",
                "cidr",
                "rate_limit",
                "descriptors",
                "shadow_mode",
                "quota_mode",
                "detailed_metric",
                "value_to_metric",
                "share_threshold",
                "metadata",
            ],
            Self::RateLimit => &[
                "unit",
                "requests_per_unit",
                "unlimited",
                "name",
                "replaces",
                "algorithm",
                "burst",
                "min_interval",
                "lease_ttl",
                "window",
                "unit_multiplier",
                "sync",
                "on_store_error",
            ],
            Self::Replaces => &["name"],
        }
    }

    /// The place in a sentence.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::File => "the root of a file",
            Self::Defaults => "`defaults`",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "`rate_limit`",
            Self::Replaces => "an element of `replaces`",
        }
    }

    /// What `key` is here.
    pub(super) fn standing(self, key: &str) -> Standing {
        if self.keys().contains(&key) {
            return Standing::Known;
        }
        match Self::ALL.into_iter().find(|place| place.keys().contains(&key)) {
            // The reference has no defaults: there is no habit to be kind to.
            Some(place) if REFERENCE.contains(&key) && self != Self::Defaults => Standing::Ignored(place),
            Some(place) => Standing::Misplaced(place),
            None => Standing::Unknown(self.nearest(key)),
        }
    }

    /// The key that was likely meant, one of this place if it can be.
    fn nearest(self, key: &str) -> Option<&'static str> {
        let elsewhere = Self::ALL.into_iter().flat_map(|place| place.keys());
        nearest(key, self.keys().iter().copied()).or_else(|| nearest(key, elsewhere.copied()))
    }
}

/// Whether the reference's language has the key.
pub fn is_of_reference(key: &str) -> bool {
    REFERENCE.contains(&key)
}

/// The word that `word` likely is with a slip of the keyboard.
pub(super) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance costs the product of the lengths.
    if word.len() > 64 {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace(['_', '-', ' '], "");
    let meant = plain(word);
    let close = words.into_iter().map(|known| (distance(&meant, &plain(known)), known));
    let near = close.filter(|(distance, known)| *distance <= known.len().div_ceil(4).min(3));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Insertions, deletions and replacements that turn one word into the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line.saturating_add(1);
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, b) in row.iter_mut().skip(1).zip(to.chars()) {
            let replaced = diagonal.saturating_add(usize::from(a != b));
            diagonal = *cell;
            left = replaced.min(diagonal.min(left).saturating_add(1));
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn typos_find_the_key_that_was_meant() {
        for (typo, meant) in [
            ("requestsperunit", "requests_per_unit"),
            ("request_per_unit", "requests_per_unit"),
            ("Unit", "unit"),
            ("brust", "burst"),
        ] {
            assert_eq!(Place::RateLimit.standing(typo), Standing::Unknown(Some(meant)), "{typo}");
        }
        assert_eq!(Place::Descriptor.standing("ratelimit"), Standing::Unknown(Some("rate_limit")));
        assert_eq!(Place::Descriptor.standing("shadowMode"), Standing::Unknown(Some("shadow_mode")));
        assert_eq!(Place::File.standing("comment"), Standing::Unknown(None));
    }

    #[test]
    fn keys_in_the_wrong_place_know_the_right_one() {
        assert_eq!(Place::RateLimit.standing("shadow_mode"), Standing::Ignored(Place::Descriptor));
        assert_eq!(Place::File.standing("unit"), Standing::Ignored(Place::RateLimit));
        assert_eq!(Place::Descriptor.standing("burst"), Standing::Misplaced(Place::RateLimit));
        assert_eq!(Place::Descriptor.standing("atomic"), Standing::Misplaced(Place::File));
        assert_eq!(Place::Defaults.standing("unlimited"), Standing::Misplaced(Place::RateLimit));
        assert_eq!(Place::Descriptor.standing("on_store_error"), Standing::Misplaced(Place::RateLimit));
    }

    #[test]
    fn every_key_of_the_reference_has_a_place() {
        for key in REFERENCE {
            assert!(Place::ALL.into_iter().any(|place| place.keys().contains(&key)), "{key}");
        }
    }
}
