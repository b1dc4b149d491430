//! How much a worker has to do, and which calls it takes on.
//!
//! A worker that takes on more than it can do answers later and later, until every answer is late and all work is in
//! vain. How long a call will take, once it is taken on, is told by how many are taken on already and what a call costs
//! the worker. The more of its caller's time that is, the less is done for it: first the store is not asked any more,
//! so that each limit is decided as it says for such a case, at a part of the cost; and when even that takes too long,
//! the call is refused at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hyper::HeaderMap;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};

use super::deadline;

/// Of the time that its caller waits, in percent, what a call may take before the store is not asked.
const FOR_STORE: u32 = 10;

/// The same before it is refused. It may have waited for as long before it was read, and its answer may before it is
/// written.
const FOR_TURN: u32 = 16;

/// What nobody minds: a wait that is looked at no further.
const SHORT: Duration = Duration::from_millis(1);

/// The shortest time between two lines about it.
const QUIET: Duration = Duration::from_secs(10);

/// What a call adds to the work that is done, and what one adds that was refused, which costs a fraction.
const DONE: usize = 8;
const REFUSED: usize = 1;

/// Work between two looks at what it costs.
const WORK_PER_LOOK: usize = 64 * DONE;

/// How much a look counts, against those before it.
const WEIGHT: u64 = 4;

/// What a worker has taken on.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken_on: AtomicUsize,
    /// The work that was done since the last look.
    done: AtomicUsize,
    /// What a call costs the worker, in nanoseconds.
    cost: AtomicU64,
    runtime: Mutex<Option<Busy>>,
    /// When it was last told that this is too much.
    told_at: Mutex<Option<Instant>>,
}

/// How long the worker was busy when it was last looked at.
#[derive(Debug)]
struct Busy {
    metrics: RuntimeMetrics,
    until: Duration,
    at: Instant,
}

/// A call that was taken on, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    /// Whether there is time to ask the store.
    pub(super) has_time: bool,
    /// When it was.
    pub(super) begun_at: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Counted,
    Paused,
}

/// The worker has too much to do to answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overloaded;

impl Turns {
    /// Takes on a call with these headers, if it can be answered while its caller waits. One that does not say how long
    /// it waits waits for any time.
    pub(super) fn take_on(self: &Arc<Self>, headers: &HeaderMap) -> Result<Turn, Overloaded> {
        if self.done.load(Ordering::Relaxed) >= WORK_PER_LOOK {
            self.look();
        }
        let has_time = self.has_time(headers).inspect_err(|Overloaded| {
            self.done.fetch_add(REFUSED, Ordering::Relaxed);
        })?;
        self.taken_on.fetch_add(1, Ordering::Relaxed);
        Ok(Turn { turns: Arc::clone(self), has_time, begun_at: Instant::now(), state: State::Counted })
    }

    fn has_time(&self, headers: &HeaderMap) -> Result<bool, Overloaded> {
        let calls = self.taken_on.load(Ordering::Relaxed) as u64;
        let takes = Duration::from_nanos(calls.saturating_mul(self.cost.load(Ordering::Relaxed)));
        if takes < SHORT {
            return Ok(true);
        }
        let Some(timeout) = deadline::told(headers) else { return Ok(true) };
        if takes <= deadline::part(timeout, FOR_STORE) {
            return Ok(true);
        }
        if takes <= deadline::part(timeout, FOR_TURN) {
            return Ok(false);
        }
        self.tell(takes);
        Err(Overloaded)
    }

    /// Tells now and then that there is too much to do.
    fn tell(&self, takes: Duration) {
        let mut told_at = self.told_at.lock();
        if told_at.is_none_or(|told_at| told_at.elapsed() > QUIET) {
            *told_at = Some(Instant::now());
            tracing::warn!(?takes, "a worker is asked more than it can answer in time, and refuses calls");
        }
    }

    /// Looks at what calls cost, on the worker's own runtime.
    fn look(&self) {
        let mut runtime = self.runtime.lock();
        let Some(busy) = &mut *runtime else {
            let metrics = Handle::try_current().map(|handle| handle.metrics());
            *runtime = metrics.ok().map(Busy::now);
            return;
        };
        let now = busy.metrics.worker_total_busy_duration(0);
        let spent = now.saturating_sub(busy.until);
        // The runtime counts only now and then, and a connection may bring many calls at once.
        if spent.is_zero() {
            return;
        }
        // One that is often idle does other things too, and has time for them.
        let has_time = spent.saturating_mul(2) < busy.at.elapsed();
        busy.until = now;
        busy.at = Instant::now();
        self.note(spent, self.done.swap(0, Ordering::Relaxed), has_time);
    }

    /// Takes note that so much work took the worker so long, at the most if it had time for other things.
    fn note(&self, spent: Duration, done: usize, has_time: bool) {
        let each = spent.as_nanos().saturating_mul(DONE as u128);
        let each = each.checked_div(done as u128).unwrap_or_default();
        let each = u64::try_from(each).unwrap_or(u64::MAX);
        let before = self.cost.load(Ordering::Relaxed);
        let each = if has_time { each.min(before) } else { each };
        let rest = before.saturating_sub(before.checked_div(WEIGHT).unwrap_or_default());
        let cost = rest.saturating_add(each.checked_div(WEIGHT).unwrap_or_default());
        self.cost.store(cost, Ordering::Relaxed);
    }
}

impl Busy {
    fn now(metrics: RuntimeMetrics) -> Self {
        Self { until: metrics.worker_total_busy_duration(0), metrics, at: Instant::now() }
    }
}

impl Turn {
    /// Does not count while its caller has more to send.
    pub(super) fn pause(&mut self) {
        if self.state == State::Counted {
            self.state = State::Paused;
            self.turns.taken_on.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts again.
    pub(super) fn go_on(&mut self) {
        if self.state == State::Paused {
            self.state = State::Counted;
            self.turns.taken_on.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pause();
        self.turns.done.fetch_add(DONE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(timeout: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(deadline::HEADER.parse().expect("a name"), HeaderValue::from_static(timeout))])
    }

    /// Turns of a worker whom a call costs 100 µs.
    fn turns() -> Arc<Turns> {
        let turns = Arc::new(Turns::default());
        (0..100).for_each(|_| turns.note(Duration::from_millis(10), 100 * DONE, false));
        turns
    }

    #[test]
    fn the_more_is_taken_on_the_less_is_done_for_a_call_until_it_is_refused() {
        let (turns, headers) = (turns(), headers("20m"));
        let taken: Vec<_> = (0..1_000).map_while(|_| turns.take_on(&headers).ok()).collect();
        let with_store = taken.iter().filter(|turn| turn.has_time).count();
        assert!((20..=21).contains(&with_store), "2 ms of 20: {with_store}");
        assert!((32..=33).contains(&taken.len()), "3.2 ms of 20: {}", taken.len());
        drop(taken);
        assert!(turns.take_on(&headers).is_ok_and(|turn| turn.has_time), "all are done");
    }

    #[test]
    fn calls_whose_callers_have_more_to_send_keep_no_others_out() {
        let (turns, headers) = (turns(), headers("20m"));
        let mut taken: Vec<_> = (0..1_000).map_while(|_| turns.take_on(&headers).ok()).collect();
        assert!(turns.take_on(&headers).is_err());
        taken.iter_mut().for_each(Turn::pause);
        assert!(turns.take_on(&headers).is_ok_and(|turn| turn.has_time));
        taken.iter_mut().for_each(Turn::go_on);
        assert!(turns.take_on(&headers).is_err());
        drop(taken);
        assert_eq!(turns.taken_on.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_waits_for_long_or_for_any_time_is_not_refused() {
        let turns = turns();
        let patient: Vec<_> = (0..1_000).map(|_| turns.take_on(&headers("1S")).expect("taken on")).collect();
        assert!(patient.iter().all(|turn| turn.has_time));
        assert!(turns.take_on(&HeaderMap::new()).is_ok_and(|turn| turn.has_time));
        assert!(turns.take_on(&headers("20m")).is_err());
    }

    #[test]
    fn what_a_call_costs_follows_what_was_seen() {
        let turns = turns();
        let cost = || turns.cost.load(Ordering::Relaxed);
        assert!((99_000..=100_000).contains(&cost()), "{}", cost());
        (0..20).for_each(|_| turns.note(Duration::from_micros(64 * 5), 64 * DONE, true));
        assert!(cost() < 6_000, "{}", cost());
        turns.note(Duration::ZERO, 0, false);
    }

    #[tokio::test]
    async fn the_runtime_tells_how_busy_it_is() {
        let turns = Arc::new(Turns::default());
        for _ in 0..WORK_PER_LOOK {
            let turn = turns.take_on(&HeaderMap::new());
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {}
            drop(turn);
            tokio::task::yield_now().await;
        }
        assert!(turns.cost.load(Ordering::Relaxed) > 10_000, "{turns:?}");
    }
}
