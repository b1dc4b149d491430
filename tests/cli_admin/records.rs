//! Records: ramps, overrides, exemptions, imports, and lists of several pages.

use super::*;

const RULE: [&str; 6] = ["--domain", "shop", "--rule", "user", "--reason", "why"];

/// Writes a line for each record.
fn lines(served: &Served, records: &[Value]) -> String {
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    write(served.directory.path(), "records", &lines)
}

fn listed(served: &Served) -> Vec<Value> {
    served.json(&["record", "list"])["records"].as_array().expect("a list").clone()
}

/// Members of a listed record that an import restores.
fn restored(record: &Value) -> Value {
    let names = ["key", "kind", "list", "rule", "descriptor", "rate_limit", "mode", "enforce_percent"];
    names.iter().map(|name| record[*name].clone()).collect()
}

#[test]
fn overrides_of_a_rule_and_of_a_key_decide_and_are_found() {
    let served = Served::new();
    let put = |words: &[&str]| served.done(&[&["record", "override"], &RULE[..], words].concat());
    let text = put(&["requests_per_unit=5", "unit=year"]);
    assert!(text.starts_with("shop user: 5 per year until it is removed ("), "{text}");
    served.becomes("a", 5, 200);
    served.becomes("b", 6, 429);
    put(&["--counter", "user=vip", "requests_per_unit=9"]);
    wait("the override of the key does not decide", || served.request("vip", 9) == 200);
    let found = served.done(&["record", "list", "--search", "VIP"]);
    assert!(found.contains("user user=vip  9 per unit  never") && !found.contains("per year"), "{found}");
}

#[test]
fn a_ramp_begins_with_its_first_step() {
    let served = Served::new();
    let ramp =
        |words: &[&str]| served.done(&[&["record", "ramp", "--max-denied", "50"], &RULE[..], words].concat());
    let text = ramp(&["--steps", "0,100", "--over", "2h"]);
    assert!(text.contains("shadow, 0% of keys enforced, "), "{text}");
    served.becomes("a", 3, 200);
    ramp(&["--steps", "100", "--over", "1h"]);
    served.becomes("b", 3, 429);
}

#[test]
fn a_client_of_an_automatic_entry_is_exempted() {
    let served = Served::new();
    let ban =
        "requests_per_unit: 2, ban: {threshold: 3, interval: 1m, duration: 1h, list_after: 1, mode: enforce}";
    let draft = served.draft("draft", &RULES.replace("requests_per_unit: 2", ban));
    served.done(&["rules", "apply", &draft, "--comment", "bans"]);
    wait("the client is not listed", || {
        served.request("bad", 3);
        !listed(&served).is_empty()
    });
    served.status_becomes("bad", 429);
    let entry = listed(&served).remove(0);
    let key = entry["key"].as_str().expect("a key");
    let text = served.done(&["record", "exempt", key, "--reason", "our own", "--for", "1h"]);
    assert!(text.starts_with("shop user=\"bad\": exempt, by user until 20"), "{text}");
    wait("no limit decides", || {
        let answer = served.tollgate.hit("shop", &[("user", "bad")]).body;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        answer["statuses"][0]["currentLimit"].is_object()
    });
    let file = lines(&served, &listed(&served));
    let text = served.done(&["record", "import", &file, "--reason", "again"]);
    assert_eq!(text, "0 records are set\n1 left out: automatic or ended\n");
}

#[test]
fn records_of_a_file_are_put_removed_and_put_back() {
    let served = Served::new();
    let records = [
        json!({"kind": "list_entry", "list": "deny", "domain": "shop", "descriptor": [{"key": "user", "value": "evil-*"}]}),
        json!({"kind": "override", "domain": "shop", "rule": "user", "rate_limit": {"requests_per_unit": 5}, "expires_in_s": 600}),
        json!({"kind": "switch", "domain": "shop", "rule": "user", "mode": "shadow", "enforce_percent": 100}),
    ];
    let import = |records: &[Value], more: &[&str]| {
        let file = lines(&served, records);
        served.run(&[&["record", "import", &file, "--reason", "moved"], more].concat())
    };
    assert_eq!(import(&records, &["--dry-run"]).stdout, "3 records are valid; nothing was changed\n");
    let wrong = json!({"kind": "switch", "domain": "shop", "rule": "other", "mode": "off"});
    let error = import(&[&records[..], &[wrong]].concat(), &[]).stderr;
    assert!(error.starts_with("refused (not_found)"), "{error}");
    let cut = write(served.directory.path(), "cut", "{\"kind\": \"switch\"}\n\n{\"kind\"");
    let error = served.refused(&["record", "import", &cut, "--reason", "cut"]);
    assert!(error.contains("line 3 is no JSON"), "{error}");
    assert_eq!(listed(&served), Vec::<Value>::new());
    assert_eq!(import(&records, &[]).stdout, "3 records are set\n");
    served.becomes("evil-", 1, 429);
    served.becomes("a", 5, 200);
    let before = listed(&served);
    for record in &before {
        served.done(&["record", "remove", record["key"].as_str().expect("a key")]);
    }
    served.becomes("b", 5, 429);
    // The entry would deny much of the traffic by now.
    assert_eq!(import(&before, &["--force"]).stdout, "3 records are set\n");
    served.becomes("evil-", 1, 429);
    served.becomes("c", 5, 200);
    let after = listed(&served);
    let forms = [&before, &after].map(|records| records.iter().map(restored).collect::<Vec<_>>());
    assert_eq!(forms[0], forms[1]);
    let ends = |records: &[Value]| records.iter().filter(|record| record["expires_at_ms"].is_u64()).count();
    assert_eq!((ends(&before), ends(&after)), (1, 1));
}

#[test]
fn a_list_has_as_many_pages_as_its_limit_needs() {
    let served = Served::new();
    let record = |number| {
        json!({"kind": "override", "domain": "shop", "rule": "user", "rate_limit": {"requests_per_unit": 5},
            "descriptor": [{"key": "user", "value": format!("u{number}")}]})
    };
    let records: Vec<_> = (0..1_200).map(record).collect();
    served.done(&["record", "import", &lines(&served, &records), "--reason", "many"]);
    let list = |limit: &[&str]| {
        let json = served.json(&[&["record", "list"], limit].concat());
        let records = json["records"].as_array().expect("a list");
        let keys: BTreeSet<_> = records.iter().map(|record| record["key"].to_string()).collect();
        assert_eq!(keys.len(), records.len(), "each once");
        (records.len(), json["is_truncated"] == true)
    };
    assert_eq!(list(&[]), (1_000, true));
    assert_eq!(list(&["--limit", "1100"]), (1_100, true));
    assert_eq!(list(&["--limit", "20000"]), (1_200, false));
    assert!(served.done(&["record", "list", "--limit", "2"]).ends_with("\nthere are more; see --limit\n"));
}
