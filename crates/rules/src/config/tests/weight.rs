//! `weight` of a descriptor.

use tollgate_core::descriptor::{Entry, Hits};

use super::{assert_says, clean, domain, errors, rule};

fn with(descriptor: &str, limit: &str) -> String {
    domain(&format!("  - key: model\n    {descriptor}\n    rate_limit: {{{limit}}}\n"))
}

const HOURLY: &str = "unit: hour, requests_per_unit: 60";

#[test]
fn each_value_has_its_weight_and_others_that_of_the_star_or_1() {
    for (weight, expected) in [("{a: 3, 'no': 0}", [6, 0, 2]), ("{a: 3, '*': 5}", [6, 10, 10])] {
        let loaded = clean(&with(&format!("weight: {weight}"), HOURLY));
        let rule = rule(&loaded, &[("model", "a")]).expect("matches");
        let weights = rule.weights.as_ref().expect("stated");
        let weighed = ["a", "no", "b"]
            .map(|value| weights.weigh(Hits::charge(2), &[Entry { key: "model", value }]).charged());
        assert_eq!(weighed, expected);
    }
}

#[test]
fn weights_that_multiply_nothing_are_refused() {
    for (descriptor, limit, message) in [
        ("weight: {a: -1}", HOURLY, "weight.a: expected a whole number from 0 to 1000000, found `-1`"),
        ("weight: {a: 1000001}", HOURLY, "weight.a: expected a whole number"),
        ("weight: {a: 1.5}", HOURLY, "weight.a: expected a whole number"),
        ("weight: 3", HOURLY, "weight: expected a mapping, found `3`"),
        ("weight: {a: 3}", "unlimited: true", "weight: multiplies hits of a window or a bucket"),
        ("weight: {a: 3}", "algorithm: concurrency, requests_per_unit: 5", "weight: multiplies hits"),
    ] {
        assert_says(&errors(&with(descriptor, limit)), &[message]);
    }
    let alone = domain("  - {key: model, weight: {a: 3}}\n");
    assert_says(&errors(&alone), &["weight: has no `rate_limit` in the same descriptor; expected one"]);
}
