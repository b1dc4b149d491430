//! Guardrails of the deny list: refuse entries that would deny more than a share of the traffic, or all requests with
//! their keys.

use tollgate_limiter::talkers::{self, TrafficShare};
use tollgate_rules::{List, Listing};

use super::{MAX_REPORTED_DOMAINS, Violation, ViolationCode};

/// Share of a domain's requests that an entry may deny, in thousandths.
pub(in crate::http::admin::api) const MAX_DENIED_PER_MILLE: u64 = 50;

/// The guardrails that adding an entry would violate, with the traffic of the last minute on this instance. Takes some
/// milliseconds for each domain.
pub(in crate::http::admin::api) fn violations_of(listing: &Listing) -> Vec<Violation> {
    match listing.list() {
        List::Allow => Vec::new(),
        List::Deny if listing.is_unselective() => vec![Violation {
            code: ViolationCode::DeniesAll,
            domain: listing.domain().unwrap_or("*").to_owned(),
            message: "the entry would deny all requests with its keys, whatever their values are".to_owned(),
        }],
        List::Deny => exceeding(&talkers::shares_of(listing)),
    }
}

/// Violations of the domains of which the entry would deny too much.
fn exceeding(shares: &[TrafficShare]) -> Vec<Violation> {
    let exceeding = shares.iter().filter(|share| share.per_mille() > MAX_DENIED_PER_MILLE);
    let violation = |share: &TrafficShare| Violation {
        code: ViolationCode::DeniesTraffic,
        domain: share.domain.clone(),
        message: format!(
            "the entry would deny {} % of the requests of the last minute; expected at most {} %",
            percent(share.per_mille()),
            percent(MAX_DENIED_PER_MILLE),
        ),
    };
    exceeding.map(violation).take(MAX_REPORTED_DOMAINS).collect()
}

/// A share in percent, with a decimal if it needs one.
fn percent(per_mille: u64) -> String {
    match (per_mille / 10, per_mille % 10) {
        (whole, 0) => whole.to_string(),
        (whole, tenths) => format!("{whole}.{tenths}"),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_rules::ValueMatch;

    use super::*;

    fn codes(list: List, domain: &str, value: &str, value_match: ValueMatch) -> Vec<(ViolationCode, String)> {
        let listing = Listing::new("1", list, domain, [("k", value, value_match)], None).expect("valid");
        violations_of(&listing).into_iter().map(|found| (found.code, found.domain)).collect()
    }

    #[test]
    fn denying_all_values_of_a_key_is_reported_without_traffic() {
        let denied = |domain: &str| [(ViolationCode::DeniesAll, domain.to_owned())];
        assert_eq!(codes(List::Deny, "quiet", "*", ValueMatch::Pattern), denied("quiet"));
        assert_eq!(codes(List::Deny, "*", "**", ValueMatch::Pattern), denied("*"));
        assert_eq!(codes(List::Deny, "quiet", "0.0.0.0/0", ValueMatch::Pattern), denied("quiet"));
        for value in ["*", "0.0.0.0/0", "a*", ""] {
            assert_eq!(codes(List::Deny, "quiet", value, ValueMatch::Exact), [], "{value}");
        }
        assert_eq!(codes(List::Deny, "quiet", "a*", ValueMatch::Pattern), []);
        assert_eq!(codes(List::Allow, "quiet", "*", ValueMatch::Pattern), []);
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!([0, 50, 51, 1_000].map(percent), ["0", "5", "5.1", "100"]);
    }
}
