//! Entries of lists: hostile values of top talkers, and guardrails.

use super::*;

/// Values that clients may choose, each a key of its own.
const HOSTILE: [&str; 9] = ["*", "a,b=c", "a", "", "ü…", r"a\,b", r"\*", "10.0.0.0/8", "line\nbreak"];

fn hits(tollgate: &Tollgate, entries: &Value, hits: u32) -> u16 {
    let request = json!({ "domain": "web", "descriptors": [{ "entries": entries, "hitsAddend": hits }] });
    let mut status = 503;
    // A busy machine may keep the store from deciding in time; such a request is not counted.
    wait("the request is decided", || {
        status = tollgate.post(&request.to_string()).status;
        status != 503
    });
    status
}

fn k(value: &str) -> Value {
    json!([{ "key": "k", "value": value }])
}

/// The heaviest keys, once their hits are counted.
fn talkers(admin: &Admin, total: u64) -> Vec<Value> {
    let heaviest = || -> Vec<Value> {
        let top = admin.get("/top?domain=web&limit=100");
        top["domains"][0]["heaviest"].as_array().cloned().unwrap_or_default()
    };
    let hits = |all: &[Value]| all.iter().filter_map(|talker| talker["hits"].as_u64()).sum::<u64>();
    wait("all hits are counted", || hits(&heaviest()) >= total);
    heaviest()
}

fn deny(descriptor: &Value) -> Value {
    json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": descriptor, "reason": "abuse"})
}

/// The descriptor of a talker as an entry that matches only it.
fn exactly(descriptor: &Value) -> Value {
    let pairs = descriptor.as_array().expect("whole").iter();
    pairs.map(|pair| json!({"key": pair["key"], "value": pair["value"], "match": "exact"})).collect()
}

/// Denies each hostile value as it is reported, and expects that it alone is denied.
fn bans_deny_only_their_value(arguments: &[&str]) {
    let tollgate = Tollgate::serving(&limit(1_000_000), arguments);
    let admin = Admin::of(&tollgate);
    assert_eq!(hits(&tollgate, &k("honest"), 1_000), 200);
    for value in HOSTILE {
        assert_eq!(hits(&tollgate, &k(value), 1), 200);
    }
    let talkers = talkers(&admin, 1_000 + HOSTILE.len() as u64);
    for value in HOSTILE {
        let talker = talkers.iter().find(|talker| talker["descriptor"] == k(value));
        let entry = deny(&exactly(&talker.unwrap_or_else(|| panic!("{value:?}"))["descriptor"]));
        let added = admin.put(&entry);
        assert_eq!(added["descriptor"], entry["descriptor"]);
        wait("the value is denied", || hits(&tollgate, &k(value), 0) == 429);
        let passing =
            HOSTILE.iter().copied().filter(|other| *other != value).chain(["honest", "10.1.2.3", "b"]);
        for other in passing {
            assert_eq!(hits(&tollgate, &k(other), 0), 200, "{other:?} by the entry of {value:?}");
        }
        assert_eq!(admin.remove(&added).0, 204);
        wait("the value passes", || hits(&tollgate, &k(value), 0) == 200);
    }
}

#[test]
fn bans_of_hostile_values_deny_only_them() {
    let redis = Redis::start();
    for store in ["memory", &redis.url()] {
        bans_deny_only_their_value(&["--store", store]);
    }
}

#[test]
fn values_that_are_not_known_as_a_whole_are_refused() {
    let tollgate = Tollgate::serving(&limit(1_000_000), &["--store", "memory"]);
    let admin = Admin::of(&tollgate);
    let long = "x".repeat(300);
    assert_eq!(hits(&tollgate, &k(&long), 1), 200);
    let talker = talkers(&admin, 1).remove(0);
    assert!(talker["descriptor"].is_null() && talker["key"].as_str().is_some_and(|key| key.ends_with('…')));
    let whole = deny(&json!([{"key": "k", "value": long, "match": "exact"}]));
    assert_eq!(code(&admin.try_put(&whole)), (400, "bad_request"));
    let unknown = deny(&json!([{"key": "k", "value": "x", "match": "regex"}]));
    assert_eq!(code(&admin.try_put(&unknown)), (400, "bad_request"));
    let prefix = deny(&json!([{"key": "k", "value": format!("{}*", "x".repeat(200)), "match": "pattern"}]));
    assert_eq!(code(&admin.try_put(&prefix)), (422, "needs_force"), "it is all the traffic");
    admin.put(&forced(&prefix));
    wait("the long value is denied", || hits(&tollgate, &k(&long), 0) == 429);
}

fn forced(entry: &Value) -> Value {
    let mut forced = entry.clone();
    forced["force"] = true.into();
    forced
}

#[test]
fn entries_that_deny_much_want_force() {
    let tollgate = Tollgate::serving(&limit(1_000_000), &["--store", "memory"]);
    let admin = Admin::of(&tollgate);
    let reasons = |entry: &Value| {
        let answer = admin.try_put(entry);
        assert_eq!(code(&answer), (422, "needs_force"), "{entry}: {}", answer.1);
        let reason = answer.1["error"]["reasons"][0].clone();
        [&reason["code"], &reason["domain"]].map(|text| text.as_str().expect("text").to_owned())
    };
    // Without any traffic.
    let of_all = |domain: &str| json!({"kind": "list_entry", "list": "deny", "domain": domain, "descriptor": k("*"), "reason": "oops"});
    assert_eq!(reasons(&of_all("web")), ["denies_all", "web"]);
    assert_eq!(reasons(&of_all("*")), ["denies_all", "*"]);
    assert_eq!(reasons(&deny(&k("0.0.0.0/0"))), ["denies_all", "web"]);
    for (value, count) in [("big", 60), ("some", 36), ("few", 4)] {
        assert_eq!(hits(&tollgate, &k(value), count), 200);
    }
    talkers(&admin, 100);
    assert_eq!(reasons(&deny(&k("big"))), ["denies_traffic", "web"]);
    assert_eq!(reasons(&deny(&k("*e*"))), ["denies_traffic", "web"]);
    let everywhere =
        json!({"kind": "list_entry", "list": "deny", "domain": "*", "descriptor": k("s*"), "reason": "oops"});
    assert_eq!(reasons(&everywhere), ["denies_traffic", "web"]);
    let message = admin.try_put(&deny(&k("some"))).1["error"]["reasons"][0]["message"].clone();
    assert_eq!(message, "36 % of the requests of the last minute would be denied; expected at most 5 %");
    assert_eq!(admin.get("/records")["records"], json!([]), "nothing was added");
    let dry_run = |entry: &Value| {
        let mut body = http::stated(entry);
        body["dry_run"] = true.into();
        admin.done("PUT", "/records", &body, 200)
    };
    assert_eq!(dry_run(&deny(&k("big")))["violations"][0]["code"], "denies_traffic");
    assert_eq!(dry_run(&deny(&k("few")))["violations"], json!([]));
    assert_eq!(admin.get("/records")["records"], json!([]), "nothing was added");
    // Little traffic, literal stars and exceptions need no force.
    admin.put(&deny(&k("few")));
    admin.put(&deny(&exactly(&k("*"))));
    admin.put(
        &json!({"kind": "list_entry", "list": "allow", "domain": "*", "descriptor": k("*"), "reason": "all"}),
    );
    let of_most = admin.put(&forced(&deny(&k("b*"))));
    assert!(of_most.get("force").is_none(), "it is no part of the entry");
}

#[test]
fn entries_of_a_batch_are_judged_together() {
    let tollgate = Tollgate::serving(&limit(1_000_000), &["--store", "memory"]);
    let admin = Admin::of(&tollgate);
    for (value, count) in [("most", 92), ("a", 4), ("b", 4)] {
        assert_eq!(hits(&tollgate, &k(value), count), 200);
    }
    talkers(&admin, 100);
    let put = |descriptors: Vec<Value>| {
        let entry = |descriptor| json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": descriptor});
        let records: Vec<Value> = descriptors.into_iter().map(entry).collect();
        admin.request("PUT", "/records", Some(&json!({"records": records, "reason": "abuse"})))
    };
    let refused = put(vec![k("a"), k("b"), k("absent")]);
    assert_eq!(code(&refused), (422, "needs_force"));
    let message = "8 % of the requests of the last minute would be denied; expected at most 5 %";
    let reasons = json!([{"code": "denies_traffic", "domain": "web", "message": message}]);
    assert_eq!(refused.1["error"]["reasons"], reasons);
    assert_eq!(put(vec![k("a"), k("absent")]).0, 200);
    let refused = put((0..101).map(|at| json!([{"key": format!("k{at}"), "value": "*"}])).collect());
    assert_eq!(refused.1["error"]["reasons"].as_array().map(Vec::len), Some(100), "no more are reported");
}
