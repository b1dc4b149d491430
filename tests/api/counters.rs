//! Looking at counters, giving hits back, and trying what a request would meet.

use super::*;

fn hit(tollgate: &Tollgate) -> u16 {
    tollgate.hit("web", &[("k", "v")]).status
}

#[test]
fn counters_are_read_reset_and_refunded() {
    let tollgate =
        Tollgate::serving(&format!("{}- key: free\n  rate_limit: {{unlimited: true}}\n", limit(3)), &[]);
    let admin = Admin::of(&tollgate);
    let counter = json!({"domain": "web", "descriptor": k("v")});
    for _ in 0..3 {
        assert_eq!(hit(&tollgate), 200);
    }
    for _ in 0..2 {
        let read = &admin.get("/usage?domain=web&descriptor=k%3Dv")["limits"][0];
        assert_eq!(members(read, ["used", "remaining", "held"]), json!([3, 0, 0]));
        assert_eq!(members(read, ["rule", "limit"]), json!(["k", "3 per year, fixed_window"]));
        let request = json!({"domain": "web", "descriptors": [k("v")]});
        let tried = &admin.done("POST", "/try", &request, 200)["descriptors"][0]["counter"];
        assert_eq!(members(tried, ["used", "would_pass"]), json!([3, false]));
        assert!(
            tried["reset_after_ms"].as_u64().is_some_and(|ms| (1..=31_536_000_000).contains(&ms)),
            "{tried}"
        );
    }
    assert_eq!(hit(&tollgate), 429);
    // The denied hit counts too.
    let refund = json!({"domain": "web", "descriptor": k("v"), "hits": 2});
    let refunded = admin.done("POST", "/counters/refund", &refund, 200)["limits"][0].clone();
    assert_eq!(members(&refunded, ["used", "remaining"]), json!([2, 1]));
    assert_eq!((hit(&tollgate), hit(&tollgate)), (200, 429));
    assert_eq!(admin.done("POST", "/counters/reset", &counter, 200)["limits"][0]["used"], 0);
    assert_eq!(hit(&tollgate), 200);

    for key in ["free", "none"] {
        let path = format!("/usage?domain=web&descriptor={key}%3Dx");
        assert_eq!(code(&admin.request("GET", &path, None)), (404, "not_found"), "{path}");
        for path in ["reset", "refund"] {
            let mut body = json!({"domain": "web", "descriptor": [{"key": key, "value": "x"}]});
            if path == "refund" {
                body["hits"] = json!(1);
            }
            assert_eq!(code(&admin.post(&format!("/counters/{path}"), &body)), (404, "not_found"), "{path}");
        }
    }
    let none = json!({"domain": "web", "descriptor": k("v"), "hits": 0});
    assert_eq!(code(&admin.post("/counters/refund", &none)), (400, "bad_request"));
    assert_eq!(
        admin.get("/audit")["entries"].as_array().map(Vec::len),
        Some(2),
        "what failed changed nothing"
    );
}

const USAGE_RULES: &str = "domain: web\ndescriptors:\n- {key: team, rate_limit: {unit: year, requests_per_unit: 50000000000, name: dollars}}\n\
     - {key: busy, rate_limit: {algorithm: concurrency, requests_per_unit: 3}}\n\
     - {key: user, rate_limit: {unit: year, requests_per_unit: 2000, reserve: {ttl: 1h}}}\n";

#[test]
fn usage_of_a_descriptor_is_read_without_a_charge() {
    let tollgate = Tollgate::serving(USAGE_RULES, &[]);
    let admin = Admin::of(&tollgate);
    let charge = r#"{"domain": "web", "descriptors": [{"entries": [{"key": "team", "value": "a,b"}], "hitsAddend": "30000000001"}]}"#;
    assert_eq!(tollgate.post(charge).status, 200);
    for _ in 0..2 {
        let usage = admin.get("/usage?domain=web&descriptor=team%3D%22a%2Cb%22");
        assert_eq!((&usage["domain"], usage["limits"].as_array().map(Vec::len)), (&json!("web"), Some(1)));
        let limit = &usage["limits"][0];
        assert_eq!(members(limit, ["rule", "name"]), json!(["team", "dollars"]));
        assert_eq!(members(limit, ["limit_hits", "window_seconds"]), json!([50_000_000_000_u64, 31_536_000]));
        assert_eq!(members(limit, ["used", "remaining"]), json!([30_000_000_001_u64, 19_999_999_999_u64]));
        let window_ms = 31_536_000_000;
        assert!(limit["resets_at_ms"].as_u64().is_some_and(|ms| ms > 0 && ms % window_ms == 0), "{usage}");
    }
    assert_eq!(
        admin.get("/usage?domain=web&descriptor=busy%3Dx")["limits"][0]["window_seconds"],
        json!(null)
    );
    assert_held_hits_are_neither_used_nor_left(&tollgate, &admin);
    for (query, expected) in [
        ("domain=web&descriptor=none%3Dx", (404, "not_found")),
        ("domain=web&descriptor=none", (400, "bad_request")),
        ("domain=web", (400, "bad_request")),
    ] {
        assert_eq!(code(&admin.request("GET", &format!("/usage?{query}"), None)), expected, "{query}");
    }
}

/// Holds hits by a lease and settles it. Every view of the counter shows the same.
fn assert_held_hits_are_neither_used_nor_left(tollgate: &Tollgate, admin: &Admin) {
    let send = |entries: &str, hits: u32| {
        let body = format!(
            r#"{{"domain": "web", "descriptors": [{{"entries": [{entries}], "hitsAddend": {hits}}}]}}"#
        );
        let answer = tollgate.post(&body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let user = r#"{"key": "user", "value": "me"}"#;
    let lease = send(user, 480)["dynamicMetadata"]["lease"].as_str().expect("a lease").to_owned();
    let usage = || {
        let usage = admin.get("/usage?domain=web&descriptor=user%3Dme")["limits"][0].clone();
        let tried = admin.done(
            "POST",
            "/try",
            &json!({"domain": "web", "descriptors": [[{"key": "user", "value": "me"}]]}),
            200,
        );
        let counter = &tried["descriptors"][0]["counter"];
        ["used", "reserved", "remaining"].map(|key| {
            assert_eq!(counter[key], usage[key], "{key}");
            usage[key].as_u64().expect("a number")
        })
    };
    assert_eq!(usage(), [0, 480, 1_520]);
    send(&format!(r#"{user}, {{"key": "lease", "value": "{lease}"}}"#), 120);
    assert_eq!(usage(), [120, 0, 1_880]);
}

#[test]
fn a_dry_run_uses_the_active_or_other_rules_and_charges_nothing() {
    let config = rules(&limit(2));
    let tollgate = Tollgate::start(config.path(), &[]);
    let admin = Admin::of(&tollgate);
    let request = json!({"domain": "web", "descriptors": [k("v")]});
    let proposed = |requests: u32| json!({"domain": "web", "descriptors": [k("v")], "files": {"a.yaml": limit(requests)}});
    assert_eq!((hit(&tollgate), hit(&tollgate)), (200, 200));
    for _ in 0..2 {
        let tried = admin.done("POST", "/try", &request, 200);
        assert_eq!(tried["is_over_limit"], true);
        let descriptor = &tried["descriptors"][0];
        assert_eq!((&descriptor["counter"]["used"], &descriptor["rule"]["rule"]), (&json!(2), &json!("k")));
        assert_eq!(descriptor["steps"][0]["taken"], "the key k with any value");
        assert_eq!(tried["problem"], json!(null));
        let raised = admin.done("POST", "/try", &proposed(3), 200);
        assert_eq!(
            (&raised["is_over_limit"], &raised["descriptors"][0]["counter"]["used"]),
            (&json!(false), &json!(2))
        );
    }
    assert_eq!(admin.done("POST", "/try", &proposed(2), 200)["is_over_limit"], true);
    let arguments = ["explain", "--domain", "web", "k=v", "--config"];
    let explained = ended(command().args(arguments).arg(config.path())).stdout;
    assert_eq!(admin.done("POST", "/try", &request, 200)["text"], explained);
    let broken = json!({"domain": "web", "descriptors": [k("v")], "files": {"a.yaml": "domain: ["}});
    assert_eq!(code(&admin.post("/try", &broken)), (422, "invalid"));
    let elsewhere = admin.done("POST", "/try", &json!({"domain": "none", "descriptors": [k("v")]}), 200);
    assert_eq!(
        (&elsewhere["is_over_limit"], &elsewhere["descriptors"][0]["rule"]),
        (&json!(false), &json!(null))
    );
    assert_a_dry_run_shows_lists_and_switches(&admin, &request);
    assert_wrong_changes_are_refused(&admin);
}

/// Adds and removes an entry, and sets a switch.
fn assert_a_dry_run_shows_lists_and_switches(admin: &Admin, body: &Value) {
    let entry = json!({"kind": "list_entry", "list": "allow", "domain": "web", "descriptor": k("v*"), "reason": "a friend"});
    let added = admin.put(&entry);
    wait("the entry is in force", || {
        let tried = admin.done("POST", "/try", body, 200);
        tried["is_over_limit"] == false && tried["descriptors"][0]["listed"] == added
    });
    assert_eq!(admin.remove(&added).0, 204);
    let switch = json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "off", "reason": "down"});
    admin.put(&switch);
    wait("the switch is in force", || {
        let tried = admin.done("POST", "/try", body, 200);
        tried["is_over_limit"] == false && tried["descriptors"][0]["rule"]["switch"] == "off"
    });
}

fn assert_wrong_changes_are_refused(admin: &Admin) {
    let twice = json!({"kind": "list_entry", "list": "allow", "domain": "web", "descriptor": k("v")});
    let twice = json!({"records": [twice, twice], "reason": "x"});
    assert_eq!(code(&admin.request("PUT", "/records", Some(&twice))), (422, "invalid"));
    let no_rule =
        json!({"kind": "switch", "domain": "web", "rule": "other", "mode": "off", "reason": "down"});
    assert_eq!(code(&admin.try_put(&no_rule)), (404, "not_found"));
    for (domain, descriptor) in [("web", json!([])), ("we*", k("v")), ("web", k("10.1.2.3/8"))] {
        let wrong = json!({"kind": "list_entry", "list": "deny", "domain": domain, "descriptor": descriptor, "reason": "x"});
        assert_eq!(code(&admin.try_put(&wrong)), (422, "invalid"), "{wrong}");
    }
    for wrong in [
        json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": k("v"), "reason": " "}),
        json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": k("v"), "reason": "x", "expires_in_s": 0}),
        json!({"kind": "automatic", "domain": "web", "descriptor": k("v"), "reason": "x"}),
    ] {
        assert_eq!(code(&admin.try_put(&wrong)), (400, "bad_request"), "{wrong}");
    }
}

/// A request that takes a permit of the concurrency limit `slow`, and one that releases a lease.
fn slow(hits: u64, lease: Option<&str>) -> String {
    let mut entries = vec![json!({"key": "slow", "value": "v"})];
    entries.extend(lease.map(|lease| json!({"key": "lease", "value": lease})));
    json!({"domain": "web", "descriptors": [{"entries": entries, "hitsAddend": hits.to_string()}]})
        .to_string()
}

#[test]
fn reads_and_refunds_of_hits_leave_the_permits_of_a_lease_alone() {
    let places = "- key: slow\n  rate_limit: {algorithm: concurrency, requests_per_unit: 1}\n";
    let tollgate = Tollgate::serving(&format!("{}{places}", limit(3)), &[]);
    let admin = Admin::of(&tollgate);
    let send = |hits, lease: Option<&str>| tollgate.post(&slow(hits, lease));
    let taken = send(1, None);
    let lease = taken.json();
    let lease = lease["dynamicMetadata"]["lease"].as_str().expect("a lease");
    let descriptor = json!([{"key": "slow", "value": "v"}, {"key": "lease", "value": lease}]);
    let one = json!({"domain": "web", "descriptor": descriptor});

    let tried = admin.done("POST", "/try", &json!({"domain": "web", "descriptors": [descriptor]}), 200);
    assert_eq!(tried["descriptors"][0]["counter"]["used"], 1, "{tried}");
    assert_eq!(tried["is_over_limit"], false, "refunds are never denied");
    let usage = admin.get(&format!("/usage?domain=web&descriptor=slow%3Dv%2Clease%3D{lease}"));
    assert_eq!(usage["limits"][0]["used"], 1, "{usage}");
    assert_eq!(code(&admin.post("/counters/reset", &one)), (400, "bad_request"));
    let refund = json!({"domain": "web", "descriptor": descriptor, "hits": 1});
    assert_eq!(code(&admin.post("/counters/refund", &refund)), (400, "bad_request"));
    assert_eq!(admin.get("/audit")["entries"].as_array().map(Vec::len), Some(0));
    assert_eq!(send(1, None).status, 429, "the place is held still");

    // Who holds it gives it back.
    assert_eq!(send(1, Some(lease)).status, 200);
    assert_eq!(send(1, None).status, 200);
}

#[test]
fn the_predicted_verdict_matches_the_next_hit_for_every_algorithm() {
    let limits = [
        ("fixed_window", "unit: year"),
        ("sliding_window", "unit: year"),
        ("sliding_window_log", "unit: year"),
        ("token_bucket", "unit: year"),
        ("concurrency", ""),
    ];
    let rule = |(name, unit): &(&str, &str)| {
        let limit = [&format!("algorithm: {name}"), *unit, "requests_per_unit: 2"];
        let stated: Vec<&str> = limit.into_iter().filter(|part| !part.is_empty()).collect();
        format!("- {{key: {name}, rate_limit: {{{}}}}}\n", stated.join(", "))
    };
    let spaced = "- {key: spaced, rate_limit: {algorithm: sliding_window_log, unit: year, requests_per_unit: 2, min_interval: 60s}}\n";
    let all = limits.iter().map(rule).collect::<String>();
    let tollgate = Tollgate::serving(&format!("domain: web\ndescriptors:\n{all}{spaced}"), &[]);
    let admin = Admin::of(&tollgate);
    let descriptor = |key: &str| json!([{"key": key, "value": "v"}]);
    let said = |key: &str| {
        let tried = json!({"domain": "web", "descriptors": [descriptor(key)]});
        let tried = admin.done("POST", "/try", &tried, 200);
        let would_pass = tried["descriptors"][0]["counter"]["would_pass"].as_bool();
        let is_over = would_pass.map(|passes| !passes);
        assert_eq!(tried["is_over_limit"], json!(is_over), "{key}");
        assert_eq!(tried["problem"].is_null(), is_over.is_some(), "{tried}");
        would_pass
    };
    let send = |key: &str| tollgate.hit("web", &[(key, "v")]).status;
    for (key, _) in limits {
        for expected in [200, 200, 429] {
            assert_eq!(said(key), Some(expected == 200), "{key}");
            assert_eq!(send(key), expected, "{key}");
        }
    }
    // There is room, and yet the next one comes too soon.
    assert_eq!((said("spaced"), send("spaced")), (Some(true), 200));
    assert_eq!((said("spaced"), send("spaced")), (None, 429));

    let long = vec![json!([{"key": "k", "value": "x".repeat(10_000)}]); 7];
    let long = json!({"domain": "web", "descriptors": long});
    assert_eq!(code(&admin.post("/try", &long)), (400, "bad_request"), "it would be matched for long");
}

#[test]
fn descriptors_have_the_entries_that_requests_may_have() {
    let entries = |count: usize| vec![json!({"key": "k", "value": "v"}); count];
    let tollgate = Tollgate::serving(&limit(3), &[]);
    let admin = Admin::of(&tollgate);
    for (count, status) in [(264, 200), (265, 400)] {
        admin.done("POST", "/try", &json!({"domain": "web", "descriptors": [entries(count)]}), status);
    }
}
