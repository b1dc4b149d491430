use super::latency::MIN_QUEUED_CALLS;
use super::*;
use crate::test_prelude::*;

fn request(value: &str, hits: Hits) -> TagRequest {
    request_of(value, check(policy(Algorithm::FixedWindow, 9, 60), hits))
}

struct Queued {
    queue: Queue,
    started: Instant,
    responses: Vec<oneshot::Receiver<DecisionResult>>,
}

impl Queued {
    fn new() -> Self {
        Self { queue: Queue::default(), started: Instant::now(), responses: Vec::new() }
    }

    /// Queues a request whose caller waits for `millis` milliseconds.
    fn push(&mut self, request: &TagRequest, millis: u64) -> bool {
        self.try_push(request, millis).expect("there is room")
    }

    fn try_push(&mut self, request: &TagRequest, millis: u64) -> Result<bool, SendError> {
        let (sender, response) = oneshot::channel();
        self.responses.push(response);
        let deadline = self.started + Duration::from_millis(millis);
        self.queue.push(request, CallTimes { made_at: self.started, deadline, fixed: None }, sender)
    }

    fn push_now(&mut self, request: &TagRequest) -> bool {
        self.push(request, 10)
    }

    /// Takes requests; returns the number of callers of each.
    fn take(&mut self, max_requests: usize) -> Vec<usize> {
        self.queue.take(max_requests).iter().map(|pending| pending.waiters.len()).collect()
    }

    fn error(&mut self, at: usize) -> Option<String> {
        self.responses[at].try_recv().ok().map(|response| response.expect_err("no decision").to_string())
    }
}

#[test]
fn identical_requests_are_coalesced_and_others_keep_their_order() {
    let mut queued = Queued::new();
    assert!(queued.push_now(&request("a", Hits::ONE)));
    assert!(!queued.push_now(&request("b", Hits::ONE)));
    assert!(!queued.push_now(&request("a", Hits::ONE)));
    queued.push_now(&request("a", Hits::charge(2)));
    queued.push_now(&request("a", Hits::charge(2)));
    assert_eq!(queued.take(9), [2, 1, 2]);
    assert!(queued.queue.is_empty());
    // A request that was taken is coalesced with no later one.
    assert!(queued.push_now(&request("a", Hits::ONE)));
    assert_eq!(queued.take(9), [1]);
}

#[test]
fn identical_charges_of_logs_and_permits_are_coalesced_but_leases_are_not() {
    let mut queued = Queued::new();
    let lease = |number| LeaseId::new(NonZeroU64::new(number).expect("not 0"));
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        for _ in 0..3 {
            queued.push_now(&request_of("a", check(policy(algorithm, 9, 60), Hits::ONE)));
        }
    }
    for hits in [1, 1, 2].map(|number| Hits::Acquire { amount: NonZeroU64::MIN, lease: lease(number) }) {
        queued.push_now(&request_of("a", check(policy(Algorithm::Concurrency, 9, 60), hits)));
    }
    assert_eq!(queued.take(9), [3, 3, 1, 1, 1]);
}

#[test]
fn refunds_and_all_or_none_requests_are_not_coalesced() {
    let mut queued = Queued::new();
    for hits in [Hits::refund(1), Hits::reset()] {
        queued.push_now(&request("a", hits));
        queued.push_now(&request("a", hits));
    }
    let all_or_none = TagRequest { charging: Charging::AllOrNone, ..request("a", Hits::ONE) };
    queued.push_now(&all_or_none);
    queued.push_now(&all_or_none);
    let mut twice = request("a", Hits::ONE);
    let cell = &mut twice.cells[0];
    cell.checks.push(cell.checks[0]);
    queued.push_now(&twice);
    queued.push_now(&twice);
    assert_eq!(queued.take(9), [1; 8]);
}

#[test]
fn sequence_numbers_stay_right_when_a_part_is_taken() {
    let mut queued = Queued::new();
    let requests: Vec<TagRequest> = (0..50).map(|at| request(&at.to_string(), Hits::ONE)).collect();
    let (mut pushed, mut taken) = (0, 0);
    for _ in 0..20 {
        requests.iter().for_each(|request| _ = queued.push_now(request));
        pushed += requests.len();
        taken += queued.take(7).iter().sum::<usize>();
        // One entry for each distinct request.
        assert!(queued.queue.queued.len() <= requests.len());
    }
    taken += queued.take(usize::MAX).iter().sum::<usize>();
    assert_eq!(taken, pushed);
    assert!(queued.queue.coalescable.is_empty());
}

#[test]
fn abandoned_requests_are_not_taken() {
    let mut queued = Queued::new();
    queued.push_now(&request("a", Hits::ONE));
    queued.push_now(&request("a", Hits::ONE));
    queued.push_now(&request("b", Hits::ONE));
    drop(queued.responses.drain(1..));
    assert_eq!(queued.take(9), [1]);
}

#[test]
fn each_caller_waits_until_its_own_deadline() {
    let mut queued = Queued::new();
    for (name, millis) in [("a", 1), ("b", 2), ("a", 5), ("b", 3)] {
        queued.push(&request(name, Hits::ONE), millis);
    }
    queued.queue.expire(queued.started + Duration::from_millis(3));
    let errors: Vec<_> = (0..4).map(|at| queued.error(at).is_some()).collect();
    assert_eq!(errors, [true, true, false, true]);
    assert_eq!(queued.take(9), [1]);
    assert_eq!(queued.queue.callers, 0);
}

#[test]
fn timed_out_callers_make_room_for_others() {
    let mut queued = Queued::new();
    for _ in 0..10 {
        for name in ["a", "b", "a"] {
            queued.push(&request(name, Hits::ONE), 1);
        }
        queued.queue.expire(queued.started + Duration::from_millis(2));
        assert!(queued.queue.is_empty());
    }
    assert_eq!(queued.queue.callers, 0);
}

#[test]
fn a_failure_reaches_waiting_and_new_callers_until_reopened() {
    let mut queued = Queued::new();
    ["a", "a", "b"].iter().for_each(|name| _ = queued.push_now(&request(name, Hits::ONE)));
    queued.queue.close(&SendError::NotConnected("lost".into()));
    for at in 0..3 {
        assert_eq!(queued.error(at).as_deref(), Some("not connected: lost"));
    }
    let refused = queued.try_push(&request("a", Hits::ONE), 10);
    assert!(matches!(refused, Err(SendError::NotConnected(_))), "{refused:?}");
    queued.queue.open();
    assert!(queued.push_now(&request("a", Hits::ONE)));
    assert_eq!(queued.take(9), [1]);
}

#[test]
fn the_queue_is_bounded_and_abandoned_requests_make_room() {
    let mut queued = Queued::new();
    let name = |number: usize| request(&number.to_string(), Hits::ONE);
    // The first one lives long, so those behind it are not at the front when they die.
    queued.push(&name(0), 1_000);
    (1..MAX_QUEUED_REQUESTS).for_each(|number| assert!(!queued.push_now(&name(number))));
    let refused = queued.try_push(&name(MAX_QUEUED_REQUESTS), 10);
    assert!(matches!(refused, Err(SendError::Overloaded)), "{refused:?}");
    // An identical request needs no room.
    assert!(!queued.push_now(&name(1)));
    queued.push(&name(2), 1_000);
    queued.queue.expire(queued.started + Duration::from_millis(10));
    assert_eq!(queued.queue.callers, 2);
    assert!(!queued.push_now(&name(2)));
    assert!(!queued.push_now(&name(1)));
    assert_eq!(queued.take(9), [1, 2, 1]);
    assert_eq!((queued.queue.callers, queued.queue.coalescable.len()), (0, 0));
}

#[test]
fn coalesced_callers_are_bounded_too() {
    let mut queued = Queued::new();
    let same = request("a", Hits::ONE);
    (0..MAX_QUEUED_CALLERS).for_each(|_| _ = queued.push_now(&same));
    assert!(matches!(queued.try_push(&same, 10), Err(SendError::Overloaded)));
    assert_eq!(queued.take(9), [MAX_QUEUED_CALLERS]);
    assert!(queued.push_now(&same));
}

#[test]
fn abandoned_requests_behind_others_are_dropped() {
    let mut queued = Queued::new();
    for (name, millis) in [("a", 10), ("b", 5), ("c", 10), ("d", 10)] {
        queued.push(&request(name, Hits::ONE), millis);
    }
    queued.responses.truncate(1);
    queued.queue.expire(queued.started + Duration::from_millis(5));
    assert_eq!(queued.queue.queued.len(), 1);
    assert_eq!(queued.take(9), [1]);
}

const MS: Duration = Duration::from_millis(1);

/// Estimate for a server that takes 4 µs for a request.
fn latency(in_flight: usize) -> LatencyEstimate {
    let (mut latency, mut now) = (LatencyEstimate::default(), Instant::now());
    for _ in 0..10 {
        latency.sent(500);
        latency.complete(500, now, now + 2 * MS);
        now += 2 * MS;
    }
    latency.sent(in_flight);
    latency
}

#[test]
fn a_request_is_accepted_while_those_ahead_leave_time() {
    assert!(latency(1_000).meets_deadline(1_400, 10 * MS));
    assert!(!latency(1_000).meets_deadline(1_600, 10 * MS));
    assert!(latency(1_000).meets_deadline(1_600, 20 * MS));
}

#[test]
fn the_time_of_a_second_batch_counts_from_the_end_of_the_first() {
    let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
    latency.sent(500);
    latency.sent(500);
    latency.complete(500, now, now + 2 * MS);
    latency.complete(500, now, now + 4 * MS);
    assert_eq!((latency.nanos_per_call, latency.in_flight), (4_000, 0));
}

#[test]
fn small_batches_are_not_sampled_and_short_queues_always_accepted() {
    let (mut latency, now) = (LatencyEstimate::default(), Instant::now());
    latency.sent(1);
    latency.complete(1, now, now + MS);
    assert!(latency.meets_deadline(4_000, MS), "no sample yet");
    let mut slow = LatencyEstimate::default();
    slow.sent(300);
    slow.complete(300, now, now + 1_000 * MS);
    assert!(slow.meets_deadline(MIN_QUEUED_CALLS - 1, MS) && !slow.meets_deadline(MIN_QUEUED_CALLS, MS));
    // The estimate falls when the server is fast again.
    (0..20).for_each(|_| {
        slow.sent(300);
        slow.complete(300, now + 2_000 * MS, now + 2_000 * MS);
    });
    assert!(slow.meets_deadline(MIN_QUEUED_CALLS, 10 * MS), "{slow:?}");
}
