//! `sync: auto`: leases of hot counters.

use super::{super::demand, *};

fn auto(limit: u32) -> TagRequest {
    one(policy(Algorithm::FixedWindow, limit), 1, SyncMode::Auto)
}

/// Sends requests at a constant rate for `millis` milliseconds from `from`, and returns the number of calls that were sent.
fn send(server: &mut Server, request: &TagRequest, per_second: u64, from: u64, millis: u64) -> usize {
    let sent = server.sent;
    for number in 0..per_second * millis / 1_000 {
        assert!(server.admits(request, from + number * 1_000 / per_second));
    }
    server.sent - sent
}

#[test]
fn a_hot_counter_is_leased_and_a_cool_one_is_not() {
    let mut server = Server::new();
    let request = auto(1_000_000);
    let per_second = u64::from(demand::HOT_REQUESTS);
    // Windows of a minute begin at 30 s.
    assert_eq!(
        send(&mut server, &request, per_second / 2, 0, 3_000),
        3 * per_second as usize / 2,
        "never hot"
    );
    assert!(send(&mut server, &request, 10 * per_second, 3_000, 2_000) < 4 * per_second as usize, "hot");
    assert!(
        send(&mut server, &request, per_second * 2 / 3, 5_000, 3_000) < per_second as usize,
        "still warm"
    );
    let cool_at = 8_000 + demand::COOLING_TIME.as_millis() as u64;
    assert_eq!(send(&mut server, &request, 5, cool_at, 3_000), 15, "cool");
}

#[test]
fn tokens_of_a_cooled_counter_are_refunded() {
    let mut server = Server::new();
    send(&mut server, &auto(1_000_000), 1_000, 0, 1_000);
    let charged = u64::from(count(&server.states[0]));
    assert!(charged > 1_000, "{charged}");
    assert_eq!(server.local.held_hits(&auto(1_000_000), server.at(1_000)), charged - 1_000, "shown");
    assert_eq!(server.local.held_hits(&auto(1_000_000), server.at(1_500)), 0, "expired");
    let UnusedTokens { requests, has_more, .. } = server.local.take_unused(server.at(1_500));
    let refunded = refunded(&requests);
    assert_eq!((charged - refunded, has_more), (1_000, false));
}

#[test]
fn a_hot_counter_near_its_limit_is_strict() {
    let (mut server, request) = (Server::new(), auto(10_000));
    send(&mut server, &request, 1_000, 0, 9_000);
    let sent = send(&mut server, &request, 1_000, 9_000, 900);
    // The tokens of the last lease were charged while more remained.
    assert!((500..=900).contains(&sent), "{sent}");
    let leased = one(policy(Algorithm::FixedWindow, 10_000), 1, SyncMode::Leased);
    let mut server = Server::new();
    send(&mut server, &leased, 1_000, 0, 9_000);
    let sent_leased = send(&mut server, &leased, 1_000, 9_000, 900);
    assert!(sent_leased < sent - 100, "unlike a leased one: {sent_leased}, {sent}");
}

#[test]
fn a_hot_counter_is_charged_ahead_only_if_all_counters_of_the_request_are() {
    let policy = policy(Algorithm::FixedWindow, 1_000_000);
    for (sync, beside) in [
        (SyncMode::Auto, SyncMode::Strict),
        (SyncMode::Leased, SyncMode::Strict),
        (SyncMode::Auto, SyncMode::Auto),
        (SyncMode::Auto, SyncMode::Leased),
    ] {
        let mut server = Server::new();
        let both = request(
            Charging::Independent,
            [check(0, policy, Hits::ONE, sync), check(1, policy, Hits::ONE, beside)],
        );
        let sent = send(&mut server, &both, 1_000, 0, 2_000);
        let charged = count(&server.states[0]);
        match beside {
            SyncMode::Strict => assert_eq!((sent, charged), (2_000, 2_000), "{sync:?}, {beside:?}"),
            _ => assert!(sent < 500 && charged < 2_200, "{sync:?}, {beside:?}: {sent}, {charged}"),
        }
    }
}

#[test]
fn cold_counters_take_no_memory() {
    let mut cache = CounterCache::default();
    let now = Instant::now();
    let check = check(0, policy(Algorithm::FixedWindow, 1_000_000), Hits::ONE, SyncMode::Auto);
    let (mut requested, mut entries) = (0_u64, 0);
    for second in 0..5 {
        for number in 0..20_000_u64 {
            let request = request_of(number, check);
            let at = now + Duration::from_micros(second * 1_000_000 + number * 50);
            cache.record_demand(&request, at);
            requested += 1;
            let cell = &request.cells[0];
            entries += u64::from(second == 4 && cache.may_be_leased(cell, &check));
        }
    }
    assert!(entries < 400, "{entries} of 20,000 counters with a request a second each of {requested}");
}

#[test]
fn a_denial_of_a_warm_counter_is_cached_for_a_shorter_time() {
    for (requests, valid_millis) in [(1, 500), (60, 20)] {
        let mut server = Server::new();
        let request = auto(requests);
        server.admit_all(&request, (0..requests).map(|_| 0));
        assert!(!server.admits(&request, 0));
        let sent = server.sent;
        assert!(!server.admits(&request, valid_millis - 1));
        assert_eq!(server.sent, sent, "{requests}");
        assert!(!server.admits(&request, valid_millis));
        assert_eq!(server.sent, sent + 1, "{requests}");
    }
}
