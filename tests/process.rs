//! Starting and stopping.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::support::{
    http,
    tollgate::{Tollgate, command, request, rules},
};

const RULES: &str =
    "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 4000000000}\n";

#[tokio::test]
async fn a_first_signal_loses_no_answer_and_ends_with_success() {
    let config = rules(RULES);
    let mut tollgate = Tollgate::start(config.path(), &[]);
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let mut client = tollgate.client().await;
        clients.spawn(async move {
            for sent in 0_u32.. {
                // A connection that is told to go away refuses new calls; it must not fail one that it took.
                match client.call(request("d", &[&[("k", "v")]])).await {
                    Ok(_) => {}
                    Err(error) => return (sent, error),
                }
            }
            unreachable!("the server stops")
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    tollgate.signal("TERM");
    for (sent, error) in clients.join_all().await {
        assert!(sent > 0, "nothing was answered before: {error}");
        // Calls that the server never took: the connection was closed, or could not be opened again.
        assert!(matches!(error.code(), tonic::Code::Unavailable | tonic::Code::Unknown), "{error:?}");
        assert!(!error.message().contains("reset"), "a call that was taken got no answer: {error:?}");
    }
    assert_eq!(tollgate.wait(), Some(0));
}

#[test]
fn bad_rules_stop_the_start_with_the_report() {
    let config =
        rules("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: fortnight, requests_per_unit: 1}\n");
    let output = command().arg("serve").arg("--config").arg(config.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.contains("rules.yaml:4") && report.contains("fortnight"), "{report}");
}

#[test]
fn without_rules_it_can_start_and_becomes_ready_with_them() {
    let config = rules("domain: [");
    let tollgate = Tollgate::spawn(config.path(), &["--start-without-rules"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = http::try_get(&tollgate.url("/healthcheck")) {
            assert_eq!(answer.status, 500);
            break;
        }
        assert!(Instant::now() < deadline, "it does not listen");
    }
    let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
    assert_eq!(http::post(&tollgate.url("/json"), json).status, 503);
    fs::write(config.path().join("rules.yaml"), RULES).expect("writable");
    tollgate.wait_until_ready();
    assert_eq!(http::post(&tollgate.url("/json"), json).status, 200);
}

#[test]
fn an_unknown_variable_of_ours_stops_the_start_with_its_name() {
    let output = command().env("TOLLGATE_GRPC_ADRESS", "1").arg("serve").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("TOLLGATE_GRPC_ADRESS"));
}
