//! What was counted, as changes: for those who add up by themselves what they are told.
//!
//! The names are those of envoyproxy/ratelimit, and `ratelimit.tollgate.…` for what it has not. What was told is noted
//! beside what was counted, so that what could not be told is part of the next change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    degraded, departed, lists, redis_breakers_open, requests,
    series::{self, KINDS, Series},
    service, stat_name, striped,
};

/// What goes before and after the name of a rule, in the order of [`Series::counted`].
pub(super) const OF_RULES: [(&str, &str); KINDS] = [
    ("ratelimit.service.rate_limit", "total_hits"),
    ("ratelimit.service.rate_limit", "within_limit"),
    ("ratelimit.service.rate_limit", "near_limit"),
    ("ratelimit.service.rate_limit", "over_limit"),
    ("ratelimit.service.rate_limit", "shadow_mode"),
    ("ratelimit.tollgate.rate_limit", "degraded"),
];

/// Counters of the whole service.
pub(super) const COUNTERS: [&str; 11] = [
    "ratelimit.service.call.should_rate_limit.redis_error",
    "ratelimit.service.call.should_rate_limit.service_error",
    "ratelimit.service.config_load_success",
    "ratelimit.service.config_load_error",
    "ratelimit.service.global_shadow_mode",
    "ratelimit_server.ShouldRateLimit.total_requests",
    "ratelimit.tollgate.over_limit_requests",
    "ratelimit.tollgate.degraded_requests",
    "ratelimit.tollgate.unknown_domain_requests",
    "ratelimit.tollgate.list_allowed_requests",
    "ratelimit.tollgate.list_denied_requests",
];

const CALLS: &str = "ratelimit_server.ShouldRateLimit.response_time";

const BREAKERS: &str = "ratelimit.tollgate.redis_breakers_open";

/// What changed since it was told; for one taker in a process.
#[derive(Debug)]
pub struct Changes {
    /// What was told of each of [`COUNTERS`].
    counters: [Arc<AtomicU64>; COUNTERS.len()],
    /// Calls that were told of each bucket of their times.
    buckets: Vec<Arc<AtomicU64>>,
}

/// A change of one metric.
#[derive(Debug)]
pub struct Change {
    /// The metric's name, without `:`, `|` and control characters.
    pub name: String,
    /// What is to be told.
    pub measure: Measure,
    /// To be confirmed once it was told.
    pub told: Told,
}

/// What is told of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// So many more, never zero.
    Count(u64),
    /// So many now.
    Gauge(u64),
    /// Calls that took about so long, never zero.
    Times {
        /// The middle of the bucket of all those calls.
        time: Duration,
        /// How many.
        calls: u64,
    },
}

/// A change that is not told before this is confirmed; dropped, it is part of the next one.
#[derive(Debug)]
#[must_use]
pub struct Told(Place);

/// Where it is noted what was told, and how much.
#[derive(Debug)]
enum Place {
    Rule { series: Arc<Series>, at: usize, amount: u64 },
    Service { told: Arc<AtomicU64>, amount: u64 },
    Nowhere,
}

impl Told {
    /// One that counts itself where it is confirmed.
    #[cfg(test)]
    pub(crate) fn counted_by(told: &Arc<AtomicU64>) -> Self {
        Self(Place::Service { told: Arc::clone(told), amount: 1 })
    }

    /// Notes that the change was told.
    pub fn confirm(self) {
        match self.0 {
            Place::Rule { series, at, amount } => series.tell(at, amount),
            Place::Service { told, amount } => {
                told.fetch_add(amount, Ordering::Relaxed);
            }
            Place::Nowhere => {}
        }
    }
}

impl Changes {
    /// Those from the start of the process on.
    pub fn begin() -> Self {
        departed::keep();
        let buckets = service::so_far().calls.middles().map(|_| Arc::default()).collect();
        Self { counters: Default::default(), buckets }
    }

    /// All changes by now. Each but the gauge is there again until it is confirmed, so that there is to be one reading at
    /// a time.
    pub fn read(&self) -> impl Iterator<Item = Change> + '_ {
        striped::publish();
        let departed = departed::all();
        // Not held while they are told, which may take long: whoever makes room must see what is not used any more.
        let there: Vec<_> = series::all().iter().map(Arc::downgrade).collect();
        let rules = departed.into_iter().chain(there.into_iter().filter_map(|series| series.upgrade()));
        rules.flat_map(|series| of_rule(&series)).chain(self.of_service())
    }

    fn of_service(&self) -> impl Iterator<Item = Change> + '_ {
        let calls = service::so_far().calls;
        let counters = COUNTERS.into_iter().zip(of_service()).zip(&self.counters);
        let counters = counters.filter_map(|((name, count), told)| {
            let amount = more(count, told)?;
            Some(change(name, Measure::Count(amount), Place::Service { told: Arc::clone(told), amount }))
        });
        let middles: Vec<_> = calls.middles().collect();
        let times = middles.into_iter().zip(&self.buckets).filter_map(|((nanoseconds, count), told)| {
            let (calls, time) = (more(count, told)?, Duration::from_nanos(nanoseconds));
            let place = Place::Service { told: Arc::clone(told), amount: calls };
            Some(change(CALLS, Measure::Times { time, calls }, place))
        });
        let breakers = Measure::Gauge(redis_breakers_open() as u64);
        counters.chain(times).chain([change(BREAKERS, breakers, Place::Nowhere)])
    }
}

/// What was counted so far of the whole service, in the order of [`COUNTERS`].
pub(super) fn of_service() -> [u64; COUNTERS.len()] {
    let (service, answered) = (service::so_far(), requests::so_far());
    let ([succeeded, failed], [allowed, denied]) = (service.loads, lists::so_far());
    [
        service.redis_errors,
        service.service_errors,
        succeeded,
        failed,
        service.shadowed,
        service.calls.count(),
        answered.over_limit,
        answered.degraded,
        degraded::unknown_domains_so_far(),
        allowed,
        denied,
    ]
}

fn of_rule(series: &Arc<Series>) -> impl Iterator<Item = Change> + use<> {
    let untold = series.untold();
    let name = match untold {
        [0, 0, 0, 0, 0, 0] => String::new(),
        _ => stat_name::of(&series.domain, &series.path),
    };
    let series = Arc::clone(series);
    let kinds = OF_RULES.into_iter().zip(untold).enumerate().filter(|(_, (_, amount))| *amount > 0);
    kinds.map(move |(at, ((before, after), amount))| {
        let place = Place::Rule { series: Arc::clone(&series), at, amount };
        change(&format!("{before}.{name}.{after}"), Measure::Count(amount), place)
    })
}

fn change(name: &str, measure: Measure, place: Place) -> Change {
    Change { name: name.to_owned(), measure, told: Told(place) }
}

/// What was counted beyond what was told, if anything.
fn more(count: u64, told: &AtomicU64) -> Option<u64> {
    Some(count.saturating_sub(told.load(Ordering::Relaxed))).filter(|more| *more > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The amounts of a domain's metrics, and whether they are confirmed.
    fn told(domain: &str, confirmed: bool) -> Vec<(String, u64)> {
        let changes = Changes::begin();
        let of_domain = changes.read().filter(|change| change.name.contains(domain));
        of_domain
            .map(|change| {
                let Measure::Count(amount) = change.measure else { panic!("{change:?}") };
                if confirmed {
                    change.told.confirm();
                }
                (change.name, amount)
            })
            .collect()
    }

    #[test]
    fn what_is_not_confirmed_is_there_again_with_what_came_since_and_nothing_is_there_twice() {
        let counters = series::of_rule("changes", "a:b").0.counters();
        counters.add([5, 3, 0, 2, 0, 1]);
        let name = |last: &str| format!("ratelimit.service.rate_limit.changes.a_b.{last}");
        let degraded = "ratelimit.tollgate.rate_limit.changes.a_b.degraded".to_owned();
        let first = [
            (name("total_hits"), 5),
            (name("within_limit"), 3),
            (name("over_limit"), 2),
            (degraded.clone(), 1),
        ];
        assert_eq!(told("changes", false), first);
        counters.add([1, 1, 1, 0, 0, 0]);
        let second = [
            (name("total_hits"), 6),
            (name("within_limit"), 4),
            (name("near_limit"), 1),
            (name("over_limit"), 2),
            (degraded, 1),
        ];
        assert_eq!(told("changes", true), second);
        assert_eq!(told("changes", true), []);
        counters.add([1, 0, 0, 0, 0, 0]);
        assert_eq!(told("changes", true), [(name("total_hits"), 1)]);
    }

    #[test]
    fn what_made_room_for_others_is_told_all_the_same_and_once() {
        departed::keep();
        let (series, _) = series::of_rule("departed", "rule");
        series.counters().add([7, 0, 0, 0, 0, 0]);
        departed::note(vec![Arc::clone(&series)]);
        let changes = Changes::begin();
        let of_series = |change: &Change| change.name.contains("departed.rule.total_hits");
        // Here it has not really gone, and is found in both places.
        let found: Vec<_> = changes.read().filter(of_series).collect();
        assert_eq!(found.len(), 2);
        found.into_iter().take(1).for_each(|change| change.told.confirm());
        assert_eq!(changes.read().filter(of_series).count(), 0);
        assert!(!departed::all().iter().any(|waiting| Arc::ptr_eq(waiting, &series)));
    }
}
