//! The counters of paths that contain a request's values.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock},
};

use parking_lot::RwLock;

use super::{rule::RuleCounters, striped::Striped};

/// The longest such path in bytes: values are the caller's to choose.
const LONGEST: usize = 256;

/// Those of one rule, which go with it. How many paths there are of all rules is bounded where their series are.
#[derive(Default)]
pub struct ValueCounters(RwLock<HashMap<Box<str>, RuleCounters>>);

impl fmt::Debug for ValueCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueCounters")
    }
}

impl ValueCounters {
    /// Those of a path, unless there are too many paths already, or it is too long.
    pub(super) fn of(&self, domain: &str, path: &str, rule: impl FnOnce() -> String) -> Option<RuleCounters> {
        if path.len() > LONGEST {
            dropped();
            return None;
        }
        if let Some(known) = self.0.read().get(path) {
            return Some(known.clone());
        }
        let Some(made) = RuleCounters::of_values(domain, path, &rule()) else {
            dropped();
            return None;
        };
        // Another worker may have made them meanwhile; both count in the same place.
        Some(self.0.write().entry(path.into()).or_insert(made).clone())
    }
}

/// Counts a decision whose path was too long, or one too many.
pub(super) fn dropped() {
    static DROPPED: LazyLock<Arc<Striped<1>>> =
        LazyLock::new(|| Striped::new([metrics::counter!("tollgate_series_dropped_total")]));
    DROPPED.increment(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_its_rule_as_long_as_it_is_not_too_long() {
        let values = ValueCounters::default();
        let longest = "a".repeat(LONGEST);
        assert!(values.of("values", &longest, || "rule".to_owned()).is_some());
        assert!(values.of("values", &longest, || unreachable!("it is known")).is_some());
        assert!(values.of("values", &format!("{longest}a"), || "rule".to_owned()).is_none());
    }
}
