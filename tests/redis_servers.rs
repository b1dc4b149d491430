//! Metrics of each Redis server: memory, evictions, replication and clock, connections and breakers.

use crate::support::{cluster, prelude::*};

/// The samples that name a server, by metric and other labels.
fn samples(tollgate: &Tollgate, port: u16) -> BTreeMap<String, f64> {
    let label = format!("server=\"127.0.0.1:{port}\"}} ");
    let page = tollgate.metrics();
    let lines = page.lines().filter_map(|line| line.split_once(&label));
    lines
        .map(|(series, value)| {
            let name = series.trim_start_matches("tollgate_redis_").trim_end_matches(['{', ',']);
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// The samples of a server once its report is complete.
fn reported(tollgate: &Tollgate, port: u16) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    wait("no report of a server", || {
        found = samples(tollgate, port);
        found.contains_key("server_clock_offset_seconds")
    });
    found
}

#[test]
fn each_master_of_a_cluster_reports_its_memory_replication_and_clock() {
    let (cluster, config) = (cluster::shared(), rules(UNREACHED));
    let tollgate = Tollgate::start(config.path(), &["--store", &cluster.url(), "--store-timeout", "5s"]);
    for master in 0..3 {
        // A master counts its replica only after an acknowledgement, up to a second after the replica has followed.
        let online = "server_replicas{state=\"online\"";
        wait("a replica is not online", || {
            samples(&tollgate, cluster.port(master)).get(online) == Some(&1.0)
        });
        let found = reported(&tollgate, cluster.port(master));
        assert!(found["connections{state=\"up\""] >= 1.0, "{found:?}");
        assert_eq!(found["breakers_open"], 0.0, "{found:?}");
        // Megabytes, of a server that is nearly empty.
        assert!((5e5..1e9).contains(&found["server_memory_used_bytes"]), "{found:?}");
        assert_eq!((found["server_memory_max_bytes"], found["server_evicted_keys_total"]), (0.0, 0.0));
        assert!(found["server_replication_offset_bytes"] > 0.0, "{found:?}");
        let replicas =
            ["online", "syncing"].map(|state| found[&format!("server_replicas{{state=\"{state}\"")]);
        assert_eq!(replicas, [1.0, 0.0]);
        assert!(found["server_replication_lag_bytes"] <= found["server_replication_offset_bytes"]);
        assert!(found["server_replication_lag_seconds"] < 60.0, "{found:?}");
        // Both clocks are that of this machine, and half of the round trip is at most 0.25 s.
        assert!(found["server_clock_offset_seconds"].abs() < 0.3, "{found:?}");
    }
    // Replicas have no connection, and no series.
    assert_eq!(samples(&tollgate, cluster.port(3)), BTreeMap::new());
}

#[test]
fn a_full_server_reports_its_limit_and_its_evictions() {
    let (server, config) = (Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]), rules(UNREACHED));
    let (mut connection, max) = (server.connect(), server.figure("memory", "used_memory") + 1e6);
    cmd("CONFIG").arg("SET").arg("maxmemory").arg(max.to_string()).exec(&mut connection).expect("set");
    let mut number = 0_u32;
    while server.figure("stats", "evicted_keys") < 1.0 {
        number += 1;
        assert!(number < 1_000, "the server evicts nothing");
        cmd("SET").arg(number).arg("x".repeat(100_000)).exec(&mut connection).expect("set");
    }
    let before = server.figure("stats", "evicted_keys");
    let url = server.url();
    let arguments = ["--store", &url, "--store-timeout", "5s", "--redis-server-metrics=false"];
    let without = Tollgate::start(config.path(), &arguments);
    let tollgate = Tollgate::start(config.path(), &arguments[..4]);
    let found = reported(&tollgate, server.port());
    let after = server.figure("stats", "evicted_keys");
    // Those of before the first reading are not counted.
    assert!((0.0..=after - before).contains(&found["server_evicted_keys_total"]), "{found:?}");
    assert_eq!(found["server_memory_max_bytes"], max);
    assert!(found["server_memory_used_bytes"] > max / 4.0, "{found:?}");
    assert!(!found.contains_key("server_replication_lag_bytes"), "it has no replica: {found:?}");
    // It was connected before.
    let unsampled = samples(&without, server.port());
    assert!(unsampled.keys().all(|name| !name.starts_with("server_")), "{unsampled:?}");
    assert!(unsampled["connections{state=\"up\""] >= 1.0, "{unsampled:?}");
}

#[test]
fn a_server_that_refuses_info_is_logged_once_and_has_no_report() {
    let (server, url) = Redis::lacking("info");
    let arguments = ["--store", &url, "--store-timeout", "5s", "--workers", "2"];
    let tollgate = Tollgate::logging(UNREACHED, &arguments);
    tollgate.wait_for_log("Redis refused INFO");
    let found = samples(&tollgate, server.port());
    assert!(found.keys().all(|name| !name.starts_with("server_")), "{found:?}");
    assert!(found["connections{state=\"up\""] >= 2.0, "{found:?}");
    assert_eq!(tollgate.logged("Redis refused INFO").len(), 1);
}
