//! Redis with Sentinel.

use std::sync::LazyLock;

use super::*;
use crate::support::sentinel::{self, MASTER, Options, Sentinel};

#[tokio::test]
async fn a_dead_sentinel_does_not_matter_and_an_unknown_master_is_an_error() {
    let group = sentinel::shared();
    let url = format!("redis+sentinel://127.0.0.1:1,{}/{MASTER}?db=1", group.addresses());
    let store = connected(&url, "dead_sentinel:").await;
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    let mut other = group.server(0);
    cmd("SELECT").arg(1).exec(&mut other).expect("selected");
    let keys: usize = cmd("EXISTS").arg("dead_sentinel:{test|name=a}").query(&mut other).expect("a reply");
    assert_eq!(keys, 1, "the database is not the one of the URL");

    let url = format!("redis+sentinel://{}/unknown", group.addresses());
    let settings = settings(&url);
    let store = open(&settings);
    let error = charge(&store, &one("a", Hits::ONE)).await.expect_err("there is no such master");
    assert!(error.to_string().contains("no master named unknown"), "{error}");
}

#[tokio::test]
async fn the_program_is_ready_and_decides() {
    program_decides(&sentinel::shared().url()).await;
}

/// Whether a server has decided anything itself.
fn decides(server: &mut redis::Connection) -> bool {
    let reply = cmd("INFO").arg("commandstats").query::<String>(server);
    reply.is_ok_and(|reply| reply.contains("cmdstat_evalsha:"))
}

/// Exactly the permissions that the documentation lists for the users.
static GUARDED: LazyLock<Options> = LazyLock::new(|| Options {
    server: guarded("app-redis", &["role"]).leak(),
    sentinel: "user app on >app-sentinel -@all +sentinel|get-master-addr-by-name +sentinel|master\n\
               sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 4000",
    password: "admin-redis",
    sentinel_password: "admin-sentinel",
});

#[tokio::test]
async fn failovers_are_followed_with_minimal_permissions() {
    let mut group = Sentinel::start(*GUARDED);
    let url = format!(
        "redis+sentinel://app:app-redis@{}/{MASTER}?sentinel_username=app&sentinel_password=app-sentinel",
        group.addresses()
    );
    let store = connected(&url, "guarded:").await;
    let calls = Requests::start(&store, "a");

    until("no failover begins", async || {
        let begun = cmd("SENTINEL").arg("FAILOVER").arg(MASTER).exec(&mut group.sentinel());
        begun.is_ok() || begun.is_err_and(|error| error.to_string().contains("INPROG"))
    })
    .await;
    until("no replica is promoted", async || group.is_master(1)).await;
    let promoted = Instant::now();
    // Until the sentinels demote the old master, it decides as before.
    until("the new master is not verified", async || decides(&mut group.server(1))).await;
    let took = promoted.elapsed();
    recovered(&store, "b", promoted).await;
    println!("SENTINEL FAILOVER: decides again {took:?} after the promotion");
    until("the old master does not follow", async || {
        let mut replicas = cmd("SENTINEL");
        let reply: Vec<Vec<String>> =
            replicas.arg("REPLICAS").arg(MASTER).query(&mut group.sentinel()).expect("a reply");
        let fact = |name| reply[0].iter().skip_while(|word| *word != name).nth(1).map(String::as_str);
        !group.is_master(0)
            && (fact("master-link-status"), fact("flags"), fact("role-reported"))
                == (Some("ok"), Some("slave"), Some("slave"))
    })
    .await;
    recovered(&store, "b", Instant::now()).await;

    group.kill_sentinel(2);
    group.kill(1);
    until("no replica is promoted", async || group.is_master(0)).await;
    let promoted = Instant::now();
    let took = recovered(&store, "b", promoted).await;
    println!("Sentinel, master killed: decides again {took:?} after the promotion");
    let results = calls.end().await;
    let answered = results.iter().filter(|result| result.is_ok()).count();
    assert!(answered > 100, "{answered}");
    // What the old master decided after the promotion is lost; nothing is counted twice.
    assert_counted(&store, "a", &results, answered as u64).await;
}
