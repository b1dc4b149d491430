//! The estimate with a simulated server and worker, whose time is injected.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// Time that callers leave to the store.
const TIME_LEFT: Duration = Duration::from_millis(10);

/// Estimate after `replies` replies to writes of `calls` calls, of a server that takes `per_call` and 300 µs for each.
fn after(mut estimate: LatencyEstimate, replies: usize, calls: usize, per_call: Duration) -> LatencyEstimate {
    let mut now = estimate.completed_at.unwrap_or_else(Instant::now);
    for _ in 0..replies {
        let sent_at = now;
        estimate.sent(calls, sent_at);
        let end = now + 300 * US + per_call * u32::try_from(calls).expect("few");
        while now + MS < end {
            now += MS;
            assert!(estimate.is_look_due(now));
            estimate.looked(now);
        }
        estimate.complete(calls, sent_at, end);
        now = end;
    }
    estimate
}

/// Number of calls ahead up to which a call is accepted.
fn most_ahead(estimate: &LatencyEstimate, time_left: Duration) -> usize {
    (0..MAX_CALLS + 1).rposition(|ahead| estimate.meets_deadline(ahead, time_left)).map_or(0, |at| at + 1)
}

/// A server that executes writes one after the other.
struct SimulatedServer {
    per_call: Duration,
    /// Time of the network to it, or from it.
    distance: Duration,
    is_free_at: Instant,
}

impl SimulatedServer {
    /// When the reply to a write is in the socket of the worker.
    fn execute(&mut self, calls: usize, sent_at: Instant) -> Instant {
        let start = self.is_free_at.max(sent_at + self.distance);
        self.is_free_at = start + 50 * US + self.per_call * u32::try_from(calls).expect("few");
        self.is_free_at + self.distance
    }
}

/// A worker with its queue, at most two writes in flight, and a turn of other tasks between any two of the driver.
struct Worker {
    estimate: LatencyEstimate,
    now: Instant,
    turn: Duration,
    /// Calls of a request.
    calls: usize,
    queue: VecDeque<Instant>,
    in_flight: VecDeque<(Instant, Instant, Vec<Instant>)>,
    done: Done,
}

/// Numbers of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    in_time: usize,
    late: usize,
    /// Not sent: the deadline passed in the queue.
    expired: usize,
    refused: usize,
    replies: usize,
}

impl Worker {
    fn new(turn: Duration, calls: usize) -> Self {
        let (queue, in_flight) = (VecDeque::new(), VecDeque::new());
        let (estimate, now) = (LatencyEstimate::default(), Instant::now());
        Self { estimate, now, turn, calls, queue, in_flight, done: Done::default() }
    }

    /// Makes `per_ms` calls each millisecond for a time. Returns what came of calls meanwhile.
    fn load(&mut self, server: &mut SimulatedServer, per_ms: usize, time: Duration) -> Done {
        let (before, begin) = (self.done, self.now);
        let mut made = 0;
        while self.now < begin + time {
            self.now += self.turn;
            let elapsed = (self.now - begin).as_nanos();
            let due = usize::try_from(per_ms as u128 * elapsed / MS.as_nanos()).expect("few");
            while made + self.calls <= due {
                made += self.calls;
                // Each request at a time of its own.
                self.now += Duration::from_nanos(1);
                self.request();
            }
            self.drive(server);
        }
        Done {
            in_time: self.done.in_time - before.in_time,
            late: self.done.late - before.late,
            expired: self.done.expired - before.expired,
            refused: self.done.refused - before.refused,
            replies: self.done.replies - before.replies,
        }
    }

    fn request(&mut self) {
        let made_at = self.now;
        for _ in 0..self.calls {
            match self.estimate.accepts(made_at, self.queue.len(), TIME_LEFT) {
                true => self.queue.push_back(made_at + TIME_LEFT),
                false => self.done.refused += 1,
            }
        }
    }

    fn drive(&mut self, server: &mut SimulatedServer) {
        while let Some((sent_at, _, deadlines)) = self.in_flight.pop_front_if(|(_, at, _)| *at <= self.now) {
            self.estimate.complete(deadlines.len(), sent_at, self.now);
            let late = deadlines.iter().filter(|deadline| **deadline < self.now).count();
            self.done.late += late;
            self.done.in_time += deadlines.len() - late;
            self.done.replies += 1;
        }
        if self.estimate.is_look_due(self.now) {
            self.estimate.looked(self.now);
        }
        let waiting = self.queue.len();
        self.queue.retain(|deadline| *deadline > self.now);
        self.done.expired += waiting - self.queue.len();
        while self.in_flight.len() < 2 && !self.queue.is_empty() {
            let batch: Vec<Instant> = self.queue.drain(..self.queue.len().min(512)).collect();
            self.estimate.sent(batch.len(), self.now);
            let replied_at = server.execute(batch.len(), self.now);
            self.in_flight.push_back((self.now, replied_at, batch));
        }
    }
}

#[test]
fn a_call_is_accepted_while_those_ahead_leave_it_time() {
    let estimate = after(LatencyEstimate::default(), 100, 500, 8 * US);
    let most = most_ahead(&estimate, TIME_LEFT);
    assert!((650..=900).contains(&most), "6.5 ms at 8 to 9 µs: {most}");
    let most = most_ahead(&estimate, 2 * TIME_LEFT);
    assert!((1_300..=1_800).contains(&most), "{most}");
    assert_eq!(most_ahead(&estimate, Duration::from_secs(9)), MAX_CALLS);
}

#[test]
fn calls_in_flight_count_as_ahead() {
    let mut estimate = LatencyEstimate::default();
    let most = most_ahead(&estimate, TIME_LEFT);
    estimate.sent(1_000, Instant::now());
    assert_eq!(most_ahead(&estimate, TIME_LEFT), most - 1_000);
    estimate.remove(1_000);
    assert_eq!(most_ahead(&estimate, TIME_LEFT), most);
}

#[test]
fn small_writes_and_short_times_do_not_raise_the_estimate() {
    let estimate = after(LatencyEstimate::default(), 100, 1, 500 * US);
    assert_eq!(estimate.nanos_per_call, INITIAL_NANOS);
}

#[test]
fn a_server_that_is_slow_for_each_call_is_noticed_with_few_calls_too() {
    let first = after(LatencyEstimate::default(), 1, 1, 50 * US);
    let estimate = after(first, 100, 64, 200 * US);
    assert_eq!(most_ahead(&estimate, TIME_LEFT), MIN_CALLS);
}

#[test]
fn at_four_times_its_capacity_a_server_stays_busy_and_few_calls_are_late() {
    for (turn, calls) in [(100 * US, 1), (100 * US, 64), (MS, 1), (MS, 64)] {
        let (mut worker, per_call) = (Worker::new(turn, calls), 5 * US);
        let mut server = SimulatedServer { per_call, distance: 50 * US, is_free_at: worker.now };
        worker.load(&mut server, 800, 50 * MS);
        let done = worker.load(&mut server, 800, 1_000 * MS);
        let late = done.late + done.expired;
        assert!(late < done.in_time / 200, "{turn:?}, {calls}: {done:?}");
        // The pauses between writes cost the server a part of the time.
        assert!(done.in_time > 180_000, "of 200,000; {turn:?}, {calls}: {done:?}");
        assert_eq!(done.refused % calls, 0);
    }
}

#[test]
fn the_time_of_a_busy_worker_is_not_taken_for_that_of_the_server() {
    for millis in [2, 3, 5] {
        let mut worker = Worker::new(millis * MS, 64);
        let mut server = SimulatedServer { per_call: 2 * US, distance: 50 * US, is_free_at: worker.now };
        let done = worker.load(&mut server, 100, 1_000 * MS);
        assert_eq!((done.refused, done.late, done.expired), (0, 0, 0), "turns of {millis} ms: {done:?}");
    }
}

#[test]
fn the_time_of_the_network_is_not_taken_for_that_of_the_server() {
    for (distance, per_ms) in [(500, 100), (1_500, 20), (1_500, 150), (2_000, 50)] {
        let mut worker = Worker::new(100 * US, 1);
        let mut server =
            SimulatedServer { per_call: 2 * US, distance: distance * US, is_free_at: worker.now };
        let done = worker.load(&mut server, per_ms, 1_000 * MS);
        assert_eq!((done.refused, done.late, done.expired), (0, 0, 0), "{distance} µs: {done:?}");
    }
}

#[test]
fn a_longer_way_to_another_server_is_noticed_at_once() {
    let mut worker = Worker::new(100 * US, 1);
    let mut server = SimulatedServer { per_call: 2 * US, distance: 100 * US, is_free_at: worker.now };
    worker.load(&mut server, 50, 100 * MS);
    server.distance = 2_000 * US;
    worker.estimate.connected(worker.now);
    let done = worker.load(&mut server, 50, 1_000 * MS);
    assert_eq!((done.refused, done.late, done.expired), (0, 0, 0), "{done:?}");
}

#[test]
fn a_longer_way_to_the_server_is_noticed_where_calls_are_few() {
    let mut worker = Worker::new(100 * US, 1);
    let mut server = SimulatedServer { per_call: 2 * US, distance: 100 * US, is_free_at: worker.now };
    worker.load(&mut server, 1, 100 * MS);
    server.distance = 1_500 * US;
    worker.load(&mut server, 1, 2_000 * MS);
    worker.load(&mut server, 100, 50 * MS);
    let done = worker.load(&mut server, 100, 1_000 * MS);
    assert_eq!((done.refused, done.late, done.expired), (0, 0, 0), "{done:?}");
}

#[test]
fn calls_are_accepted_again_soon_after_the_server_was_slow() {
    for distance in [50 * US, MS] {
        recovers(distance);
    }
}

/// Lets the server be slow for a while.
fn recovers(distance: Duration) {
    let mut worker = Worker::new(100 * US, 1);
    let mut server = SimulatedServer { per_call: 4 * US, distance, is_free_at: worker.now };
    worker.load(&mut server, 100, 100 * MS);
    server.per_call = 14 * US;
    let slow = worker.load(&mut server, 100, 500 * MS);
    assert!(slow.refused > 5_000, "{slow:?}");
    server.per_call = 4 * US;
    let mut replies = 0;
    loop {
        let done = worker.load(&mut server, 100, MS);
        replies += done.replies;
        assert!(replies <= 32, "{done:?}");
        if done.refused == 0 {
            break;
        }
    }
    worker.load(&mut server, 100, 100 * MS);
    let later = worker.load(&mut server, 100, 500 * MS);
    assert_eq!((later.refused, later.late, later.expired), (0, 0, 0), "{later:?}");
}

/// Step in the life of an estimate.
#[derive(Clone, Copy, Debug)]
enum Event {
    Sent(usize),
    /// The reply to the oldest write.
    Completed,
    /// A write whose connection broke.
    Failed,
    Looked,
    Passed(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1_usize..600).prop_map(Event::Sent),
        Just(Event::Completed),
        Just(Event::Failed),
        Just(Event::Looked),
        (1_u64..200_000).prop_map(Event::Passed),
    ]
}

/// Estimate after anything, without calls in flight.
fn after_events(events: &[Event]) -> LatencyEstimate {
    let (mut estimate, mut now) = (LatencyEstimate::default(), Instant::now());
    let mut in_flight = VecDeque::new();
    for event in events {
        match event {
            Event::Sent(calls) => {
                estimate.sent(*calls, now);
                in_flight.push_back((*calls, now));
            }
            Event::Completed => {
                if let Some((calls, sent_at)) = in_flight.pop_front() {
                    estimate.complete(calls, sent_at, now);
                }
            }
            Event::Failed => {
                if let Some((calls, _)) = in_flight.pop_front() {
                    estimate.remove(calls);
                }
            }
            Event::Looked => estimate.looked(now),
            Event::Passed(micros) => now += Duration::from_micros(*micros),
        }
        assert_eq!(estimate.in_flight(), in_flight.iter().map(|(calls, _)| calls).sum::<usize>());
    }
    in_flight.into_iter().for_each(|(calls, _)| estimate.remove(calls));
    estimate
}

proptest! {
    #[test]
    fn fewer_calls_ahead_than_the_minimum_are_always_accepted(
        events in prop::collection::vec(event(), 0..50),
        ahead in 0..MIN_CALLS,
        micros in 0_u64..20_000,
    ) {
        let estimate = after_events(&events);
        prop_assert!(estimate.meets_deadline(ahead, Duration::from_micros(micros)));
        prop_assert!(!estimate.meets_deadline(MAX_CALLS, Duration::MAX));
    }

    #[test]
    fn fifty_replies_of_a_fast_server_lower_any_estimate(
        events in prop::collection::vec(event(), 0..50),
        calls in 200_usize..512,
    ) {
        let estimate = after(after_events(&events), 50, calls, 4 * US);
        prop_assert!(most_ahead(&estimate, TIME_LEFT) >= 800, "{estimate:?}");
    }

    #[test]
    fn calls_made_at_one_time_are_all_accepted_or_none(
        events in prop::collection::vec(event(), 0..50),
        waiting in 0..2 * MAX_CALLS,
        calls in 2..200_usize,
    ) {
        let (mut estimate, now) = (after_events(&events), Instant::now());
        let first = estimate.accepts(now, waiting, TIME_LEFT);
        for number in 1..calls {
            let waiting = if first { waiting + number } else { 0 };
            prop_assert_eq!(estimate.accepts(now, waiting, TIME_LEFT), first);
        }
        prop_assert!(estimate.accepts(now + US, 0, TIME_LEFT));
    }
}
