//! Banned clients on the deny list, by three instances on one Redis.

use super::*;

/// Keys in one request. Those of abusive clients have the same rate, and so are listed together.
const BATCH: usize = 16;

/// Pause of a sender after it sent requests with all abusive keys.
const SEND_INTERVAL: Duration = Duration::from_millis(300);

/// Three bad seconds in a minute ban, and the bans in `keys` list.
fn config(keys: &str) -> String {
    format!(
        "domain: web\n\
         descriptors:\n\
         - key: k\n  rate_limit: {{unit: year, requests_per_unit: 1, ban: {{threshold: 3, interval: 1m, {keys}}}}}\n\
         - key: t\n  rate_limit:\n    {{unit: year, requests_per_unit: 1, ban: {{threshold: 3, duration: 1h, list_after: 1}}}}\n"
    )
}

struct AbusedFleet {
    instances: Arc<Vec<Tollgate>>,
    _redis: Redis,
    _config: TempDir,
}

impl AbusedFleet {
    fn start(keys: &str) -> Self {
        let (redis, config) = (Redis::start(), rules(&config(keys)));
        let arguments = ["--store", &redis.url(), "--store-timeout", "5s", "--workers", "1"];
        let spawned: Vec<_> = (0..3).map(|_| Tollgate::spawn(config.path(), &arguments)).collect();
        spawned.iter().for_each(Tollgate::wait_until_ready);
        Self { instances: Arc::new(spawned), _redis: redis, _config: config }
    }

    fn admin(&self, number: usize) -> Admin {
        Admin::of(&self.instances[number])
    }

    /// The automatic entries as an instance lists them, by the value of their key.
    fn automatic(&self, number: usize) -> BTreeMap<String, Value> {
        let page = self.admin(number).get("/records?kind=automatic");
        let entries = page["records"].as_array().expect("a list").clone();
        let count = entries.len();
        let value = |entry: &Value| entry["descriptor"][0]["value"].as_str().expect("a value").to_owned();
        let by_value: BTreeMap<_, _> = entries.into_iter().map(|entry| (value(&entry), entry)).collect();
        assert_eq!(by_value.len(), count, "one entry for each key");
        by_value
    }

    /// Sends requests for the keys to all instances in turn until `ended`.
    fn abuse(&self, key: &'static str, values: &[String], ended: &Arc<AtomicBool>) -> JoinSet<()> {
        let mut senders = JoinSet::new();
        for number in 0..self.instances.len() {
            let (instances, values, ended) = (self.instances.clone(), values.to_vec(), ended.clone());
            senders.spawn(async move {
                let mut client = instances[number].client().await;
                while !ended.load(Ordering::Relaxed) {
                    for some in values.chunks(BATCH) {
                        let entries: Vec<_> = some.iter().map(|value| [(key, &**value)]).collect();
                        let descriptors: Vec<&[(&str, &str)]> =
                            entries.iter().map(|entries| &entries[..]).collect();
                        // A busy machine may keep the store from deciding in time.
                        let _ = client.call(request("web", &descriptors)).await;
                    }
                    sleep(SEND_INTERVAL).await;
                }
            });
        }
        senders
    }

    /// Sends two requests for each of the keys, of which one is denied.
    async fn be_honest(&self, values: &[String]) {
        let mut clients = Vec::new();
        for instance in self.instances.iter() {
            clients.push(instance.client().await);
        }
        for (number, some) in values.chunks(BATCH).enumerate() {
            let client = &mut clients[number % 3];
            let entries: Vec<_> = some.iter().map(|value| [("k", &**value)]).collect();
            let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entries| &entries[..]).collect();
            for _ in 0..2 {
                client.call(request("web", &descriptors)).await.expect("decided");
            }
        }
    }

    /// Whether a limit decides requests of the key, and no list.
    fn is_limited(&self, number: usize, value: &str) -> bool {
        let answer = self.instances[number].hit("web", &[("k", value)]);
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        body["statuses"][0]["currentLimit"].is_object()
    }
}

async fn until(what: &str, seconds: u64, is_so: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(seconds), "in vain: {what}");
        sleep(Duration::from_millis(100)).await;
    }
    begun.elapsed()
}

fn values(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{name}-{at}")).collect()
}

/// Lists all abusive keys and no honest one, once each. Returns the fleet and the time until all were listed.
async fn all_are_listed_once(abusive: usize, honest: usize, keys: &str) -> (AbusedFleet, Duration) {
    let fleet = AbusedFleet::start(keys);
    let (abusers, honest) = (values("abusive", abusive), values("honest", honest));
    let own = json!({"kind": "list_entry", "list": "deny", "domain": "web", "reason": "by hand",
        "descriptor": [{"key": "k", "value": "banned", "match": "exact"}]});
    let own = fleet.admin(0).put(&own);
    fleet.be_honest(&honest).await;
    let ended = Arc::new(AtomicBool::new(false));
    let mut trial = fleet.abuse("t", &values("trial", 1), &ended);
    let mut senders = fleet.abuse("k", &abusers, &ended);
    let expected: BTreeSet<_> = abusers.iter().cloned().collect();
    let listed = || fleet.automatic(1).into_keys().collect::<BTreeSet<_>>();
    let took = until("all abusive keys are listed", 120, || listed() == expected).await;
    // Which lists no client, as it is only watched.
    let is_watched = || fleet.admin(0).get("/bans?mode=watch")["bans"][0]["rule"] == "t";
    until("the other client is banned", 60, is_watched).await;
    ended.store(true, Ordering::Relaxed);
    while senders.join_next().await.is_some() || trial.join_next().await.is_some() {}
    assert_eq!(listed(), expected, "no honest key");
    assert_eq!(
        fleet.admin(2).get("/records?kind=list_entry")["records"],
        json!([own]),
        "an operator's entry stays as it is"
    );
    let mut audited: BTreeMap<String, usize> = BTreeMap::new();
    let (mut before, mut is_last) = (String::new(), false);
    while !is_last {
        let page = fleet.admin(0).get(&format!("/audit?limit=500{before}"));
        let entries = page["entries"].as_array().expect("a page");
        for entry in entries.iter().filter(|entry| entry["author"] == "tollgate") {
            *audited.entry(entry["subject"].as_str().expect("a text").to_owned()).or_default() += 1;
        }
        is_last = entries.len() < 500;
        before = entries
            .last()
            .map(|last| format!("&before={}", last["id"].as_str().expect("an id")))
            .unwrap_or_default();
    }
    assert_eq!(audited.len(), expected.len());
    assert!(audited.values().all(|count| *count == 1), "{audited:?}");
    (fleet, took)
}

#[tokio::test]
async fn abusive_keys_are_listed_once_by_three_instances_and_lifted_with_an_exemption() {
    let (fleet, _) = all_are_listed_once(60, 2_000, "duration: 1h, list_after: 1, mode: enforce").await;
    until("every instance holds the entries", 20, || {
        (0..3).all(|number| fleet.automatic(number).len() == 60)
    })
    .await;
    let entry = &fleet.automatic(0)["abusive-7"];
    assert_eq!(members(entry, ["mode", "rule", "level"]), json!(["enforce", "k", 1]));
    for number in 0..3 {
        until("every instance denies it", 20, || !fleet.is_limited(number, "abusive-7")).await;
    }
    let request = json!({"domain": "web", "descriptors": [k("abusive-7")]});
    let tried = fleet.admin(2).done("POST", "/try", &request, 200);
    assert_eq!((&tried["is_over_limit"], &tried["descriptors"][0]["listed"]), (&json!(true), entry));
    let path = format!("/records/{}", entry["key"].as_str().expect("a key"));
    let reason = json!({"reason": "our own crawler", "expires_in_s": 600});
    let exempt = fleet.admin(1).done("POST", &format!("{path}/exempt"), &reason, 200);
    assert_eq!(members(&exempt, ["mode", "reason"]), json!(["exempt", "our own crawler"]));
    for number in 0..3 {
        until("every instance applies its limit", 20, || fleet.is_limited(number, "abusive-7")).await;
        assert!(!fleet.is_limited(number, "abusive-8"));
    }
    assert_eq!(fleet.automatic(2)["abusive-7"], exempt);
    let latest = &fleet.admin(2).get("/audit?limit=1")["entries"][0];
    assert_eq!(latest["subject"], "deny web k=\"abusive-7\"");
    assert_eq!(latest["comment"], "lifted and exempt: our own crawler");
    assert_eq!(fleet.admin(0).request("DELETE", &path, None).0, 204);
    assert_eq!(fleet.admin(0).request("DELETE", &path, None).0, 404);
    let bans = fleet.admin(2).get("/bans?mode=enforce&limit=500");
    let is_of = |ban: &&Value| ban["descriptor"] == k("abusive-9");
    let ban = bans["bans"].as_array().expect("a page").iter().find(is_of).expect("listed");
    let ban = ban["id"].as_str().expect("an id");
    assert_eq!(fleet.admin(2).request("DELETE", &format!("/bans/{ban}"), None).0, 204);
    until("its entry ends with the ban", 20, || !fleet.automatic(0).contains_key("abusive-9")).await;
    let reset = json!({"domain": "web", "descriptor": k("abusive-10"), "reason": "by mistake"});
    fleet.admin(0).done("POST", "/counters/reset", &reset, 200);
    until("its entry ends with the ban", 20, || !fleet.automatic(1).contains_key("abusive-10")).await;
    for number in 0..3 {
        for freed in ["abusive-9", "abusive-10"] {
            until("every instance applies its limit", 20, || fleet.is_limited(number, freed)).await;
        }
    }
    let events = fleet.admin(1).get("/events");
    let is_listing = |event: &Value| event["kind"] == "abuse_listed" && event["rule"] == "k";
    assert!(events["events"].as_array().expect("a page").iter().any(is_listing), "{events}");
    let unknown = fleet.admin(0).post(&format!("/records/{}/exempt", "0".repeat(32)), &reason);
    assert_eq!(code(&unknown), (404, "not_found"));
}

/// `cargo test --test integration -- --ignored --nocapture api::abuse`
#[tokio::test]
#[ignore = "takes minutes"]
async fn a_thousand_abusive_keys_among_a_hundred_thousand_are_listed_and_all_entries_end() {
    let keys = "duration: 15s, max_duration: 30s, list_after: 2, mode: enforce";
    let (fleet, took) = all_are_listed_once(1_000, 99_000, keys).await;
    println!("1,000 of 100,000 keys listed in {took:?}");
    let ended = until("all entries end", 60, || fleet.automatic(0).is_empty()).await;
    println!("all ended {ended:?} later");
    until("limits decide again", 20, || (0..3).all(|number| fleet.is_limited(number, "abusive-7"))).await;
}
