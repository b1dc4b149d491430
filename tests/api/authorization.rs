//! Roles, and protection of secrets.

use super::*;

const OPERATOR: &str = "operators-secret-0123456789";
const VIEWER: &str = "viewers-secret-0123456789";

fn tokens() -> String {
    format!("# who may\nann operator {OPERATOR}\n\nbob viewer {VIEWER}\n")
}

#[test]
fn tokens_have_names_and_roles() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), tokens()).expect("written");
    let path = file.path().display().to_string();
    let tollgate = Tollgate::serving(&limit(5), &["--rules", "memory", "--admin-token-file", &path]);
    let anonymous = Admin::of(&tollgate);
    let (ann, bob) = (anonymous.with_token(OPERATOR), anonymous.with_token(VIEWER));

    assert_a_token_is_required(&tollgate, &anonymous);
    assert_eq!(ann.get("/me"), json!({"name": "ann", "role": "operator", "is_token_required": true}));
    assert_a_viewer_changes_nothing(&bob);
    assert_eq!(ann.apply(1, &limit(6)).0, 201);
    assert_eq!(ann.get("/versions/2")["version"]["author"], "ann");
    // Who shows a token is not called otherwise.
    assert_eq!(ann.with("tollgate-author", "eve").apply(2, &limit(7)).0, 201);
    assert_eq!(ann.get("/versions/3")["version"]["author"], "ann");
    for header in ["origin", "host"] {
        let value = if header == "host" { "rate.example" } else { "https://evil.example" };
        let expected = if header == "host" { 200 } else { 403 };
        assert_eq!(ann.with(header, value).request("GET", "/me", None).0, expected, "{header}");
    }
}

fn assert_a_token_is_required(tollgate: &Tollgate, anonymous: &Admin) {
    for other in [
        anonymous.clone(),
        anonymous.with_token("someone-elses-0123456789"),
        anonymous.with("tollgate-author", "ann"),
    ] {
        for (method, path) in [("GET", "/me"), ("GET", "/status"), ("POST", "/versions"), ("GET", "/nothing")]
        {
            assert_eq!(code(&other.request(method, path, Some(&json!({})))), (401, "unauthorized"), "{path}");
        }
    }
    let refused = http::get(&tollgate.admin_url("/api/v1/me"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(http::get(&tollgate.admin_url("/api/v1/openapi.json")).status, 200);
    for path in ["/metrics", "/rlconfig", "/stats", "/healthcheck"] {
        assert_eq!(http::get(&tollgate.admin_url(path)).status, 401, "{path}");
        let shown = format!("Bearer {VIEWER}");
        assert_eq!(http::get_with(&tollgate.admin_url(path), &shown).status, 200, "{path}");
    }
    let page = tollgate.metrics();
    for (token, refused) in [("missing", 13), ("wrong", 4)] {
        let line = format!("tollgate_admin_unauthorized_total{{token=\"{token}\"}} {refused}\n");
        assert!(page.contains(&line), "{line}");
    }
}

fn assert_a_viewer_changes_nothing(bob: &Admin) {
    assert_eq!(bob.get("/me")["role"], "viewer");
    for (method, path) in [
        ("POST", "/versions"),
        ("POST", "/versions/1/rollback"),
        ("POST", "/counters/reset"),
        ("POST", "/counters/refund"),
        ("PUT", "/records"),
        ("DELETE", "/records/1"),
        ("POST", "/records/1/exempt"),
    ] {
        assert_eq!(code(&bob.request(method, path, Some(&json!({})))), (403, "forbidden"), "{path}");
    }
    assert_eq!(bob.apply(1, &limit(6)).0, 403);
    bob.done("POST", "/validate", &json!({"files": {}}), 200);
    bob.done("POST", "/try", &json!({"domain": "web", "descriptors": [k("v")]}), 200);
    assert_eq!(bob.current(), 1);
}

#[test]
fn without_tokens_operators_name_themselves_and_foreign_pages_are_refused() {
    let tollgate = Tollgate::serving(&limit(5), &["--rules", "memory"]);
    let admin = Admin::of(&tollgate);
    assert_eq!(
        admin.get("/me"),
        json!({"name": "anonymous", "role": "operator", "is_token_required": false})
    );
    assert_eq!(admin.with("tollgate-author", "ann").get("/me")["name"], "ann");
    for name in ["tollgate", "Toll Gate", "t\u{43e}llgate"] {
        assert_eq!(admin.with("tollgate-author", name).get("/me")["name"], "anonymous", "{name}");
    }
    assert_eq!(code(&admin.with("host", "evil.example").request("GET", "/me", None)), (403, "forbidden"));
    for (path, expected) in [("/rlconfig", 403), ("/stats", 403), ("/metrics", 200)] {
        let answer = http::send("GET", &tollgate.admin_url(path), &[("host", "evil.example")], None);
        assert_eq!(answer.status, expected, "{path}");
    }
    let elsewhere = admin.with("origin", "http://evil.example");
    assert_eq!(code(&elsewhere.apply(1, &limit(6))), (403, "forbidden"));
    let here = admin.with("origin", &tollgate.admin_url(""));
    assert_eq!(here.request("GET", "/me", None).0, 200);
    for path in ["/versions", "/versions/1/rollback", "/counters/reset", "/counters/refund"] {
        let body = draft(1, &limit(6)).to_string();
        let sent = [("content-type", "text/plain")];
        let answer = http::send("POST", &tollgate.admin_url(&format!("/api/v1{path}")), &sent, Some(&body));
        assert_eq!(answer.status, 415, "{path}");
    }
    assert_eq!(admin.current(), 1);
}

#[test]
fn an_invalid_token_file_stops_the_start_and_is_not_shown() {
    let config = rules(&limit(5));
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), format!("{}eve operator {VIEWER}\n", tokens())).expect("written");
    let mut serve = command();
    serve.args(["serve", "--config"]).arg(config.path()).arg("--admin-token-file").arg(file.path());
    for port in ["grpc", "http", "admin"] {
        serve.args([&format!("--{port}-address"), "127.0.0.1:0"]);
    }
    let Ended { code, stdout, stderr } = ended(&mut serve);
    assert_eq!(code, Some(1));
    let text = stdout + &stderr;
    assert!(text.contains("line 5: duplicate of the token in line 4") && !text.contains("secret"), "{text}");
}

#[test]
fn every_change_is_audited_without_secrets() {
    let redis = Redis::start_with(&["--requirepass", "redis-secret"]);
    let url = format!("redis://:redis-secret@127.0.0.1:{}", redis.port());
    let config = rules(&limit(5));
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), tokens()).expect("written");
    let path = file.path().display().to_string();
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut program = command();
    program.stdout(log.reopen().expect("a file")).stderr(log.reopen().expect("a file"));
    let arguments =
        ["--rules", "redis", "--store", &url, "--admin-token-file", &path, "--log-level", "debug"];
    let tollgate = Tollgate::spawn_by(program, config.path(), &arguments);
    tollgate.wait_until_ready();
    let ann = Admin::of(&tollgate).with_token(OPERATOR);

    make_every_change(&ann);
    assert_eq!(
        audited(&ann),
        [
            ["ann", "apply", "version 2", "why"],
            ["ann", "rollback", "version 3, as 1 was", "back"],
            ["ann", "add_entry", "deny web k=x", "abuse"],
            ["ann", "remove_entry", "deny web k=x", ""],
            ["ann", "set_switch", "off web k", "down"],
            ["ann", "remove_switch", "off web k", ""],
            ["ann", "reset_counter", "web k=v", "requested"],
            ["ann", "refund_counter", "web k=v by 2", ""],
        ]
    );
    let pages = ["/status", "/audit", "/versions", "/rules", "/me"].map(|path| ann.get(path).to_string());
    let log = fs::read_to_string(log.path()).expect("a text");
    assert!(log.contains("tollgate started"), "{log}");
    for text in pages.iter().chain([&log]) {
        assert!(!text.contains("secret"), "{text}");
    }
}

/// Makes a change of each kind.
fn make_every_change(ann: &Admin) {
    let counter = json!({"domain": "web", "descriptor": k("v"), "reason": "requested"});
    ann.done("POST", "/versions", &draft(1, &limit(6)), 201);
    ann.done("POST", "/versions/1/rollback", &json!({"comment": "back"}), 201);
    let entry = json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": k("x"), "reason": "abuse"});
    let entry = ann.put(&entry);
    assert_eq!(ann.remove(&entry).0, 204);
    assert_eq!(code(&ann.remove(&entry)), (404, "not_found"));
    let switch =
        ann.put(&json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "off", "reason": "down"}));
    assert_eq!(ann.remove(&switch).0, 204);
    ann.done("POST", "/counters/reset", &counter, 200);
    ann.done("POST", "/counters/refund", &json!({"domain": "web", "descriptor": k("v"), "hits": 2}), 200);
}

/// Author, action, subject and comment of the changes in the audit log, the oldest first.
fn audited(ann: &Admin) -> Vec<[String; 4]> {
    let audit = ann.get("/audit");
    let entries = audit["entries"].as_array().expect("entries");
    entries
        .iter()
        .rev()
        .map(|entry| {
            let text = |field| entry[field].as_str().expect("a text").to_owned();
            ["author", "action", "subject", "comment"].map(text)
        })
        .filter(|[author, ..]| author != "tollgate")
        .collect()
}
