//! Ramps, by real instances.

use super::*;

async fn charge(client: &mut Client, value: &str) {
    // A busy machine may keep the store from deciding in time.
    let _ = client.call(request("web", &[&[("k", value)]])).await;
}

const PLAIN: &str = "\
domain: web
descriptors:
- key: k
  rate_limit: {unit: hour, requests_per_unit: 1000000}
";

fn switch(instance: &Tollgate) -> Value {
    api(instance, "GET", "/records?kind=switch", None).1["records"][0].clone()
}

fn gauge(instance: &Tollgate, name: &str) -> f64 {
    instance.metric(name).unwrap_or_default()
}

#[tokio::test]
async fn another_instance_goes_on_with_a_ramp_when_the_acting_one_is_killed() {
    let (redis, config) = (Redis::start(), rules(PLAIN));
    let start = || Tollgate::start(config.path(), &["--store", &redis.url(), "--log-level", "warn"]);
    let mut instances = vec![start(), start()];
    let set = |ramp: Value| json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "shadow", "ramp": ramp, "enforce_percent": 5});
    let body = set(json!({"steps": [50, 100], "over_s": 4, "max_denied_percent": 5, "min_hits": 10}));
    let made = put_by_api(&instances[0], &body, "new");
    assert_eq!((&made["enforce_percent"], &made["ramp"]["back_to_percent"]), (&json!(50), &json!(5)));
    let acting = found("one instance acts", async || {
        instances.iter().position(|instance| gauge(instance, r#"tollgate_ramps{state="running"}"#) > 0.0)
    })
    .await;
    let mut killed = instances.remove(acting);
    killed.signal("KILL");
    killed.wait();
    // Its lease would end some seconds later, if it did not meanwhile.
    let mut server = redis.connect();
    let _: u64 = cmd("DEL").arg("{tollgate-rules}:lease").query(&mut server).expect("deleted");
    let other = instances.remove(0);
    let client = other.client().await;
    until("the other one ends the ramp", async || {
        let mut client = client.clone();
        for number in 0..40 {
            charge(&mut client, &format!("client-{number}")).await;
        }
        let now = switch(&other);
        assert_eq!(now["ramp"]["denied_percent"], Value::Null, "{now}");
        now["enforce_percent"] == json!(100) && now["ramp"]["state"] == json!("done")
    })
    .await;
    until("its steps are recorded", async || {
        let audit = api(&other, "GET", "/audit?limit=20", None).1.to_string();
        audit.contains("ramp: step 2 of 2") && audit.contains("ramp: done at 100%")
    })
    .await;
}

/// Sends a request of more hits than the limit.
async fn exceed(client: &mut Client, value: &str) {
    let mut request = request("web", &[&[("k", value)]]);
    request.hits_addend = u32::MAX;
    client.call(request).await.expect("an answer");
}

#[tokio::test]
async fn a_ramp_is_not_set_back_by_one_client_but_by_many() {
    let instance = Tollgate::serving(PLAIN, &[]);
    let ramp = json!({"steps": [50, 100], "over_s": 4, "max_denied_percent": 5, "min_hits": 10});
    let body = json!({"kind": "switch", "domain": "web", "rule": "k", "mode": "shadow", "ramp": ramp});
    for (is_bad, expected) in [(false, "done"), (true, "rolled_back")] {
        put_by_api(&instance, &body, "new");
        let client = instance.client().await;
        until(expected, async || {
            let mut client = client.clone();
            for number in 0..40 {
                let value = format!("client-{number}");
                if is_bad && number % 2 == 0 {
                    exceed(&mut client, &value).await;
                } else {
                    charge(&mut client, &value).await;
                }
            }
            exceed(&mut client, "abuser").await;
            let state = switch(&instance)["ramp"]["state"].clone();
            assert!(state == json!("running") || state == json!(expected), "{state}");
            state == json!(expected)
        })
        .await;
    }
}
