use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn breaker() -> (Breaker, Instant) {
    (Breaker::new(Server::new("a_server_of_the_breakers_tests"), MILLI * 10), Instant::now())
}

/// Ticks every millisecond, for `millis` of them at most; returns the first event and its time.
fn next_event(
    breaker: &mut Breaker,
    from: Instant,
    millis: u32,
    is_awaited: bool,
) -> Option<(BreakerEvent, u32)> {
    let events = (0..=millis).map(|after| (breaker.tick(from + MILLI * after, is_awaited), after));
    events.into_iter().find(|(event, _)| *event != BreakerEvent::Unchanged)
}

#[test]
fn silence_opens_it_and_any_response_closes_it() {
    let (mut breaker, started) = breaker();
    assert_eq!(next_event(&mut breaker, started, 500, true), Some((BreakerEvent::OutageBegan, 100)));
    assert_eq!(breaker.cause(), Some(OpenCause::Silence));
    // The breaker stays open without a response, and the outage is logged once.
    assert_eq!(next_event(&mut breaker, started + MILLI * 100, 5_000, true), None);
    breaker.responded(started + MILLI * 6_000);
    assert_eq!(breaker.cause(), None);
    assert_eq!(
        next_event(&mut breaker, started + MILLI * 6_000, 2_000, false),
        Some((BreakerEvent::OutageEnded, 1_000))
    );
    assert_eq!(next_event(&mut breaker, started + MILLI * 9_000, 2_000, false), None);
}

#[test]
fn a_long_timeout_tolerates_a_long_silence() {
    let started = Instant::now();
    let mut breaker = Breaker::new(Server::new("a_server_of_the_breakers_tests"), MILLI * 300);
    assert_eq!(next_event(&mut breaker, started, 500, true), Some((BreakerEvent::OutageBegan, 300)));
}

#[test]
fn repeatedly_late_responses_are_not_silence() {
    let (mut breaker, started) = breaker();
    for turn in 0..50 {
        let started = started + MILLI * 90 * turn;
        assert_eq!(next_event(&mut breaker, started, 89, true), None);
        breaker.responded(started + MILLI * 89);
    }
}

#[test]
fn time_without_requests_is_not_silence() {
    let (mut breaker, started) = breaker();
    assert_eq!(next_event(&mut breaker, started, 90, true), None);
    breaker.responded(started + MILLI * 90);
    assert_eq!(next_event(&mut breaker, started + MILLI * 91, 5_000, false), None);
    // Time without ticks does not count either.
    assert_eq!(next_event(&mut breaker, started + MILLI * 60_000, 50, true), None);
}

#[test]
fn suspension_of_this_process_is_not_silence() {
    let (mut breaker, started) = breaker();
    assert_eq!(breaker.tick(started, true), BreakerEvent::Unchanged);
    assert_eq!(breaker.tick(started + MILLI * 30_000, true), BreakerEvent::Unchanged);
    assert_eq!(breaker.cause(), None);
}

#[test]
fn a_repeatedly_silent_server_is_logged_once() {
    let (mut breaker, started) = breaker();
    assert_eq!(next_event(&mut breaker, started, 500, true), Some((BreakerEvent::OutageBegan, 100)));
    let mut now = started + MILLI * 600;
    for _ in 0..10 {
        breaker.responded(now);
        assert_eq!(next_event(&mut breaker, now, 500, true), Some((BreakerEvent::Reopened, 100)));
        now += MILLI * 600;
    }
    breaker.disconnected();
    assert_eq!(breaker.cause(), Some(OpenCause::Disconnected));
    assert_eq!(next_event(&mut breaker, now, 5_000, true), None);
    // A new connection is not sufficient.
    assert!(breaker.reconnected());
    assert_eq!(breaker.cause(), Some(OpenCause::Silence));
    breaker.responded(now);
    assert!(!breaker.reconnected());
    assert_eq!(next_event(&mut breaker, now, 5_000, false), Some((BreakerEvent::OutageEnded, 1_000)));
}

#[test]
fn a_lost_connection_opens_it_without_a_log_event() {
    let (mut breaker, started) = breaker();
    breaker.disconnected();
    assert_eq!(breaker.cause(), Some(OpenCause::Disconnected));
    assert_eq!(next_event(&mut breaker, started, 5_000, true), None);
    assert!(!breaker.reconnected());
    breaker.responded(started);
    assert_eq!((breaker.cause(), next_event(&mut breaker, started, 5_000, false)), (None, None));
}
