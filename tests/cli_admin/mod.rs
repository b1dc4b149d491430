//! The commands of operators, against a server that runs.

use std::{
    fs,
    path::Path,
    process::Output,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    certificates::Authority,
    http,
    tollgate::{Tollgate, command},
};

const TOKENS: &str = "alice operator 0123456789-alice\nbob viewer 0123456789-bobby\n";

const RULES: &str = "\
domain: shop
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 2}
";

/// The maximum wait for a change on a busy machine.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);

/// A server whose rules have versions.
struct Served {
    directory: tempfile::TempDir,
    tollgate: Tollgate,
}

impl Served {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let rules = directory.path().join("rules");
        fs::create_dir(&rules).expect("made");
        fs::write(rules.join("shop.yaml"), RULES).expect("written");
        let tollgate = Tollgate::start(&rules, &[&["--rules", "memory"], arguments].concat());
        Self { directory, tollgate }
    }

    /// Writes rules into a directory of that name.
    fn draft(&self, name: &str, rules: &str) -> String {
        let draft = self.directory.path().join(name);
        fs::create_dir_all(&draft).expect("made");
        fs::write(draft.join("shop.yaml"), rules).expect("written");
        draft.display().to_string()
    }

    fn run(&self, words: &[&str]) -> Output {
        run(&self.tollgate.admin_url(""), words)
    }

    /// Output of a successful command.
    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{words:?}");
        text(&output.stdout)
    }

    /// JSON output of a successful command.
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[words, &["--json"]].concat())).expect("JSON")
    }

    /// Error output of a refused command.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stdout));
        assert_eq!(text(&output.stdout), "", "{words:?}");
        text(&output.stderr)
    }

    /// The status of a request with these hits for `user`.
    fn request(&self, user: &str, hits: u64) -> u16 {
        let entries = json!([{ "key": "user", "value": user }]);
        let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
        let body = json!({ "domain": "shop", "descriptors": [descriptor] });
        http::post(&self.tollgate.url("/json"), &body.to_string()).status
    }

    /// Waits until requests with these hits have the expected status; each attempt uses another user with this
    /// prefix, so that no counter interferes.
    fn becomes(&self, user: &str, hits: u64, status: u16) {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        let mut users = (0..).map(|number| format!("{user}{number}"));
        while self.request(&users.next().expect("endless"), hits) != status {
            assert!(Instant::now() < deadline, "{hits} hits of {user} do not become {status}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until that is what a look of one user comes to.
    fn status_becomes(&self, user: &str, status: u16) {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        while self.request(user, 0) != status {
            assert!(Instant::now() < deadline, "the status of {user} does not become {status}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn run(url: &str, words: &[&str]) -> Output {
    command().args(words).args(["--admin-url", url]).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let file = directory.join(name);
    fs::write(&file, text).expect("written");
    file.display().to_string()
}

#[test]
fn rules_are_compared_applied_and_rolled_back() {
    let served = Served::new();
    let listed = served.done(&["rules", "list"]);
    assert!(listed.starts_with("VERSION") && listed.contains("1        current  20"), "{listed}");
    let draft = served.draft("draft", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
    let diff = served.done(&["rules", "diff", &draft]);
    for part in
        ["-  rate_limit: {unit: year, requests_per_unit: 2}", "+  rate_limit", "~ rule shop.user: 2 per year"]
    {
        assert!(diff.contains(part), "no {part} in {diff}");
    }
    let applied = served.done(&["rules", "apply", &draft, "--comment", "more for all", "--author", "carol"]);
    assert!(applied.contains("~ shop.yaml\n~ rule shop.user: 2 per year"), "{applied}");
    assert!(applied.ends_with("version 2 is current, made by carol\n"), "{applied}");
    served.becomes("a", 9, 200);
    let listed = served.done(&["rules", "list"]);
    let row = listed.lines().find(|line| line.starts_with("2 ")).expect("its row");
    assert!(
        row.contains(" current  ") && row.contains(" carol ") && row.ends_with(" more for all"),
        "{listed}"
    );
    assert_eq!(served.done(&["rules", "diff", "2"]), diff);
    let again = served.done(&["rules", "apply", &draft, "--comment", "again"]);
    assert!(again.contains("nothing was changed"), "{again}");
    let rolled_back = served.done(&["rules", "rollback", "1", "--comment", "too much"]);
    assert!(
        rolled_back.contains("version 3 is current") && rolled_back.contains("files of version 1"),
        "{rolled_back}"
    );
    served.becomes("b", 3, 429);
    assert_eq!(served.json(&["rules", "list", "--limit", "1"])["current"], 3);
    assert_eq!(served.json(&["rules", "list", "--limit", "1"])["versions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_files_of_a_version_are_shown_or_written() {
    let served = Served::new();
    let shown = served.done(&["rules", "show"]);
    assert!(
        shown.starts_with("# version 1, made ") && shown.ends_with(&format!("# shop.yaml\n{RULES}")),
        "{shown}"
    );
    let out = served.directory.path().join("out");
    served.done(&["rules", "show", "1", "--to", &out.display().to_string()]);
    assert_eq!(fs::read_to_string(out.join("shop.yaml")).expect("is there"), RULES);
    let again = served.refused(&["rules", "show", "--to", &out.display().to_string()]);
    assert!(again.contains("expected an empty directory"), "{again}");
    assert_eq!(served.json(&["rules", "show"])["files"]["shop.yaml"], RULES);
    // What is written knows which version it was made from, also when it was applied.
    let out = out.display().to_string();
    let edit = |from: &str, to: &str| {
        let path = Path::new(&out).join("shop.yaml");
        let text = fs::read_to_string(&path).expect("is there").replace(from, to);
        fs::write(path, text).expect("written");
    };
    let apply = ["rules", "apply", &out, "--comment", "x"];
    edit("requests_per_unit: 2", "requests_per_unit: 4");
    served.done(&apply);
    edit("requests_per_unit: 4", "requests_per_unit: 5");
    served.done(&apply);
    served.done(&["rules", "rollback", "1"]);
    edit("requests_per_unit: 5", "requests_per_unit: 6");
    let stale = served.refused(&apply);
    assert!(stale.contains("refused (stale): version 4 is current, made by"), "{stale}");
    served.done(&[&apply[..], &["--based-on", "4"]].concat());
    assert!(served.refused(&["rules", "show", "7"]).starts_with("refused (not_found)"));
}

#[test]
fn a_stale_or_invalid_change_is_refused_and_changes_nothing() {
    let served = Served::new();
    let draft = served.draft("draft", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
    served.done(&["rules", "apply", &draft, "--comment", "nine", "--based-on", "1"]);
    let other = served.draft("other", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 5"));
    for based_on in ["1", "none"] {
        let stale = served.refused(&["rules", "apply", &other, "--comment", "x", "--based-on", based_on]);
        assert!(stale.contains("refused (stale): version 2 is current, made by"), "{stale}");
        assert!(stale.contains("version 2: nine\nnothing was changed"), "{stale}");
    }
    let stale = served.refused(&["rules", "rollback", "1", "--based-on", "1"]);
    assert!(stale.contains("refused (stale)"), "{stale}");
    let wrong = served.draft("wrong", &RULES.replace("year", "years"));
    let report = served.refused(&["rules", "apply", &wrong, "--comment", "x"]);
    let check = command().args(["check", &wrong]).output().expect("it runs");
    assert_eq!(report, text(&check.stderr), "the report of check");
    assert!(report.contains("shop.yaml:4: descriptors[0].rate_limit.unit"), "{report}");
    assert_eq!(served.json(&["rules", "list"])["current"], 2);
}

#[test]
fn likely_mistakes_require_force() {
    let served = Served::new();
    let closed = served.draft("closed", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 0"));
    let apply = ["rules", "apply", &closed, "--comment", "closed"];
    let refused = served.refused(&apply);
    assert!(refused.starts_with("refused (needs_force)") && refused.contains("\n  shop: "), "{refused}");
    assert!(refused.ends_with("use --force to apply it anyway\n"), "{refused}");
    assert_eq!(served.request("a", 1), 200);
    served.done(&[&apply[..], &["--force"]].concat());
    served.becomes("a", 1, 429);
}

#[test]
fn counters_are_read_refunded_and_reset() {
    let served = Served::new();
    assert_eq!((served.request("a", 2), served.request("a", 1)), (200, 429));
    let counter = ["--domain", "shop", "user=a"];
    let read = served.json(&[&["counters", "read"], &counter[..]].concat());
    assert_eq!((&read["remaining"], &read["would_pass"]), (&json!(0), &json!(false)), "{read}");
    let usage = served.done(&[&["usage"], &counter[..]].concat());
    let begin = "rule        user\nlimit       2 per year, fixed_window\nused        ";
    assert!(usage.starts_with(begin) && usage.contains("\nremaining   0\nresets at   "), "{usage}");
    let usage = served.json(&[&["usage"], &counter[..]].concat());
    assert_eq!(usage["limits"][0]["limit_hits"], json!(2), "{usage}");
    let refunded =
        served.done(&[&["counters", "refund", "--hits", "2", "--reason", "ours"], &counter[..]].concat());
    assert!(refunded.starts_with("rule        user\nlimit       2 per year, fixed_window\n"), "{refunded}");
    assert!(refunded.contains("next hit    would pass\n"), "{refunded}");
    assert_eq!(served.request("a", 1), 200);
    served.done(&[&["counters", "reset"], &counter[..]].concat());
    assert_eq!(served.request("a", 2), 200);
    let missed = served.refused(&["counters", "read", "--domain", "shop", "path=x"]);
    assert!(missed.starts_with("refused (not_found)"), "{missed}");
}

#[test]
fn deny_entries_take_effect_at_once_and_end() {
    let served = Served::new();
    let added = served.done(&["lists", "add", "--domain", "shop", "user=evil-*", "--reason", "scraping"]);
    served.becomes("evil-", 1, 429);
    assert_eq!(served.request("good", 1), 200);
    let entry = served.json(&["lists", "show"])["entries"][0].clone();
    let id = entry["id"].as_str().expect("an id");
    assert!(added.contains(&format!("entry {id} denies user=evil-* in shop until it is removed")), "{added}");
    let listed = served.done(&["lists", "show"]);
    assert!(listed.contains("user=evil-*  never") && listed.contains("scraping"), "{listed}");
    // An exception to it, of which there may be more than the limit.
    served.done(&[
        "lists",
        "add",
        "--allow",
        "--domain",
        "*",
        "user=evil-twin",
        "--reason",
        "is not",
        "--for",
        "1h",
    ]);
    served.status_becomes("evil-twin", 200);
    assert_eq!(served.request("evil-twin", 100), 200);
    assert!(served.done(&["lists", "show", "--allow"]).contains("evil-twin"));
    assert!(!served.done(&["lists", "show"]).contains("evil-twin"));
    let metrics = http::get(&served.tollgate.admin_url("/metrics")).body;
    for list in ["allow", "deny"] {
        let counted = format!("tollgate_list_requests_total{{domain=\"shop\",list=\"{list}\"}} ");
        assert!(metrics.contains(&counted), "no {counted}");
    }
    served.done(&["lists", "remove", id]);
    served.becomes("evil-", 1, 200);
    assert!(served.refused(&["lists", "remove", id]).starts_with("refused (not_found)"));
    served.done(&["lists", "add", "--domain", "shop", "user=late", "--reason", "briefly", "--for", "4s"]);
    served.status_becomes("late", 429);
    served.status_becomes("late", 200);
    let broad = served.refused(&["lists", "add", "--domain", "shop", "user=10.1.2.3/8", "--reason", "oops"]);
    assert!(broad.contains("10.1.2.3/8 means all of 10.0.0.0/8"), "{broad}");
}

#[test]
fn deny_entries_of_literal_values_are_quoted_and_broad_ones_are_forced() {
    let served = Served::new();
    let deny = |descriptor: &str, more: &[&str]| {
        let words = ["lists", "add", "--domain", "shop", descriptor, "--reason", "abuse"];
        served.run(&[&words[..], more].concat())
    };
    let added = String::from_utf8(deny(r#"user="*""#, &[]).stdout).expect("text");
    assert!(added.contains(r#"denies user="*" in shop"#), "{added}");
    served.status_becomes("*", 429);
    assert!(deny(r#"user="a,b=c\\""#, &[]).status.success());
    served.status_becomes(r"a,b=c\", 429);
    for other in ["x", "a", "c"] {
        assert_eq!(served.request(other, 1), 200, "{other}");
    }
    assert!(served.done(&["lists", "show"]).contains(r#"user="a,b=c\\""#));
    let refused = deny("user=*", &[]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("refused (needs_force)"), "{text}");
    assert!(
        text.contains("shop: the entry would deny all requests with its keys") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(served.request("y", 1), 200);
    assert!(deny("user=*", &["--force"]).status.success());
    served.status_becomes("y", 429);
    assert!(!deny(&format!("user=\"{}\"", "x".repeat(300)), &["--force"]).status.success());
}

#[test]
fn rules_are_switched_off_and_on() {
    let served = Served::new();
    assert_eq!(served.request("a", 3), 429);
    assert_eq!(served.done(&["switch", "list"]), "no rule is switched\n");
    let rule = ["--domain", "shop", "--rule", "user"];
    let set = served.done(&[&["switch", "set", "off", "--reason", "incident"], &rule[..]].concat());
    assert_eq!(set, "shop.user is switched to off until it is removed\n");
    served.becomes("a", 3, 200);
    assert!(served.done(&["switch", "list"]).contains("shop    user  off   never"));
    served.done(&[&["switch", "set", "shadow", "--reason", "watch", "--for", "1h"], &rule[..]].concat());
    assert_eq!(served.json(&["switch", "list"])["switches"][0]["mode"], "shadow");
    served.becomes("a", 3, 200);
    served.done(&[&["switch", "remove"], &rule[..]].concat());
    served.becomes("a", 3, 429);
    let other = ["switch", "set", "off", "--reason", "x", "--domain", "shop", "--rule", "other"];
    assert!(served.refused(&other).starts_with("refused (not_found)"));
}

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
    let deny = ["lists", "add", "--domain", "shop", "user=x", "--reason", "no", "--token-file", &viewer];
    let forbidden = served.refused(&deny);
    assert!(forbidden.starts_with("refused (forbidden)") && !forbidden.contains("0123456789"), "{forbidden}");
    let operator = token("0123456789-alice\n");
    served.done(&[
        "lists",
        "add",
        "--domain",
        "shop",
        "user=x",
        "--reason",
        "yes",
        "--token-file",
        &operator,
    ]);
    let entries = served.json(&["lists", "show", "--token-file", &operator]);
    assert_eq!(entries["entries"][0]["author"], "alice");
    let many = served.refused(&["rules", "list", "--token-file", &tokens]);
    assert!(many.contains("expected one token") && !many.contains("0123456789"), "{many}");
    let error = served.run(&["rules", "list", "--json"]);
    let error: Value = serde_json::from_slice(&error.stderr).expect("JSON");
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
    let served = Served::with(&[
        "--admin-tls-cert",
        &certificate,
        "--admin-tls-key",
        &key,
        "--admin-tls-client-ca",
        &ca,
    ]);
    let url = served.tollgate.admin_url("").replace("http:", "https:");
    let list_rules = |words: &[&str]| run(&url, &[&["rules", "list"], words].concat());
    let shown = [write("client.pem", &client.certificate), write("client.key", &client.key)];
    let identity = ["--cert", &shown[0], "--key", &shown[1]];
    let good = list_rules(&[&["--ca", &ca], &identity[..]].concat());
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    for (words, why) in [
        (&identity[..], "an unknown authority"),
        (&["--ca", &ca], "without a certificate"),
        (&["--ca", &key], "no authority"),
    ] {
        assert_eq!(list_rules(words).status.code(), Some(1), "{why}");
    }
}

#[test]
fn an_unreachable_server_is_a_failure_and_a_wrong_argument_is_usage() {
    let port = crate::support::free_port();
    let url = format!("http://127.0.0.1:{port}");
    let gone = run(&url, &["rules", "list"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).starts_with(&format!("{url} is unreachable: ")), "{}", text(&gone.stderr));
    assert_eq!(run(&url, &["rules", "apply", "x"]).status.code(), Some(2));
    assert_eq!(run(&url, &["rules"]).status.code(), Some(2));
    // The port of /json is no admin port.
    let served = Served::new();
    let stranger = run(&served.tollgate.url(""), &["rules", "list"]);
    assert_eq!(stranger.status.code(), Some(1));
    assert!(
        text(&stranger.stderr).contains("(HTTP status 404); expected the admin API"),
        "{}",
        text(&stranger.stderr)
    );
}
