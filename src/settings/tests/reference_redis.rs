//! Variables of envoyproxy/ratelimit that name a Redis.

use super::*;

fn redis_url(variables: &[(&str, &str)]) -> String {
    match settings("", variables).store.redis().expect("Redis").servers {
        RedisUrl::Standalone(url) => url,
        servers => panic!("{servers}"),
    }
}

#[test]
fn redis_variables_of_the_reference_become_a_url() {
    let url = ("REDIS_URL", "redis:6379");
    assert_eq!(redis_url(&[url, ("REDIS_SOCKET_TYPE", "tcp")]), "redis://redis:6379");
    assert_eq!(
        redis_url(&[url, ("REDIS_TLS", "true"), ("REDIS_AUTH", "p@ss")]),
        "rediss://:p%40ss@redis:6379"
    );
    assert_eq!(redis_url(&[url, ("REDIS_AUTH", "me:a:b")]), "redis://me:a%3Ab@redis:6379");
    assert_eq!(redis_url(&[("REDIS_URL", "/run/r.sock")]), "redis+unix:///run/r.sock");
    let unix = [("REDIS_URL", "/run/r.sock"), ("REDIS_AUTH", "me:pw")];
    assert_eq!(redis_url(&unix), "redis+unix:///run/r.sock?user=me&pass=pw");
    assert_eq!(redis_url(&[("REDIS_URL", "redis://u:p@h"), ("REDIS_AUTH", "x")]), "redis://u:p@h");
    assert_refused("", &[unix[0], ("REDIS_TLS", "true")], "REDIS_TLS: true, but REDIS_URL is a socket");
    let sharded = "REDIS_TYPE: `SHARDED` is invalid; expected SINGLE";
    assert_refused("", &[url, ("REDIS_TYPE", "SHARDED")], sharded);
}

#[test]
fn sentinel_and_cluster_variables_of_the_reference_become_urls() {
    let servers = |variables: &[(&str, &str)]| {
        settings("", variables).store.redis().expect("Redis").servers.to_string()
    };
    let sentinels = [("REDIS_TYPE", "Sentinel"), ("REDIS_URL", "mymaster,a:26379,b:26380")];
    assert_eq!(servers(&sentinels), "redis+sentinel://a:26379,b:26380/mymaster");
    let secured = [
        sentinels[0],
        sentinels[1],
        ("REDIS_TLS", "true"),
        ("REDIS_AUTH", "me:p@ss,w/d?"),
        ("REDIS_SENTINEL_AUTH", "p&ss"),
    ];
    let shown = "rediss+sentinel://me:***@a:26379,b:26380/mymaster?sentinel_password=***";
    assert_eq!(servers(&secured), shown);
    let cluster = [("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", "a:6379,b:6379")];
    assert_eq!(servers(&cluster), "redis+cluster://a:6379,b:6379");
    let secured = [cluster[0], cluster[1], ("REDIS_TLS", "true"), ("REDIS_AUTH", "p@ss")];
    assert_eq!(servers(&secured), "rediss+cluster://:***@a:6379,b:6379");
    // A login in the URL overrides that of the variable, as with one server.
    for (kind, url, shown) in [
        ("CLUSTER", "u2:p2@a:1,b:1", "redis+cluster://u2:***@a:1,b:1"),
        ("SENTINEL", "m,u2:p2@a:1", "redis+sentinel://u2:***@a:1/m"),
    ] {
        assert_eq!(servers(&[("REDIS_TYPE", kind), ("REDIS_URL", url), ("REDIS_AUTH", "u:p")]), shown);
    }
    let lone = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "a:26379")];
    assert_refused("", &lone, "REDIS_URL: `a:26379` is invalid; expected MASTER");
}

#[test]
fn a_variable_of_redis_without_a_url_does_not_select_memory() {
    for orphan in
        [("REDIS_TYPE", "SINGLE"), ("REDIS_AUTH", "p"), ("REDIS_TLS", "1"), ("BACKEND_TYPE", "redis")]
    {
        assert_refused("", &[orphan], &format!("\n  {}: set, but REDIS_URL is not", orphan.0));
        assert!(settings("--store memory", &[orphan]).notices.is_empty());
    }
    assert!(settings("", &[("REDIS_TLS", "false")]).notices.is_empty());
    let path = [("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", "redis:6379")];
    assert_refused("", &path, "\n  REDIS_SOCKET_TYPE: unix, but REDIS_URL is not a path");
    let url = redis_url(&[("REDIS_URL", "redis:6379")]);
    assert_eq!(url, "redis://redis:6379");
}
