//! Counters and bans.

use super::*;

#[test]
fn counters_are_read_refunded_and_reset() {
    let served = Served::new();
    assert_eq!((served.request("a", 2), served.request("a", 1)), (200, 429));
    let counter = ["--domain", "shop", "user=a"];
    let usage = served.done(&[&["usage"], &counter[..]].concat());
    let begin = "rule        user\nlimit       2 per year, fixed_window\nused        ";
    assert!(usage.starts_with(begin) && usage.contains("\nremaining   0\nresets at   "), "{usage}");
    let usage = served.json(&[&["usage"], &counter[..]].concat());
    let limit = &usage["limits"][0];
    assert_eq!((&limit["limit_hits"], &limit["remaining"]), (&json!(2), &json!(0)), "{usage}");
    let refunded =
        served.done(&[&["counters", "refund", "--hits", "2", "--reason", "ours"], &counter[..]].concat());
    assert!(refunded.starts_with("rule        user\nlimit       2 per year, fixed_window\n"), "{refunded}");
    assert!(refunded.contains("\nremaining   1\n"), "{refunded}");
    assert_eq!(served.request("a", 1), 200);
    served.done(&[&["counters", "reset"], &counter[..]].concat());
    assert_eq!(served.request("a", 2), 200);
    let missed = served.refused(&["usage", "--domain", "shop", "path=x"]);
    assert!(missed.starts_with("refused (not_found)"), "{missed}");
}

#[test]
fn deny_entries_take_effect_at_once_and_end() {
    let served = Served::new();
    let added = served.done(&["record", "deny", "--domain", "shop", "user=evil-*", "--reason", "scraping"]);
    served.becomes("evil-", 1, 429);
    assert_eq!(served.request("good", 1), 200);
    let entry = served.json(&["record", "list"])["records"][0].clone();
    let key = entry["key"].as_str().expect("a key");
    assert_eq!(added, format!("shop user=evil-*: deny until it is removed ({key})\n"));
    let listed = served.done(&["record", "list"]);
    assert!(listed.contains("user=evil-*  deny    never") && listed.contains("scraping"), "{listed}");
    // An exception to it, of which there may be more than the limit.
    served.done(&["record", "allow", "--domain", "*", "user=evil-twin", "--reason", "is not", "--for", "1h"]);
    served.status_becomes("evil-twin", 200);
    assert_eq!(served.request("evil-twin", 100), 200);
    assert!(served.done(&["record", "list", "--domain", "*"]).contains("user=evil-twin  allow"));
    assert!(!served.done(&["record", "list", "--domain", "shop"]).contains("evil-twin"));
    let metrics = http::get(&served.tollgate.admin_url("/metrics")).body;
    for list in ["allow", "deny"] {
        let counted = format!("tollgate_list_requests_total{{domain=\"shop\",list=\"{list}\"}} ");
        assert!(metrics.contains(&counted), "no {counted}");
    }
    served.done(&["record", "remove", key]);
    served.becomes("evil-", 1, 200);
    assert!(served.refused(&["record", "remove", key]).starts_with("refused (not_found)"));
    served.done(&["record", "deny", "--domain", "shop", "user=late", "--reason", "briefly", "--for", "4s"]);
    served.status_becomes("late", 429);
    served.status_becomes("late", 200);
    let broad =
        served.refused(&["record", "deny", "--domain", "shop", "user=10.1.2.3/8", "--reason", "oops"]);
    assert!(broad.contains("10.1.2.3/8 means all of 10.0.0.0/8"), "{broad}");
}

#[test]
fn deny_entries_of_literal_values_are_quoted_and_broad_ones_are_forced() {
    let served = Served::new();
    let deny = |descriptor: &str, more: &[&str]| {
        let words = ["record", "deny", "--domain", "shop", descriptor, "--reason", "abuse"];
        served.run(&[&words[..], more].concat())
    };
    let added = deny(r#"user="*""#, &[]).stdout;
    assert!(added.contains(r#"shop user="*": deny until"#), "{added}");
    served.status_becomes("*", 429);
    assert_eq!(deny(r#"user="a,b=c\\""#, &[]).code, Some(0));
    served.status_becomes(r"a,b=c\", 429);
    for other in ["x", "a", "c"] {
        assert_eq!(served.request(other, 1), 200, "{other}");
    }
    assert!(served.done(&["record", "list"]).contains(r#"user="a,b=c\\""#));
    let Ended { code, stderr: text, .. } = deny("user=*", &[]);
    assert!(code != Some(0) && text.contains("refused (needs_force)"), "{text}");
    assert!(
        text.contains("shop: the entry would deny all requests with its keys") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(served.request("y", 1), 200);
    assert_eq!(deny("user=*", &["--force"]).code, Some(0));
    served.status_becomes("y", 429);
    assert_ne!(deny(&format!("user=\"{}\"", "x".repeat(300)), &["--force"]).code, Some(0));
}
