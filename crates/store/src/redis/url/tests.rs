use super::*;

fn shown(url: &str) -> String {
    url.parse::<RedisUrl>().map_or_else(|error| format!("! {error}"), |servers| servers.to_string())
}

#[test]
fn several_servers_are_read_and_shown_without_their_secrets() {
    for (url, expected) in [
        ("redis+cluster://a:1,b,[::1]:3", "redis+cluster://a:1,b:6379,[::1]:3"),
        ("rediss+cluster://u:s%40c@a", "rediss+cluster://u:***@a:6379"),
        ("redis+sentinel:// a , b:1 /main", "redis+sentinel://a:26379,b:1/main"),
        ("redis+cluster://u:p@ a, b:1", "redis+cluster://u:***@a:6379,b:1"),
        ("redis+sentinel://a,b:1/main", "redis+sentinel://a:26379,b:1/main"),
        (
            "rediss+sentinel://:secret@a/my%2Dmain?db=3&sentinel_username=u&sentinel_password=secret",
            "rediss+sentinel://:***@a:26379/my-main?db=3&sentinel_username=u&sentinel_password=***",
        ),
        ("redis+sentinel://a/m?sentinel_password=p@ss", "redis+sentinel://a:26379/m?sentinel_password=***"),
    ] {
        assert_eq!(shown(url), expected);
    }
    let Ok(RedisUrl::Cluster(cluster)) = "redis+cluster://me%3a:p%C3%A9%25@a".parse() else {
        panic!("valid")
    };
    let login = cluster.login.map(|login| (login.user, login.password));
    assert_eq!(login, Some(("me:".into(), "pé%".into())));
}

#[test]
fn malformed_urls_are_refused_without_quoting_them() {
    for url in [
        "redis+cluster://",
        "redis+cluster://a,",
        "redis+cluster://a/1",
        "redis+cluster://a?db=1",
        "redis+cluster://secret@a",
        "redis+cluster://u:secr%e@a",
        "redis+cluster://u:secret/more@a",
        "redis+sentinel://a",
        "redis+sentinel://a/",
        "redis+sentinel:///m",
        "redis+sentinel://a/m?db=x",
        "redis+sentinel://a/m?sentinel_username=u",
        "redis+sentinel://a/m?secret=1",
        "redis+sentinel://u:sec/ret@a/m",
        "redis://a,b",
        "redis://secret@a",
        "redis://u:@a:1/2",
        "redis+cluster://u:@a",
        "rediss://u:secret@a:1/#insecure",
        "rediss://a#insecure",
        "http://a",
        "redis://a b",
        "redis://a\nb",
        "redis+sentinel://a, ,b/m",
        "redis+sentinel://a b/m",
        "redis+cluster://a:1 b:2",
    ] {
        let error = shown(url);
        assert!(error.starts_with("! ") && !error.contains("sec"), "{url}: {error}");
    }
}

#[test]
fn lists_have_hosts_with_or_without_ports() {
    let list = Address::parse_list("a, b:1 ,[::1]:2,[fe80::1]", 26379).expect("valid");
    let shown: Vec<_> = list.iter().map(Address::to_string).collect();
    assert_eq!(shown, ["a:26379", "b:1", "[::1]:2", "[fe80::1]:26379"]);
    for text in
        ["", "a,", "a:x", "a:0", "a:70000", "::1", "[::1", "[::1]2", ":1", "u:p@h", "a:1:2", "a b", "a\nb:1"]
    {
        assert!(Address::parse_list(text, 1).is_err(), "{text}");
    }
}

#[test]
fn a_redirection_may_leave_the_host_out() {
    let queried = Address::new("queried", 1);
    let from_redirect = |text| Address::from_redirect(text, &queried).map(|address| address.to_string());
    assert_eq!(from_redirect("10.0.0.1:7001").as_deref(), Some("10.0.0.1:7001"));
    assert_eq!(from_redirect("::1:7001").as_deref(), Some("[::1]:7001"));
    assert_eq!(from_redirect("node.example:7001").as_deref(), Some("node.example:7001"));
    assert_eq!(from_redirect(":7001").as_deref(), Some("queried:7001"));
    assert_eq!(
        [from_redirect("?:7001"), from_redirect("x"), from_redirect("x:y"), from_redirect("x:0")],
        [None, None, None, None]
    );
    let long = format!("{}:1", "x".repeat(MAX_HOST_BYTES + 1));
    assert_eq!(
        ["a b:1", "a\nERROR forged:1", "a@b:1", "\x1b[31m:1", &*long].map(from_redirect),
        [const { None }; 5]
    );
}
