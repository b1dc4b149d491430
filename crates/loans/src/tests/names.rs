//! Names of regions.

use crate::table::RegionName;

#[test]
fn names_are_those_of_dns_labels() {
    for text in ["us-east", "a", "1", &"x".repeat(63)] {
        assert_eq!(text.parse::<RegionName>().expect("a name").as_str(), text);
    }
    for text in ["", "US", "us east", "us.east", "ü", "#", &"x".repeat(64)] {
        assert!(text.parse::<RegionName>().is_err(), "{text}");
    }
    let error = "US".parse::<RegionName>().expect_err("refused").to_string();
    assert_eq!(
        error,
        "`US` is not the name of a region; expected 1 to 63 of a-z, 0-9 and `-`, e.g. `us-east`"
    );
}
