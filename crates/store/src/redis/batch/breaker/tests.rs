use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn breaker() -> (Breaker, Instant) {
    (Breaker::new(MILLI * 10), Instant::now())
}

/// Looks each millisecond until something changes, for so many of them; tells what and after how many.
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
fn silence_opens_it_and_any_answer_closes_it() {
    let (mut breaker, started) = breaker();
    assert_eq!(next_event(&mut breaker, started, 500, true), Some((BreakerEvent::OutageBegan, 100)));
    assert_eq!(breaker.cause(), Some(OpenCause::Silence));
    // It stays so for as long as nothing is heard, and is told once.
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
fn a_long_timeout_means_much_patience() {
    let started = Instant::now();
    let mut breaker = Breaker::new(MILLI * 300);
    assert_eq!(next_event(&mut breaker, started, 500, true), Some((BreakerEvent::OutageBegan, 300)));
}

#[test]
fn answers_that_are_late_again_and_again_are_not_silence() {
    let (mut breaker, started) = breaker();
    for turn in 0..50 {
        let started = started + MILLI * 90 * turn;
        assert_eq!(next_event(&mut breaker, started, 89, true), None);
        breaker.responded(started + MILLI * 89);
    }
}

#[test]
fn what_is_not_owed_is_not_missed() {
    let (mut breaker, started) = breaker();
    assert_eq!(next_event(&mut breaker, started, 90, true), None);
    breaker.responded(started + MILLI * 90);
    assert_eq!(next_event(&mut breaker, started + MILLI * 91, 5_000, false), None);
    // The time in which nobody looked does not count either.
    assert_eq!(next_event(&mut breaker, started + MILLI * 60_000, 50, true), None);
}

#[test]
fn a_process_that_stood_still_does_not_blame_the_server() {
    let (mut breaker, started) = breaker();
    assert_eq!(breaker.tick(started, true), BreakerEvent::Unchanged);
    assert_eq!(breaker.tick(started + MILLI * 30_000, true), BreakerEvent::Unchanged);
    assert_eq!(breaker.cause(), None);
}

#[test]
fn a_server_that_falls_silent_again_and_again_is_told_of_once() {
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
    // A new connection is not enough.
    assert!(breaker.reconnected());
    assert_eq!(breaker.cause(), Some(OpenCause::Silence));
    breaker.responded(now);
    assert!(!breaker.reconnected());
    assert_eq!(next_event(&mut breaker, now, 5_000, false), Some((BreakerEvent::OutageEnded, 1_000)));
}

#[test]
fn a_lost_connection_opens_it_and_is_told_elsewhere() {
    let (mut breaker, started) = breaker();
    breaker.disconnected();
    assert_eq!(breaker.cause(), Some(OpenCause::Disconnected));
    assert_eq!(next_event(&mut breaker, started, 5_000, true), None);
    assert!(!breaker.reconnected());
    breaker.responded(started);
    assert_eq!((breaker.cause(), next_event(&mut breaker, started, 5_000, false)), (None, None));
}
