//! Bans of counters: listed, lifted and forgiven.

use super::*;

/// A client that does not wait is banned within seconds.
const RULES: &str = "
domain: web
descriptors:
- key: k
  rate_limit:
    unit: second
    requests_per_unit: 1
    ban: {threshold: 1, interval: 10s, duration: 1h, max_duration: 8h, mode: enforce}
- key: watched
  rate_limit:
    unit: second
    requests_per_unit: 1
    ban: {threshold: 1, interval: 10s}
";

fn status(tollgate: &Tollgate, entries: &Value) -> u16 {
    let request = json!({ "domain": "web", "descriptors": [{ "entries": entries }] });
    tollgate.post(&request.to_string()).status
}

/// Sends requests without waiting until the only listed ban is that of the descriptor.
fn banned(tollgate: &Tollgate, admin: &Admin, entries: &Value) -> Value {
    let mut listed = Value::Null;
    wait("a ban is listed", || {
        for _ in 0..5 {
            status(tollgate, entries);
        }
        listed = admin.get("/bans?domain=web")["bans"].clone();
        !listed[0].is_null()
    });
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["descriptor"]), (Some(1), entries));
    listed[0].take()
}

fn lift(admin: &Admin, ban: &Value, query: &str) -> u16 {
    let id = ban["id"].as_str().expect("an id");
    admin.request("DELETE", &format!("/bans/{id}{query}"), None).0
}

fn bans_are_lifted_and_forgiven(store: &str) {
    let tollgate = Tollgate::serving(RULES, &["--store", store, "--store-timeout", "5s"]);
    let admin = Admin::of(&tollgate).with("tollgate-author", "ada");
    assert_eq!(admin.get("/bans"), json!({ "bans": [], "next": null }));
    let first = banned(&tollgate, &admin, &k("x"));
    assert_eq!(members(&first, ["rule", "mode", "level"]), json!(["k", "enforce", 1]));
    let length =
        first["ends_at_ms"].as_u64().expect("a time") - first["began_at_ms"].as_u64().expect("a time");
    assert!((3_590_000..=3_601_000).contains(&length), "{first}");
    assert_eq!(status(&tollgate, &k("x")), 429);
    assert_eq!(status(&tollgate, &k("honest")), 200);
    assert_eq!(admin.get("/bans?domain=other")["bans"], json!([]));
    assert_eq!(admin.get("/bans?mode=watch")["bans"], json!([]));

    assert_eq!(lift(&admin, &first, ""), 204);
    assert_eq!(admin.get("/bans")["bans"], json!([]));
    wait("requests pass", || status(&tollgate, &k("x")) == 200);
    assert_eq!(lift(&admin, &first, ""), 404);

    let second = banned(&tollgate, &admin, &k("x"));
    assert_eq!((&second["level"], &second["id"]), (&json!(2), &first["id"]));
    assert_eq!(lift(&admin, &second, "?forgive=true"), 204);
    wait("requests pass", || status(&tollgate, &k("x")) == 200);
    let third = banned(&tollgate, &admin, &k("x"));
    assert_eq!(third["level"], 1, "it was forgiven");

    // A counter that is reset has no ban.
    let reset = json!({ "domain": "web", "descriptor": k("x"), "reason": "by mistake" });
    admin.done("POST", "/counters/reset", &reset, 200);
    assert_eq!(admin.get("/bans")["bans"], json!([]));
    wait("requests pass", || status(&tollgate, &k("x")) == 200);
    let audit = admin.get("/audit");
    let removed = |at: usize| (audit["entries"][at]["ban"].clone(), audit["entries"][at]["subject"].clone());
    let subject = json!("ban web k k=x");
    assert_eq!(removed(0), (Value::Null, json!("web k=x")));
    assert_eq!([removed(1), removed(2)], [(json!("forgive"), subject.clone()), (json!("lift"), subject)]);
    assert_eq!(audit["entries"][1]["author"], "ada");
}

#[test]
fn bans_are_lifted_and_forgiven_with_each_store() {
    let redis = Redis::start();
    ["memory", &redis.url()].into_iter().for_each(bans_are_lifted_and_forgiven);
}

/// Lists and lifts by the command line, and the metric follows.
#[test]
fn a_watched_ban_is_listed_and_lifted_by_command_at_another_instance() {
    let (redis, config) = (Redis::start(), rules(RULES));
    let [tollgate, other] =
        [(); 2].map(|()| Tollgate::start(config.path(), &["--store", &redis.url(), "--store-timeout", "5s"]));
    let (admin, watched) = (Admin::of(&tollgate), json!([{ "key": "watched", "value": "a\u{1b}b" }]));
    let ban = banned(&tollgate, &admin, &watched);
    assert_eq!(members(&ban, ["mode", "rule"]), json!(["watch", "watched"]));
    wait("a request passes: nothing is denied by the ban", || status(&tollgate, &watched) == 200);
    let run = |words: &[&str]| {
        let mut program: Command = command();
        program.args(words).args(["--admin-url", &other.admin_url("")]);
        let ended = ended(&mut program);
        (ended.code, ended.stdout)
    };
    let (code_of_list, list) = run(&["counters", "bans", "--domain", "web", "--mode", "watch"]);
    let id = ban["id"].as_str().expect("an id");
    assert_eq!(code_of_list, Some(0));
    let row = list.lines().nth(1).expect("a row");
    assert!(
        row.starts_with(id) && row.contains("watched=\"a\\u001bb\"") && row.contains("watch  1"),
        "{list}"
    );
    assert_eq!(
        run(&["counters", "bans", "--mode", "enforce"]),
        (Some(0), "there are no active bans\n".into())
    );
    let is_shown = |server: &Tollgate, count: &str| {
        let page = server.metrics();
        page.lines().any(|line| line == format!("tollgate_bans_active{{mode=\"watch\"}} {count}"))
    };
    wait("both instances count it", || is_shown(&tollgate, "1") && is_shown(&other, "1"));
    let lifted = run(&["counters", "lift", id, "--forgive"]);
    assert_eq!(lifted, (Some(0), format!("ban {id} is lifted and forgiven\n")));
    assert_eq!(run(&["counters", "lift", id]).0, Some(1));
    let unknown = admin.request("DELETE", "/bans/unknown", None);
    assert_eq!(code(&unknown), (404, "not_found"));
    wait("no instance counts it", || is_shown(&tollgate, "0") && is_shown(&other, "0"));
}
