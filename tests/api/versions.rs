//! Versions: validated, compared, applied, and taken back.

use std::sync::Barrier;

use super::*;

fn start(config: &TempDir) -> (Tollgate, Admin) {
    let tollgate = Tollgate::start(config.path(), &["--rules", "memory"]);
    let admin = Admin::of(&tollgate);
    (tollgate, admin)
}

#[test]
fn of_two_racing_operators_one_wins_and_the_other_changes_nothing() {
    let (_tollgate, admin) = start(&rules(&limit(5)));
    for round in 1..=20_u64 {
        let barrier = Barrier::new(2);
        let race = |name: &'static str, requests: u64| {
            let (admin, barrier) = (admin.with("tollgate-author", name), &barrier);
            let text = limit(u32::try_from(requests).expect("small"));
            move || {
                barrier.wait();
                (name, requests, admin.apply(round, &text))
            }
        };
        let [first, second] = thread::scope(|scope| {
            let racing = [scope.spawn(race("ann", 2 * round)), scope.spawn(race("bob", 2 * round + 1))];
            racing.map(|racer| racer.join().expect("no panic"))
        });
        let (won, lost) = if first.2.0 == 201 { (first, second) } else { (second, first) };
        assert_eq!(won.2.0, 201, "{}", won.2.1);
        assert_eq!(code(&lost.2), (409, "stale"), "{}", lost.2.1);
        assert_eq!(lost.2.1["error"]["current"], won.2.1["version"]);
        let versions = admin.get("/versions?limit=500");
        assert_eq!(versions["current"], round + 1);
        assert_eq!(versions["versions"].as_array().map(Vec::len), usize::try_from(round + 1).ok());
        let current = admin.get("/versions/current");
        assert_eq!(current["version"]["author"], won.0);
        assert_eq!(current["files"]["rules.yaml"], limit(u32::try_from(won.1).expect("small")));
    }
    let audit = admin.get("/audit?limit=1000");
    let applied =
        audit["entries"].as_array().expect("entries").iter().filter(|entry| entry["action"] == "apply");
    assert_eq!(applied.count(), 21, "one for each version");
}

#[test]
fn invalid_rules_are_refused_with_the_report_of_check() {
    let (_tollgate, admin) = start(&rules(&limit(5)));
    let broken =
        "domain: web\ndescriptors:\n- key: k\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n";
    let validated = admin.done("POST", "/validate", &json!({"files": {"rules.yaml": broken}}), 200);
    assert_eq!((&validated["is_valid"], &validated["problems"][0]["line"]), (&json!(false), &json!(4)));
    let refused = admin.apply(1, broken);
    assert_eq!(code(&refused), (422, "invalid"));
    assert_eq!(refused.1["error"]["report"], validated["report"]);
    assert_eq!(refused.1["error"]["problems"], validated["problems"]);
    let directory = rules(broken);
    let check = ended(command().arg("check").arg(directory.path()));
    assert_eq!(check.stderr.trim_end(), validated["report"]);

    let good = admin.done("POST", "/validate", &json!({"files": {"rules.yaml": limit(6)}}), 200);
    assert_eq!(good["report"], "all rate limit configs ok: domains 1, rules 1");
    for (what, body, expected) in [
        ("no based_on", json!({"files": {}, "comment": ""}), (400, "bad_request")),
        (
            "an unknown field",
            json!({"files": {}, "comment": "", "based_on": 1, "x": 1}),
            (400, "bad_request"),
        ),
        ("a text for a number", json!({"files": {}, "comment": "", "based_on": "1"}), (400, "bad_request")),
        (
            "a name that leads outside the directory",
            json!({"files": {"../a.yaml": ""}, "comment": "", "based_on": 1}),
            (422, "invalid"),
        ),
    ] {
        assert_eq!(code(&admin.post("/versions", &body)), expected, "{what}");
    }
    let large = draft(1, &"#".repeat(10 << 20)).to_string();
    let sent = [("content-type", "application/json")];
    let answer = http::send("POST", &format!("{}/versions", admin.url), &sent, Some(&large));
    assert_eq!(answer.status, 413);
    assert_eq!(admin.current(), 1);

    // What a version can't hold, validating says too; what it can, it may hold however it is escaped.
    let much = |bytes: usize| format!("{}{}", limit(5), "\n".repeat(bytes));
    let validated = admin.done("POST", "/validate", &json!({"files": {"a.yaml": much(2 << 20)}}), 200);
    assert_eq!(
        (&validated["is_valid"], &validated["problems"][0]["file"]),
        (&json!(false), &json!("a.yaml"))
    );
    assert_eq!(admin.apply(1, &much(2 << 20)).0, 413);
    assert_eq!(admin.apply(1, &much(2_000_000)).0, 201);
}

#[test]
fn denying_all_or_dropping_an_active_domain_requires_force() {
    let two = format!("{}\n", limit(5));
    let directory = rules(&two);
    fs::write(directory.path().join("other.yaml"), limit(5).replace("web", "other")).expect("written");
    let (tollgate, admin) = start(&directory);
    let reasons = |answer: &Answered| -> Vec<(String, String)> {
        let reasons = answer.1["error"]["reasons"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        reasons.iter().map(|reason| (text(&reason["code"]), text(&reason["domain"]))).collect()
    };
    let both = |web: u32| json!({"based_on": admin.current(), "comment": "", "files": {"a.yaml": limit(web), "b.yaml": limit(5).replace("web", "other")}});
    let refused = admin.post("/versions", &both(0));
    assert_eq!(code(&refused), (422, "needs_force"));
    assert_eq!(reasons(&refused), [("denies_all".to_owned(), "web".to_owned())]);

    let empty = admin.post("/versions", &json!({"based_on": 1, "comment": "", "files": {}}));
    assert_eq!((code(&empty), reasons(&empty).len()), ((422, "needs_force"), 2), "without any request");

    // No confirmation is required yet.
    assert_eq!(admin.post("/versions", &draft(1, &limit(5))).0, 201);
    admin.done("POST", "/versions/1/rollback", &json!({}), 201);
    let hit = || tollgate.hit("other", &[("k", "v")]);
    wait("its rules are back", || hit().body.contains("currentLimit"));
    wait("its traffic is noticed", || {
        hit();
        let validated = admin.done("POST", "/validate", &json!({"files": {"a.yaml": limit(5)}}), 200);
        validated["reasons"][0]["code"] == "drops_domain"
    });
    let refused = admin.apply(3, &limit(5));
    assert_eq!(reasons(&refused), [("drops_domain".to_owned(), "other".to_owned())]);
    assert_eq!(code(&admin.post("/versions/2/rollback", &json!({}))), (422, "needs_force"));
    assert_eq!(admin.current(), 3);
    admin.done("POST", "/versions/2/rollback", &json!({"force": true}), 201);
    let mut forced = draft(4, &limit(0));
    forced["force"] = json!(true);
    admin.done("POST", "/versions", &forced, 201);
    // It is so already.
    assert_eq!(admin.apply(5, &format!("# the same\n{}", limit(0))).0, 201);
}

#[test]
fn versions_are_compared_with_each_other_and_with_drafts() {
    let (_tollgate, admin) = start(&rules(&limit(5)));
    assert_eq!(admin.apply(1, &limit(6)).0, 201);
    let difference = admin.get("/versions/2/diff");
    assert_eq!(members(&difference, ["from", "to"]), json!([1, 2]));
    let patch = difference["files"][0]["patch"].as_str().expect("a patch");
    assert!(patch.contains("-  rate_limit: {unit: year, requests_per_unit: 5}\n+"), "{patch}");
    let text = |limit: u32| format!("{limit} per year, fixed_window");
    let changed =
        json!([{"domain": "web", "rule": "k", "change": "changed", "before": text(5), "after": text(6)}]);
    assert_eq!(difference["rules"], changed);
    assert_eq!(admin.get("/versions/1/diff?against=current")["rules"][0]["before"], text(6));
    let files = json!({"files": {"rules.yaml": limit(9)}, "against": 1});
    assert_eq!(admin.done("POST", "/diff", &files, 200)["rules"][0]["after"], text(9));
    let broken = admin.done("POST", "/diff", &json!({"files": {"rules.yaml": "domain: ["}}), 200);
    assert!(broken["problem"].is_string() && broken["rules"] == json!([]), "{broken}");
    assert_eq!(code(&admin.request("GET", "/versions/7/diff", None)), (404, "not_found"));
    assert_eq!(code(&admin.request("GET", "/versions/1/diff?against=x", None)), (400, "bad_request"));

    let rolled = admin.done("POST", "/versions/1/rollback", &json!({"based_on": 2}), 201);
    assert_eq!(members(&rolled["version"], ["number", "rollback_to"]), json!([3, 1]));
    assert_eq!(admin.get("/versions/3")["files"], json!({"rules.yaml": limit(5)}), "byte for byte");
    assert_eq!(code(&admin.post("/versions/1/rollback", &json!({"based_on": 2}))), (409, "stale"));
    assert_eq!(code(&admin.post("/versions/9/rollback", &json!({}))), (404, "not_found"));
}

#[test]
fn rules_from_a_directory_are_shown_and_read_only() {
    let tollgate = Tollgate::serving(&limit(5), &[]);
    let admin = Admin::of(&tollgate);
    assert_eq!(admin.get("/status")["is_editable"], false);
    assert_eq!(admin.get("/versions"), json!({"current": null, "versions": []}));
    assert_eq!(admin.get("/versions/current"), json!({"version": null, "files": {"rules.yaml": limit(5)}}));
    assert_eq!(code(&admin.apply(Value::Null, &limit(6))), (409, "read_only"));
    assert_eq!(code(&admin.post("/versions/1/rollback", &json!({}))), (409, "read_only"));
    assert_eq!(code(&admin.request("GET", "/versions/1", None)), (404, "not_found"));
    let difference = admin.done("POST", "/diff", &json!({"files": {"rules.yaml": limit(6)}}), 200);
    assert_eq!(difference["rules"][0]["change"], "changed");
    assert_eq!(admin.get("/rules")["rules"][0]["limit"], "5 per year, fixed_window");
    let switch =
        json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "shadow", "reason": "to see"});
    admin.put(&switch);
    wait("the switch is in force", || admin.get("/rules")["rules"][0]["switch"] == "shadow");
    admin.done("POST", "/counters/reset", &json!({"domain": "web", "descriptor": k("v")}), 200);
    assert_eq!(admin.get("/audit")["entries"].as_array().map(Vec::len), Some(2));
}
