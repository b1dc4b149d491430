//! Permissions, TLS and servers that do not respond.

use super::*;

#[test]
fn missing_permission_is_reported_and_no_token_is_shown() {
    let files = tempfile::tempdir().expect("a directory");
    let tokens = write(files.path(), "tokens", TOKENS);
    let served = Served::with(&["--admin-token-file", &tokens]);
    let token = |text: &str| write(files.path(), "token", text);
    assert!(served.refused(&["rules", "list"]).starts_with("refused (unauthorized)"));
    let wrong = token("0123456789-wrong");
    assert!(served.refused(&["rules", "list", "--token-file", &wrong]).starts_with("refused (unauthorized)"));
    let viewer = token("0123456789-bobby\n");
    served.done(&["rules", "list", "--token-file", &viewer]);
    let deny = ["record", "deny", "--domain", "shop", "user=x", "--reason", "no", "--token-file", &viewer];
    let forbidden = served.refused(&deny);
    assert!(forbidden.starts_with("refused (forbidden)") && !forbidden.contains("0123456789"), "{forbidden}");
    let operator = token("0123456789-alice\n");
    served.done(&[
        "record",
        "deny",
        "--domain",
        "shop",
        "user=x",
        "--reason",
        "yes",
        "--token-file",
        &operator,
    ]);
    let listed = served.json(&["record", "list", "--token-file", &operator]);
    assert_eq!(listed["records"][0]["author"], "alice");
    let many = served.refused(&["rules", "list", "--token-file", &tokens]);
    assert!(many.contains("expected one token") && !many.contains("0123456789"), "{many}");
    let error = served.run(&["rules", "list", "--json"]);
    let error: Value = serde_json::from_str(&error.stderr).expect("JSON");
    assert_eq!(error["error"]["code"], "unauthorized");
}

#[test]
fn a_tls_port_is_verified_by_its_authority_and_gets_a_client_certificate() {
    let files = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("operators");
    let server = authority.sign(&["127.0.0.1"]);
    let client = authority.sign(&["operator"]);
    let write = |name, text: &str| write(files.path(), name, text);
    let ca = write("ca.pem", &authority.pem());
    let (certificate, key) = (write("cert.pem", &server.certificate), write("key.pem", &server.key));
    let pair = format!("{certificate},{key}");
    let served = Served::with(&["--admin-tls", &pair, "--admin-tls-client-ca", &ca]);
    let url = served.tollgate.admin_url("").replace("http:", "https:");
    let list_rules = |words: &[&str]| run(&url, &[&["rules", "list"], words].concat());
    let shown = [write("client.pem", &client.certificate), write("client.key", &client.key)];
    let shown = shown.join(",");
    let identity = ["--cert", &shown];
    let good = list_rules(&[&["--ca", &ca], &identity[..]].concat());
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    for (words, why) in [
        (&identity[..], "an unknown authority"),
        (&["--ca", &ca], "without a certificate"),
        (&["--ca", &key], "no authority"),
    ] {
        assert_eq!(list_rules(words).code, Some(1), "{why}");
    }
}

#[test]
fn an_unreachable_server_is_a_failure_and_a_wrong_argument_is_usage() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let gone = run(&url, &["rules", "list"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.starts_with(&format!("{url} is unreachable: ")), "{}", gone.stderr);
    assert_eq!(run(&url, &["rules", "apply", "x"]).code, Some(2));
    assert_eq!(run(&url, &["rules"]).code, Some(2));
    // The port of /json is no admin port.
    let served = Served::new();
    let stranger = run(&served.tollgate.url(""), &["rules", "list"]);
    assert_eq!(stranger.code, Some(1));
    assert!(stranger.stderr.contains("(HTTP status 404); expected the admin API"), "{}", stranger.stderr);
}
