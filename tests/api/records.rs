//! Records by their one API: batches, pages, keys and dry runs.

use super::*;

fn served() -> Tollgate {
    Tollgate::serving(&limit(5), &["--store", "memory"])
}

/// An override for the counter of a value.
fn of_key(value: &str) -> Value {
    json!({"kind": "override", "domain": "web", "rule": "k", "descriptor": k(value), "rate_limit": {"requests_per_unit": 9}})
}

fn batch(records: &[Value]) -> Value {
    json!({"records": records, "reason": "many"})
}

/// The keys of listed records.
fn keys(page: &Value) -> Vec<String> {
    let records = page["records"].as_array().expect("a list").iter();
    records.map(|record| record["key"].as_str().expect("a key").to_owned()).collect()
}

#[test]
fn a_batch_with_an_invalid_record_changes_nothing() {
    let tollgate = served();
    let admin = Admin::of(&tollgate);
    let mut records: Vec<Value> = (0..120).map(|number| of_key(&number.to_string())).collect();
    for (invalid, status) in [
        (json!({"kind": "switch", "domain": "web", "rule": "other", "mode": "off"}), 404),
        (json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": []}), 400),
        (json!({"kind": "automatic", "domain": "web", "rule": "k"}), 400),
        (of_key("7"), 422),
    ] {
        // The last of several steps.
        records.push(invalid);
        let (answered, body) = admin.request("PUT", "/records", Some(&batch(&records)));
        assert_eq!(answered, status, "{body}");
        records.pop();
    }
    assert_eq!(admin.get("/records")["records"], json!([]));
    admin.done("PUT", "/records", &batch(&records), 200);
    assert_eq!(admin.get("/records")["counts"]["override"], 120);
}

#[test]
fn pages_have_all_records_once_in_the_order_of_their_keys() {
    let tollgate = served();
    let admin = Admin::of(&tollgate);
    let mut records: Vec<Value> = ["a", "b", "c", "d", "e"].map(of_key).into();
    records.push(json!({"kind": "list_entry", "list": "allow", "domain": "web", "descriptor": k("a")}));
    admin.done("PUT", "/records", &batch(&records), 200);
    let all = keys(&admin.get("/records"));
    assert!(all.len() == 6 && all.is_sorted(), "{all:?}");
    let of_rule = keys(&admin.get("/records?rule=k"));
    assert_eq!(of_rule.len(), 5, "an entry has no rule");
    for (query, expected) in [("", all), ("&rule=k", of_rule)] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = admin.get(&format!("/records?limit=2{query}{after}"));
            found.extend(keys(&page));
            assert_eq!(page["counts"]["override"], 5, "of all records");
            if page["is_truncated"] == false {
                break;
            }
            after = format!("&after={}", found.last().expect("a full page"));
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn an_emergency_has_one_key_however_often_it_is_put() {
    let tollgate = served();
    let admin = Admin::of(&tollgate);
    let emergency =
        json!({"kind": "switch", "domain": "web", "rule": "*", "mode": "emergency", "reason": "Redis"});
    let first = admin.put(&emergency);
    let key = first["key"].as_str().expect("a key");
    assert_eq!(admin.get(&format!("/records/{key}")), first);
    let mut based = emergency;
    based["base"] = first["revision"].clone();
    let second = admin.put(&based);
    assert_eq!(second["key"], key);
    assert_eq!(code(&admin.try_put(&based)), (409, "stale"));
    assert_eq!(admin.get("/records")["records"], json!([second]));
}

#[test]
fn a_dry_run_of_a_removal_checks_it_and_removes_nothing() {
    let tollgate = served();
    let admin = Admin::of(&tollgate);
    let record =
        admin.put(&json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "off", "reason": "x"}));
    let path = format!("/records/{}", record["key"].as_str().expect("a key"));
    let remove = |query: &str| admin.request("DELETE", &format!("{path}{query}"), None);
    assert_eq!(remove("?dry_run=true").0, 204);
    assert_eq!(code(&remove("?dry_run=true&base=1")), (409, "stale"));
    assert_eq!(admin.get(&path), record);
    assert_eq!(remove(&format!("?base={}", record["revision"])).0, 204);
    assert_eq!(code(&remove("?dry_run=true")), (404, "not_found"));
}
