//! Loans between regions through real servers.

use super::{peers::Mesh, *};

const LIMIT: u32 = 900;

/// Sends requests until a region has admitted `enough` hits, or many were sent. Returns the admitted hits.
async fn admit(mesh: &Mesh, at: usize, key: &str, enough: u32) -> u32 {
    let (mut client, mut admitted) = (mesh.get(at).client().await, 0);
    for attempt in 0..40 * LIMIT {
        let answer = client.call(request("d", &[&[(key, "one")]])).await.expect("an answer");
        admitted += u32::from(answer.overall_code() == Code::Ok);
        if admitted >= enough {
            break;
        }
        if attempt % 50 == 0 {
            // Loan requests take their time.
            sleep(Duration::from_millis(20)).await;
        }
    }
    admitted
}

/// All traffic is in one region, which borrows what the others do not use; then they need as much.
async fn move_to_one_region(mesh: &Mesh, key: &str) {
    mesh.wait_until_connected();
    let borrowed = admit(mesh, 2, key, LIMIT * 85 / 100).await;
    assert!(borrowed >= LIMIT * 85 / 100, "{key}: {borrowed} of {LIMIT}, with a share of a third");
    let mut sum = borrowed;
    for at in 0..3 {
        let mut client = mesh.get(at).client().await;
        for _ in 0..LIMIT {
            let answer = client.call(request("d", &[&[(key, "one")]])).await.expect("an answer");
            sum += u32::from(answer.overall_code() == Code::Ok);
        }
    }
    assert!(sum <= LIMIT, "{key}: {sum} of {LIMIT}");
    let page = http::get(&mesh.get(2).url("/metrics")).body;
    let granted =
        |line: &str| line.starts_with("tollgate_region_loan_requests_total{") && line.contains("granted");
    assert!(page.lines().any(|line| granted(line) && !line.ends_with(" 0")), "{page}");
}

#[tokio::test]
async fn a_region_with_all_traffic_borrows_from_the_others_and_nothing_is_over() {
    let mesh = Mesh::start([1, 1, 1]);
    for key in ["fixed", "sliding"] {
        move_to_one_region(&mesh, key).await;
    }
    let stores = [(); 3].map(|()| Redis::start());
    let urls = stores.each_ref().map(Redis::url);
    let flags = urls.each_ref().map(|url| ["--store", url, "--store-timeout", "5s"]);
    let mesh = Mesh::start_with([1, 1, 1], flags.each_ref().map(|flags| &flags[..]));
    move_to_one_region(&mesh, "fixed").await;
}

/// Ten hits in one region whose share is three or four, and then in another one, with one deadline for each.
async fn wait_for_shares(mesh: &Mesh, (at, other): (usize, usize), value: &str) {
    let mut admitted = 0;
    let mut client = mesh.get(at).client().await;
    let until = Instant::now() + Duration::from_secs(60);
    // One reply may be late on a busy machine, and hits in the pause after a failed loan request are denied at once.
    while admitted < 9 {
        assert!(Instant::now() < until, "{admitted} of 10 in {value}, with a share of 3 or 4");
        let answer = client.call_within(Duration::from_secs(10), request("d", &[&[("far", value)]])).await;
        match answer.is_ok_and(|answer| answer.overall_code() == Code::Ok) {
            true => admitted += 1,
            false => sleep(Duration::from_millis(100)).await,
        }
    }
    let mut client = mesh.get(other).client().await;
    for _ in 0..10 {
        let answer = client.call_within(Duration::from_millis(200), request("d", &[&[("far", value)]])).await;
        admitted += u32::from(answer.is_ok_and(|answer| answer.overall_code() == Code::Ok));
    }
    assert!((9..=10).contains(&admitted), "{admitted} of 10 in {value}");
}

#[tokio::test]
async fn a_hit_waits_for_the_shares_of_other_regions_within_its_deadline() {
    let redis = Redis::start();
    let url = redis.url();
    let mesh = Mesh::start_with([1, 1, 1], [&["--store", &url, "--store-timeout", "5s"], &[], &[]]);
    mesh.wait_until_connected();
    wait_for_shares(&mesh, (0, 1), "redis").await;
    wait_for_shares(&mesh, (1, 2), "memory").await;
}
