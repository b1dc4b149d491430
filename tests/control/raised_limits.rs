//! Hits that a client gets at once when an override of its limit is lowered, raised and removed.

use super::*;

const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"];

/// Whether a hit passes, and what remains.
async fn hit(client: &mut Client) -> (bool, u32) {
    let entries: &[(&str, &str)] = &[("k", "v")];
    let answer = client.call(request("web", &[entries])).await.expect("an answer");
    let status = answer.statuses.first().expect("a status");
    (status.code == 1, status.limit_remaining)
}

/// Sets an override of the key, or of the whole rule; returns its path.
fn set(tollgate: &Tollgate, key: &Value, limit: u32) -> String {
    let stated = json!({"kind": "override", "domain": "web", "rule": "k", "descriptor": key,
                        "rate_limit": {"requests_per_unit": limit}});
    let record = put_by_api(tollgate, &stated, "r");
    tollgate.admin_url(&format!("/api/v1/records/{}", record["key"].as_str().expect("a key")))
}

async fn raised(store: &str, algorithm: &str, key: Value) {
    let limit = format!("algorithm: {algorithm}, unit: year, requests_per_unit: 50");
    let (tollgate, mut client) = Tollgate::serving_one(
        &format!("domain: web\ndescriptors:\n- key: k\n  rate_limit: {{{limit}}}\n"),
        &["--store", store, "--store-timeout", "5s"],
    )
    .await;
    set(&tollgate, &key, 1);
    assert_eq!(hit(&mut client).await, (true, 0), "{algorithm}");
    assert_eq!(hit(&mut client).await, (false, 0), "{algorithm}");
    set(&tollgate, &key, 100);
    let (passes, remaining) = hit(&mut client).await;
    // A window counts the hits under the lower limit, a fixed one the denied hit too.
    assert!(passes && (97..=99).contains(&remaining), "{algorithm}: {remaining} of 100 remain");
    // The same limit once more is no other one.
    set(&tollgate, &key, 1);
    assert!(!hit(&mut client).await.0, "{algorithm}");
    let path = set(&tollgate, &key, 100);
    assert!((95..=98).contains(&hit(&mut client).await.1), "{algorithm}");
    assert_eq!(http::send("DELETE", &path, &[], None).status, 204);
    let (passes, remaining) = hit(&mut client).await;
    assert!(passes && (44..=49).contains(&remaining), "{algorithm}: {remaining} of 50 remain");
}

#[tokio::test]
async fn a_raised_limit_admits_the_difference_at_once_in_every_algorithm() {
    let redis = Redis::start();
    for algorithm in ALGORITHMS {
        raised("memory", algorithm, json!([{"key": "k", "value": "v"}])).await;
        raised(&redis.url(), algorithm, json!([])).await;
        cmd("FLUSHALL").exec(&mut redis.connect()).expect("done");
    }
}
