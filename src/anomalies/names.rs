//! Names of series in the control store.

use tollgate_anomaly::SeriesKey;

/// The name of a series; injective for any domain and path.
pub(super) fn name_of(key: &SeriesKey) -> String {
    format!("{}:{}:{}", key.domain.len(), key.domain, key.rule)
}

/// The series of a name, unless it is malformed.
pub(super) fn key_of(name: &str) -> Option<SeriesKey> {
    let (length, rest) = name.split_once(':')?;
    let (domain, rule) = rest.split_at_checked(length.parse().ok()?)?;
    Some(SeriesKey { domain: domain.into(), rule: rule.strip_prefix(':')?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_series() {
        for (domain, rule) in [("", ""), ("edge", ""), ("a:1", "b:c"), ("1:a", "key_value"), ("ä", ":")] {
            let key = SeriesKey { domain: domain.into(), rule: rule.into() };
            assert_eq!(key_of(&name_of(&key)), Some(key));
        }
        for wrong in ["", "edge", "4:edge", "9:edge:rule", "x:edge:rule", "1:ä:rule"] {
            assert_eq!(key_of(wrong), None, "{wrong}");
        }
    }
}
