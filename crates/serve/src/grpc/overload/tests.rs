//! Stages of admission, with the time injected.

use hyper::header::HeaderValue;

use super::*;

fn headers(timeout: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(timeout))])
}

/// Admits a call that did not wait.
fn admit(control: &Arc<AdmissionControl>, headers: &HeaderMap) -> Result<Permit, Overloaded> {
    let now = Instant::now();
    control.admit(headers, &ReadBudget::default(), now)
}

/// Admission control of a worker that spends 100 µs on a call.
fn admission_control() -> Arc<AdmissionControl> {
    Arc::new(AdmissionControl::with_cost(Duration::from_micros(100)))
}

#[test]
fn rising_load_skips_the_store_first_and_then_sheds_calls() {
    let (control, headers) = (admission_control(), headers("20m"));
    let permits: Vec<_> = (0..1_000).map_while(|_| admit(&control, &headers).ok()).collect();
    let with_store = permits.iter().filter(|permit| permit.has_store_time).count();
    assert!((24..=26).contains(&with_store), "2.5 ms of 20 in each queue: {with_store}");
    assert!((48..=51).contains(&permits.len()), "5 ms of 20 in each queue: {}", permits.len());
    drop(permits);
    assert!(admit(&control, &headers).is_ok_and(|permit| permit.has_store_time), "all are done");
}

#[test]
fn a_queue_of_less_than_a_millisecond_sheds_no_calls_with_short_timeouts() {
    let (control, headers) = (admission_control(), headers("2m"));
    let permits: Vec<_> = (0..1_000).map_while(|_| admit(&control, &headers).ok()).collect();
    assert!((10..=11).contains(&permits.len()), "{}", permits.len());
    assert!(permits.iter().all(|permit| permit.has_store_time));
}

#[test]
fn paused_permits_keep_no_calls_out() {
    let (control, headers) = (admission_control(), headers("20m"));
    let mut permits: Vec<_> = (0..1_000).map_while(|_| admit(&control, &headers).ok()).collect();
    assert!(admit(&control, &headers).is_err());
    permits.iter_mut().for_each(Permit::pause);
    assert!(admit(&control, &headers).is_ok_and(|permit| permit.has_store_time));
    permits.iter_mut().for_each(Permit::resume);
    assert!(admit(&control, &headers).is_err());
    drop(permits);
    assert_eq!(control.active.load(Ordering::Relaxed), 0);
}

#[test]
fn calls_with_a_distant_deadline_or_without_one_are_not_shed() {
    let control = admission_control();
    let permits: Vec<_> = (0..1_000).map(|_| admit(&control, &headers("1S")).expect("admitted")).collect();
    assert!(permits.iter().all(|permit| permit.has_store_time));
    assert!(admit(&control, &HeaderMap::new()).is_ok_and(|permit| permit.has_store_time));
    assert!(admit(&control, &headers("20m")).is_err());
}

#[test]
fn a_call_that_waited_longer_than_expected_is_shed_when_its_task_runs() {
    let (control, headers) = (admission_control(), headers("20m"));
    let others: Vec<_> = (0..20).map(|_| admit(&control, &headers).expect("admitted")).collect();
    let begin_after = |millis| {
        let mut permit = admit(&control, &headers).expect("admitted");
        let begun = permit.begin_at(permit.admitted_at + Duration::from_millis(millis));
        (begun, permit.waited().map(|waited| waited.as_millis()))
    };
    assert_eq!(begin_after(0), (Ok(()), Some(0)));
    assert_eq!(begin_after(2), (Ok(()), Some(2)));
    assert_eq!(begin_after(4), (Ok(()), None));
    assert_eq!(begin_after(6).0, Err(Overloaded));
    drop(others);
    assert_eq!(control.active.load(Ordering::Relaxed), 0);
}

#[test]
fn the_measured_wait_bounds_the_wakeup_delay_for_as_long_as_it_lasted() {
    let control = admission_control();
    let start = Instant::now();
    // The clock may begin here.
    let _ = nanos_of(start);
    let at = |millis| start + Duration::from_millis(millis);
    assert_eq!(control.wakeup_delay(at(0)), EVENT_INTERVAL);
    control.queue_waited(Duration::from_millis(8), at(100));
    for (now, left) in [(100, 8), (103, 5), (108, 0), (1_000, 0)] {
        assert_eq!(control.wakeup_delay(at(now)), Duration::from_millis(left) + EVENT_INTERVAL, "{now}");
    }
}

#[test]
fn the_average_cost_follows_the_samples() {
    let control = admission_control();
    let cost = || control.call_cost.load(Ordering::Relaxed);
    assert!((99_000..=100_000).contains(&cost()), "{}", cost());
    (0..20).for_each(|_| control.record(Duration::from_micros(64 * 5), 64 * CALL_UNITS, true));
    assert!(cost() < 6_000, "{}", cost());
    control.record(Duration::ZERO, 0, false);
}

#[tokio::test]
async fn the_cost_is_measured_from_the_busy_time_of_the_runtime() {
    let control = Arc::new(AdmissionControl::default());
    for _ in 0..SAMPLE_UNITS {
        let permit = admit(&control, &HeaderMap::new());
        let started = Instant::now();
        while started.elapsed() < Duration::from_micros(50) {}
        drop(permit);
        tokio::task::yield_now().await;
    }
    assert!(control.call_cost.load(Ordering::Relaxed) > 10_000, "{control:?}");
}

/// Number of calls that are left to HTTP/2, of a thousand that are read at once.
fn left_to_http2(admission: &mut EarlyAdmission, timeout: Duration, now: Instant) -> usize {
    admission.begin_read();
    let is_left = |_: &usize| {
        let is_left = !admission.refuses(Some(timeout), || now);
        if is_left {
            admission.admitted();
        }
        is_left
    };
    (0..1_000).filter(is_left).count()
}

#[test]
fn calls_are_refused_early_before_they_would_be_rejected_and_never_in_a_short_queue() {
    let (control, now) = (admission_control(), Instant::now());
    let mut admission = EarlyAdmission::new(Arc::clone(&control), ReadBudget::default());
    let left = left_to_http2(&mut admission, Duration::from_millis(20), now);
    assert!((40..=41).contains(&left), "4 ms of 20 in each queue: {left}");
    // They still count in a second read of the poll, though not yet as active.
    assert_eq!(left_to_http2(&mut admission, Duration::from_millis(20), now), 0);
    assert!(!admission.refuses(None, || now), "without a deadline");
    let mut other = EarlyAdmission::new(Arc::clone(&control), ReadBudget::default());
    let left = left_to_http2(&mut other, Duration::from_millis(2), now);
    assert!((10..=11).contains(&left), "a millisecond in each queue: {left}");
    let _active: Vec<_> = (0..30).map(|_| admit(&control, &headers("1S")).expect("admitted")).collect();
    let mut other = EarlyAdmission::new(control, ReadBudget::default());
    let left = left_to_http2(&mut other, Duration::from_millis(20), now);
    assert!((10..=11).contains(&left), "a millisecond in each queue is left: {left}");
}
