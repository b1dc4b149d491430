use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn breaker() -> (Breaker, Instant) {
    (Breaker::new(MILLI * 10), Instant::now())
}

/// Looks each millisecond until something changes, for so many of them; tells what and after how many.
fn look(breaker: &mut Breaker, from: Instant, millis: u32, is_owed: bool) -> Option<(Look, u32)> {
    let looks = (0..=millis).map(|after| (breaker.look(from + MILLI * after, is_owed), after));
    looks.into_iter().find(|(look, _)| *look != Look::Same)
}

#[test]
fn silence_opens_it_and_any_answer_closes_it() {
    let (mut breaker, begun) = breaker();
    assert_eq!(look(&mut breaker, begun, 500, true), Some((Look::OpenedAnew, 100)));
    assert_eq!(breaker.cause(), Some(Cause::Silence));
    // It stays so for as long as nothing is heard, and is told once.
    assert_eq!(look(&mut breaker, begun + MILLI * 100, 5_000, true), None);
    breaker.hear(begun + MILLI * 6_000);
    assert_eq!(breaker.cause(), None);
    assert_eq!(look(&mut breaker, begun + MILLI * 6_000, 2_000, false), Some((Look::Calm, 1_000)));
    assert_eq!(look(&mut breaker, begun + MILLI * 9_000, 2_000, false), None);
}

#[test]
fn a_long_timeout_means_much_patience() {
    let begun = Instant::now();
    let mut breaker = Breaker::new(MILLI * 300);
    assert_eq!(look(&mut breaker, begun, 500, true), Some((Look::OpenedAnew, 300)));
}

#[test]
fn answers_that_are_late_again_and_again_are_not_silence() {
    let (mut breaker, begun) = breaker();
    for turn in 0..50 {
        let begun = begun + MILLI * 90 * turn;
        assert_eq!(look(&mut breaker, begun, 89, true), None);
        breaker.hear(begun + MILLI * 89);
    }
}

#[test]
fn what_is_not_owed_is_not_missed() {
    let (mut breaker, begun) = breaker();
    assert_eq!(look(&mut breaker, begun, 90, true), None);
    breaker.hear(begun + MILLI * 90);
    assert_eq!(look(&mut breaker, begun + MILLI * 91, 5_000, false), None);
    // The time in which nobody looked does not count either.
    assert_eq!(look(&mut breaker, begun + MILLI * 60_000, 50, true), None);
}

#[test]
fn a_process_that_stood_still_does_not_blame_the_server() {
    let (mut breaker, begun) = breaker();
    assert_eq!(breaker.look(begun, true), Look::Same);
    assert_eq!(breaker.look(begun + MILLI * 30_000, true), Look::Same);
    assert_eq!(breaker.cause(), None);
}

#[test]
fn a_server_that_falls_silent_again_and_again_is_told_of_once() {
    let (mut breaker, begun) = breaker();
    assert_eq!(look(&mut breaker, begun, 500, true), Some((Look::OpenedAnew, 100)));
    let mut now = begun + MILLI * 600;
    for _ in 0..10 {
        breaker.hear(now);
        assert_eq!(look(&mut breaker, now, 500, true), Some((Look::Opened, 100)));
        now += MILLI * 600;
    }
    breaker.lose();
    assert_eq!(breaker.cause(), Some(Cause::Disconnected));
    assert_eq!(look(&mut breaker, now, 5_000, true), None);
    // A new connection is not enough.
    assert!(breaker.doubts());
    assert_eq!(breaker.cause(), Some(Cause::Silence));
    breaker.hear(now);
    assert!(!breaker.doubts());
    assert_eq!(look(&mut breaker, now, 5_000, false), Some((Look::Calm, 1_000)));
}

#[test]
fn a_lost_connection_opens_it_and_is_told_elsewhere() {
    let (mut breaker, begun) = breaker();
    breaker.lose();
    assert_eq!(breaker.cause(), Some(Cause::Disconnected));
    assert_eq!(look(&mut breaker, begun, 5_000, true), None);
    assert!(!breaker.doubts());
    breaker.hear(begun);
    assert_eq!((breaker.cause(), look(&mut breaker, begun, 5_000, false)), (None, None));
}
