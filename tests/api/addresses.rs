//! Addresses that rules match by ranges: one client has one counter, one override and one entry of a list.

use super::*;

const SPELLINGS: [&str; 5] =
    ["1.2.3.4", "::ffff:1.2.3.4", "::FFFF:102:304", "1.2.3.4:5678", "[::ffff:1.2.3.4]:80"];

const RULES: &str = "
domain: web
descriptors:
- {key: plain, rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 1}}
- key: app
  value: shop
  descriptors:
  - {key: ip, cidr: 0.0.0.0/0, rate_limit: {algorithm: sliding_window, unit: year, requests_per_unit: 5}}
";

fn descriptor(ip: &str) -> Value {
    json!([{"key": "app", "value": "shop"}, {"key": "ip", "value": ip}])
}

fn hit(tollgate: &Tollgate, descriptor: &Value) -> u16 {
    let body = json!({"domain": "web", "descriptors": [{"entries": descriptor}]});
    tollgate.post(&body.to_string()).status
}

/// The statuses of a hit by each spelling.
fn hits(tollgate: &Tollgate) -> Vec<u16> {
    SPELLINGS.iter().map(|ip| hit(tollgate, &descriptor(ip))).collect()
}

#[test]
fn a_client_has_one_counter_however_its_address_is_written() {
    let redis = Redis::start();
    for store in ["memory", &redis.url()] {
        let tollgate = Tollgate::serving(RULES, &["--store", store, "--store-timeout", "5s"]);
        assert_eq!(hits(&tollgate), [200; 5], "{store}");
        assert_eq!(hits(&tollgate), [429; 5], "{store}");
    }
}

#[test]
fn operators_reach_that_counter_by_each_of_its_texts() {
    let tollgate = Tollgate::serving(RULES, &[]);
    let admin = Admin::of(&tollgate);
    assert_eq!(hits(&tollgate), [200; 5]);
    assert_eq!(hits(&tollgate), [429; 5]);
    // A list is no address, and a key without ranges is a text.
    assert_eq!(
        [hit(&tollgate, &descriptor("1.2.3.4, 5.6.7.8")), hit(&tollgate, &descriptor("a, b"))],
        [200; 2]
    );
    let plain = |text: &str| hit(&tollgate, &json!([{"key": "plain", "value": text}]));
    assert_eq!([plain("1.2.3.4"), plain("::ffff:1.2.3.4"), plain("1.2.3.4")], [200, 200, 429]);

    let counter = |ip: &str| json!({"domain": "web", "descriptor": descriptor(ip)});
    for ip in SPELLINGS {
        let tried = json!({"domain": "web", "descriptors": [descriptor(ip)]});
        let tried = admin.done("POST", "/try", &tried, 200);
        assert_eq!(tried["descriptors"][0]["counter"]["used"], 5, "{ip}");
    }
    assert_eq!(admin.done("POST", "/counters/reset", &counter("1.2.3.4:1"), 200)["limits"][0]["used"], 0);
    assert_eq!(hits(&tollgate), [200; 5]);

    let over = json!({"kind": "override", "domain": "web", "rule": "app_shop.ip_0.0.0.0/0", "reason": "r",
                      "descriptor": [{"key": "ip", "value": "::ffff:102:304"}], "rate_limit": {"requests_per_unit": 10}});
    admin.put(&over);
    assert_eq!(hits(&tollgate), [200; 5]);
    assert_eq!(hits(&tollgate), [429; 5]);

    let listed = |name: &str| {
        let top = admin.get("/top?domain=web&limit=100&scope=instance");
        let talkers = top["domains"][0][name].as_array().cloned().unwrap_or_default();
        talkers
            .iter()
            .filter(|talker| talker["descriptor"] == descriptor("1.2.3.4"))
            .map(|it| it["hits"].clone())
            .next()
    };
    wait("all are the hits of one client", || listed("heaviest") == Some(json!(25)));
}

#[test]
fn a_list_entry_of_an_address_denies_it_however_it_is_written() {
    let tollgate =
        Tollgate::serving(&RULES.replace("requests_per_unit: 5", "requests_per_unit: 500000"), &[]);
    let entry = json!({"kind": "list_entry", "list": "deny", "domain": "web", "descriptor": [{"key": "ip", "value": "1.2.3.4"}], "reason": "r"});
    Admin::of(&tollgate).put(&entry);
    wait("it is denied", || hits(&tollgate) == [429; 5]);
    assert_eq!(hit(&tollgate, &descriptor("1.2.3.5")), 200);
}
