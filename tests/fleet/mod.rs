//! Sums over all instances, events and webhooks.

mod receiver;

use tollgate::clock::now_ms;
use tollgate::control::{
    EventKind, FleetRound, LoggedEvent, Occasion, OperatorEvent, RulesSource, Totals, log_events,
};

use self::receiver::Receiver;
use crate::docs::block;
use crate::support::{cluster, prelude::*};

const RULES: &str =
    "domain: edge\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 10}}\n";

fn control(url: &str, prefix: &str) -> Control {
    let settings =
        RedisSettings { key_prefix: prefix.to_owned(), timeout: Duration::from_secs(5), ..settings(url) };
    Control::redis(RulesSource::Directory, &settings).expect("valid settings")
}

fn event(key: &str) -> OperatorEvent {
    OperatorEvent {
        kind: EventKind::RampRolledBack,
        domain: "edge".to_owned(),
        rule: None,
        key: Some(key.to_owned()),
        message: "A test.".to_owned(),
        figures: vec![("hits_per_second", 7)],
        occasion: None,
    }
}

fn api(tollgate: &Tollgate, path: &str) -> Value {
    tollgate.api(&format!("/{path}"))
}

fn send(tollgate: &Tollgate, value: &str, hits: u32) {
    send_key(tollgate, "k", value, hits);
}

fn send_key(tollgate: &Tollgate, key: &str, value: &str, hits: u32) {
    let json = format!(
        r#"{{"domain":"edge","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}],"hitsAddend":{hits}}}"#
    );
    tollgate.post(&json);
}

/// Hits of each key, if none of them may belong to another key.
fn exact(talkers: &Value) -> Option<BTreeMap<String, u64>> {
    let talker = |talker: &Value| {
        let key = talker["key"].as_str()?.to_owned();
        (talker["error"] == 0).then_some((key, talker["hits"].as_u64()?))
    };
    talkers.as_array()?.iter().map(talker).collect()
}

/// Waits until the heaviest keys of the fleet are as requested, by an instance.
async fn assert_fleet_is_whole(instance: &Tollgate, requested: &BTreeMap<String, u64>) {
    let is_whole = |top: &Value| {
        let edge = &top["domains"][0];
        exact(&edge["heaviest"]).as_ref() == Some(requested)
            && exact(&edge["denied"]).is_some_and(|found| found["k=a"] == 48_000)
    };
    let top = read_until(async || api(instance, "top?domain=edge&limit=100"), is_whole).await;
    let statuses: Vec<&Value> =
        top["instances"].as_array().expect("instances").iter().map(|one| &one["status"]).collect();
    assert!(statuses.len() == 3 && statuses.iter().all(|status| **status == "included"), "{top}");
    assert_eq!(top["scope"], "fleet");
}

#[tokio::test]
async fn top_talkers_of_three_instances_are_their_sum_and_one_exports_the_rates() {
    let (config, redis) = (rules(RULES), Redis::start());
    let arguments = ["--store", &redis.url(), "--store-timeout", "5s"];
    let instances = [0; 3].map(|_| Tollgate::spawn(config.path(), &arguments));
    instances.iter().for_each(Tollgate::wait_until_ready);
    let mut requested = BTreeMap::new();
    for (at, instance) in (1_u32..).zip(&instances) {
        for (value, hits) in [("a", 8_000 * at), ("b", 3 * at), (["x", "y", "z"][at as usize - 1], 20)] {
            send(instance, value, hits);
            *requested.entry(format!("k={value}")).or_insert(0) += u64::from(hits);
        }
    }
    for instance in &instances {
        assert_fleet_is_whole(instance, &requested).await;
    }
    let own = api(&instances[0], "top?scope=instance");
    assert_eq!(own["instances"].as_array().map(Vec::len), Some(1));
    assert_eq!(exact(&own["domains"][0]["heaviest"]).expect("exact")["k=a"], 8_000);

    // A heartbeat without a report is that of an older release.
    let older = control(&redis.url(), "");
    let _reconciler = tollgate::control::Reconciler::start(
        &older,
        tollgate::control::RulesStatus::default(),
        Arc::<tollgate::limiter::ActiveRules>::default(),
        None,
        Vec::new,
    );
    let missing = |top: &Value| {
        let instances = top["instances"].as_array().expect("instances").iter();
        instances.filter(|one| one["status"] == "missing").map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    read_until(async || missing(&api(&instances[0], "top")), |missing| *missing == [older.instance()]).await;

    let rate = |instance: &Tollgate| -> Option<f64> {
        let page = instance.metrics();
        let prefix = "tollgate_heaviest_key_hits_per_second{domain=\"edge\"} ";
        page.lines().find_map(|line| line.strip_prefix(prefix)?.parse().ok())
    };
    let exported = async || {
        send(&instances[0], "a", 1_000);
        instances.iter().filter_map(rate).collect::<Vec<_>>()
    };
    // That of the last complete window.
    let rates = read_until(exported, |rates| rates.iter().any(|rate| *rate > 0.0)).await;
    assert_eq!(rates.len(), 1, "one instance exports the rates: {rates:?}");
}

#[tokio::test]
async fn without_redis_an_instance_reports_itself_alone() {
    let redis = Redis::start();
    let tollgate = Tollgate::serving(RULES, &["--store", &redis.url(), "--on-store-error", "local"]);
    drop(redis);
    send(&tollgate, "a", 7);
    let is_own = |top: &Value| top["scope"] == "instance" && top["domains"][0]["heaviest"][0]["hits"] == 7;
    let top = read_until(async || api(&tollgate, "top"), is_own).await;
    assert!(top["problem"].as_str().is_some_and(|problem| problem.contains("unavailable")), "{top}");
    let history = api(&tollgate, "history");
    assert_eq!(
        (&history["scope"], history["instances"].as_array().map(Vec::len)),
        (&"instance".into(), Some(1))
    );
}

/// Totals, the lease and events of two instances on one store.
async fn share(first: &Control, second: &Control) {
    // Totals are sums of all instances, by interval, and one holds the lease.
    let totals = |pairs: &[(&str, u64)]| -> Totals {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
    };
    let lifetime = Duration::from_secs(60);
    let round = async |control: &Control, totals: &[(u64, Totals)], lease_lifetime| {
        let round = FleetRound { report: "{}".to_owned(), totals, totals_lifetime: lifetime, lease_lifetime };
        control.fleet_round(round).await.expect("a reply").is_leader
    };
    let short = Duration::from_millis(20);
    assert!(round(first, &[(7, totals(&[("a", 1), ("b", 2)]))], lifetime).await);
    assert!(!round(second, &[(7, totals(&[("a", 10)])), (9, totals(&[("c", 5)]))], lifetime).await);
    assert!(round(first, &[], short).await);
    let _ = read_until(async || round(second, &[], lifetime).await, |leads| *leads).await;
    assert!(!round(first, &[], lifetime).await);
    let expected = [totals(&[("a", 11), ("b", 2)]), totals(&[]), totals(&[("c", 5)])];
    assert_eq!(first.totals(7..10).await.expect("totals"), expected);

    // Each raises the same events; the log has each once, in order, until it is delivered.
    let _logging: Vec<_> = [first, second]
        .map(|control| tokio_util::task::AbortOnDropHandle::new(tokio::spawn(log_events(control.clone()))))
        .into();
    let keys = |events: Vec<LoggedEvent>| -> Vec<String> {
        events.into_iter().filter_map(|event| event.key).collect()
    };
    for key in ["1", "2", "3"] {
        first.raise_event(event(key));
        second.raise_event(event(key));
        let count: usize = key.parse().expect("a number");
        read_until(async || keys(first.events(None, 10).await.expect("events")), |keys| keys.len() == count)
            .await;
    }
    let undelivered = first.undelivered_events(2, now_ms()).await.expect("events");
    assert_eq!(keys(undelivered.clone()), ["1", "2"]);
    first.event_delivered(&undelivered[1].id).await.expect("recorded");
    assert_eq!(keys(second.undelivered_events(10, now_ms()).await.expect("events")), ["3"]);
    let newest = second.events(None, 1).await.expect("events");
    assert_eq!(keys(second.events(Some(&newest[0].id), 10).await.expect("events")), ["2", "1"]);
    // Of another occasion.
    let occasion = Occasion { id: "window 7".to_owned(), lifetime: Duration::from_secs(60) };
    first.raise_event(OperatorEvent { occasion: Some(occasion), ..event("3") });
    read_until(async || first.events(None, 10).await.expect("events").len(), |count| *count == 4).await;
}

#[tokio::test]
async fn events_of_a_newer_release_hide_no_others() {
    let redis = Redis::start();
    let control = control(&redis.url(), "");
    let _logging = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(log_events(control.clone())));
    control.raise_event(event("known"));
    read_until(async || control.events(None, 1).await.expect("events").len(), |count| *count == 1).await;
    for _ in 0..3 {
        let mut newer = cmd("XADD");
        newer.arg("{tollgate-rules}:events").arg("*").arg("event").arg("{\"kind\": 7}");
        newer.query::<String>(&mut redis.connect()).expect("added");
    }
    for limit in [1, 2, 10] {
        let events = control.events(None, limit).await.expect("events");
        assert_eq!(events.len(), 1, "of {limit}");
    }
    // Nor do they keep those behind them from the webhook.
    let first = control.undelivered_events(1, now_ms()).await.expect("events");
    control.event_delivered(&first[0].id).await.expect("recorded");
    control.raise_event(event("behind"));
    read_until(async || control.events(None, 2).await.expect("events").len(), |count| *count == 2).await;
    for limit in [1, 2, 10] {
        let events = control.undelivered_events(limit, now_ms()).await.expect("events");
        assert_eq!(events[0].key.as_deref(), Some("behind"), "of {limit}");
    }
}

#[tokio::test]
async fn instances_share_totals_leases_and_events_in_redis_and_in_a_cluster() {
    let redis = Redis::start();
    share(&control(&redis.url(), ""), &control(&redis.url(), "")).await;
    let url = cluster::shared().url();
    share(&control(&url, "fleet:shared:"), &control(&url, "fleet:shared:")).await;
    // Nothing stays for ever.
    let mut connection = redis.connect();
    let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut connection).expect("keys");
    assert!(keys.len() >= 6, "{keys:?}");
    for key in keys {
        let ttl: i64 = cmd("PTTL").arg(&key).query(&mut connection).expect("a time");
        assert!(ttl > 0, "{key} has no end");
    }
}

#[tokio::test]
async fn a_webhook_gets_each_event_once_from_three_instances_though_it_fails_half_of_the_time() {
    let (config, redis) = (rules(RULES), Redis::start());
    let receiver = Receiver::start(|number| number % 2 == 1);
    let secret = "a secret of a webhook";
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), secret).expect("written");
    let url = format!("http://127.0.0.1:{}/hooks/open-sesame-20-bytes?token=1", receiver.port);
    let instance = |()| {
        let arguments = ["--store", &redis.url(), "--log-level", "trace", "--webhook-url", &url];
        let secret_file = ["--webhook-secret-file", file.path().to_str().expect("UTF-8")];
        Tollgate::spawn_logging(command(), config.path(), &[&arguments[..], &secret_file].concat())
    };
    let instances = [(); 3].map(instance);
    instances.iter().for_each(Tollgate::wait_until_ready);
    let controls = [0; 3].map(|_| control(&redis.url(), ""));
    let _logging = controls
        .each_ref()
        .map(|control| tokio_util::task::AbortOnDropHandle::new(tokio::spawn(log_events(control.clone()))));
    for key in ["1", "2", "3"] {
        controls.iter().for_each(|control| control.raise_event(event(key)));
    }
    let accepted =
        || receiver.received().into_iter().filter(|request| request.is_accepted).collect::<Vec<_>>();
    read_until(async || accepted().len(), |count| *count >= 3).await;
    // Time for one that would be sent again.
    sleep(Duration::from_millis(1_500)).await;
    let (all, accepted) = (receiver.received(), accepted());
    assert_eq!((all.len(), accepted.len()), (6, 3), "{all:#?}");
    let logged = api(&instances[0], "events")["events"].as_array().expect("events").clone();
    let bodies: Vec<Value> =
        accepted.iter().rev().map(|request| serde_json::from_str(&request.body).expect("JSON")).collect();
    assert_eq!(bodies, logged, "in order, and as the log has them");
    for request in &all {
        assert_eq!(request.path, "/hooks/open-sesame-20-bytes?token=1");
        let id = serde_json::from_str::<Value>(&request.body).expect("JSON")["id"].clone();
        assert_eq!(Value::from(&*request.headers["tollgate-event-id"]), id);
        assert!(is_genuine(secret, request), "{request:?}");
        let forged = receiver::Delivery { body: request.body.replace('7', "8"), ..request.clone() };
        assert!(!is_genuine(secret, &forged));
    }
    let logs: String = instances.iter().map(Tollgate::log).collect();
    assert!(logs.contains("webhook receiver failed"), "{logs}");
    assert!(!logs.contains("sesame") && !logs.contains(secret), "a secret is in a log");
}

#[tokio::test]
async fn each_used_share_of_a_limit_is_delivered_once_from_three_instances_to_a_receiver_that_fails_half_of_the_time()
 {
    const LIMITS: &str = "domain: edge\ndescriptors:\n\
        - {key: k, rate_limit: {unit: year, requests_per_unit: 1000, notify: [50%, 80%, 100%]}}\n\
        - {key: leased, rate_limit: {unit: year, requests_per_unit: 1000, sync: leased, notify: [50%, 1000%]}}\n";
    let (config, redis) = (rules(LIMITS), Redis::start());
    let receiver = Receiver::start(|number| number % 2 == 1);
    let url = format!("http://127.0.0.1:{}/", receiver.port);
    let arguments = ["--store", &redis.url(), "--store-timeout", "5s", "--webhook-url", &url];
    let instances = [0; 3].map(|_| Tollgate::spawn(config.path(), &arguments));
    instances.iter().for_each(Tollgate::wait_until_ready);
    // Each hit is decided by another instance, and each instance sees every share used.
    for (at, instance) in (0..10).flat_map(|_| &instances).enumerate() {
        send(instance, "a", if at < 20 { 50 } else { 1 });
        send(instance, "skipping", if at == 7 { 5_000 } else { 1 });
    }
    for hits in [400, 200] {
        send_key(&instances[0], "leased", "l", hits);
    }
    let shares_of = |key: &'static str| [50, 80, 100].map(|percent| (key.to_owned(), percent));
    let mut expected: BTreeSet<(String, u64)> =
        ["k=a", "k=skipping"].into_iter().flat_map(shares_of).collect();
    expected.insert(("leased=l".to_owned(), 50));
    let accepted = || -> Vec<Value> {
        let received = receiver.received().into_iter().filter(|request| request.is_accepted);
        received.map(|request| serde_json::from_str(&request.body).expect("JSON")).collect()
    };
    let share = |event: &Value| {
        let key = event["key"].as_str().expect("a key").to_owned();
        (key, event["figures"]["threshold_percent"].as_u64().expect("a number"))
    };
    let have = |found: &[Value], expected: &BTreeSet<(String, u64)>| {
        expected.is_subset(&found.iter().map(share).collect())
    };
    read_until(async || accepted(), |found| have(found, &expected)).await;
    // Further hits raise nothing; the last events follow whatever they raise.
    for instance in &instances {
        send(instance, "a", 1);
    }
    send(&instances[1], "last", 5_000);
    expected.extend(shares_of("k=last"));
    read_until(async || accepted(), |found| have(found, &expected)).await;
    let mut found: Vec<_> = accepted().iter().map(share).collect();
    found.sort();
    assert_eq!(found, Vec::from_iter(expected));
    for event in accepted() {
        assert_eq!(event["kind"], "threshold_reached");
        let figures = &event["figures"];
        let (used, limit) = (figures["used_hits"].as_u64(), figures["limit_hits"].as_u64());
        assert_eq!((limit, figures["window_seconds"].as_u64()), (Some(1_000), Some(31_536_000)));
        assert!(used >= figures["threshold_percent"].as_u64().map(|percent| percent * 10), "{event}");
    }
}

/// Whether a request is genuine, by the documented receiver.
fn is_genuine(secret: &str, request: &receiver::Delivery) -> bool {
    let headers: BTreeMap<String, &String> = request
        .headers
        .iter()
        .filter(|(name, _)| name.starts_with("tollgate-"))
        .map(|(name, value)| {
            let capital = |part: &str| part[..1].to_uppercase() + &part[1..];
            (name.split('-').map(capital).collect::<Vec<_>>().join("-"), value)
        })
        .collect();
    let input = serde_json::json!({ "secret": secret, "headers": headers, "body": request.body });
    let program = block("python")
        + "\nimport json, sys\ninput = json.load(sys.stdin)\n\
           is_right = is_genuine(input['secret'].encode(), input['headers'], input['body'].encode())\n\
           print('genuine' if is_right else 'forged')\n";
    let mut python = Command::new("python3");
    let ended = ended_with(python.args(["-B", "-c", &program]), input.to_string());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout.trim() == "genuine"
}

#[test]
fn an_event_has_the_documented_fields() {
    let fields = |value: &Value| -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let documented: Value = serde_json::from_str(&block("json event")).expect("JSON");
    let event: LoggedEvent = serde_json::from_value(documented.clone()).expect("an event");
    assert_eq!(fields(&serde_json::to_value(&event).expect("JSON")), fields(&documented));
    assert!(EventKind::ALL.iter().any(|kind| kind.name() == event.kind));
    let guide = fs::read_to_string(project("docs/guides/events.md")).expect("a text");
    for kind in EventKind::ALL {
        let name = format!("`{}`", kind.name());
        let has_row = guide.lines().any(|line| line.starts_with("| `") && line.contains(&name));
        assert!(has_row, "{kind:?} is not documented");
    }
}
