//! Admin API while Redis does not respond: local state is reported promptly.

use super::*;

#[test]
fn local_state_is_reported_promptly_and_the_rest_is_unavailable() {
    let (redis, config) = (Redis::start(), rules(&limit(5)));
    let tollgate = Tollgate::start(config.path(), &["--rules", "redis", "--store", &redis.url()]);
    let admin = Admin::of(&tollgate);
    assert_eq!(admin.get("/status")["problem"], Value::Null);
    let entry = json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": k("bad"), "reason": "abuse"});
    let made = admin.put(&entry);
    redis.signal("STOP");
    let soon = |path: &str, send: &dyn Fn() -> (u16, Value)| {
        let mut answer = None;
        keeps_to(Duration::from_millis(1_500), path, || {
            let begun = Instant::now();
            answer = Some(send());
            begun.elapsed()
        });
        answer.expect("one")
    };
    for path in ["/me", "/rules", "/history", "/top", "/status", "/records"] {
        let (status, _) = soon(path, &|| admin.request("GET", path, None));
        assert_eq!(status, 200, "{path}");
    }
    let status = admin.get("/status");
    assert!(status["problem"].is_string() && status["rules"]["version"] == 1, "{status}");
    assert_eq!(admin.get("/records")["records"], json!([made]), "each instance holds all records");
    for path in ["/versions", "/versions/current", "/audit"] {
        assert_eq!(code(&soon(path, &|| admin.request("GET", path, None))), (503, "unavailable"), "{path}");
    }
    let request = json!({"domain": "web", "descriptors": [k("v")]});
    let (status, tried) = soon("/try", &|| admin.post("/try", &request));
    assert_eq!((status, &tried["is_over_limit"]), (200, &Value::Null), "{tried}");
    assert!(tried["problem"].is_string() && tried["descriptors"][0]["rule"]["rule"] == "k", "{tried}");
    let usage = "/usage?domain=web&descriptor=k%3Dv";
    assert_eq!(code(&soon(usage, &|| admin.request("GET", usage, None))), (503, "unavailable"));
    assert_eq!(code(&admin.apply(1, &limit(6))), (503, "unavailable"));
    assert_eq!(code(&admin.try_put(&entry)), (503, "unavailable"));
    redis.signal("CONT");
    wait("it is back", || admin.request("GET", "/versions", None).0 == 200);
    assert_eq!(admin.post("/versions", &draft(admin.current(), &limit(7))).0, 201);
}
