//! Synthetic traffic: daily and weekly seasons, days that differ, slow and fast noise, scheduled jobs, and chance; and the
//! counters of a domain in it, as promtool reads them.

use std::{f64::consts::TAU, fmt::Write as _};

/// Minutes of a day.
pub(super) const DAY: u64 = 1_440;
/// Correlation of the slow noise from minute to minute: it lasts for half an hour.
const CORRELATION: f64 = 0.967;

/// Hits of a minute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) denied: u64,
}

/// Jobs that clients run by a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jobs {
    None,
    /// Four times the traffic in the first two minutes of each hour.
    Hourly,
    /// Seven times the traffic for five minutes each night.
    Nightly,
}

/// A domain's traffic.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    random: fastrand::Rng,
    /// Hits per minute.
    pub(super) base: f64,
    daily: f64,
    phase: f64,
    weekend: f64,
    /// Relative standard deviations: of minutes, of the slow noise, and of days.
    rough: f64,
    slow: f64,
    days: f64,
    jobs: Jobs,
    /// Denied share.
    share: f64,
    level: f64,
    share_level: f64,
    day: Option<(u64, f64)>,
}

impl Traffic {
    /// A domain by chance: from one hit in ten minutes to 100,000 a minute.
    pub(super) fn by_chance(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut between = |low: f64, high: f64| low + random.f64() * (high - low);
        let base = 10_f64.powf(between(-1.0, 5.0));
        let (daily, phase, weekend) = (between(0.2, 0.9), between(0.0, 24.0), between(0.2, 1.1));
        let share = between(0.0, 1.0).powi(3) * 0.3;
        let mut of = |all: &[f64]| all[random.usize(..all.len())];
        let (rough, slow, days) =
            (of(&[0.0, 0.1, 0.3, 0.5]), of(&[0.02, 0.05, 0.1, 0.15]), of(&[0.02, 0.05, 0.08]));
        let jobs = [Jobs::None, Jobs::None, Jobs::None, Jobs::Hourly, Jobs::Nightly][random.usize(..5)];
        Self {
            random,
            base,
            daily,
            phase,
            weekend,
            rough,
            slow,
            days,
            jobs,
            share,
            level: 0.0,
            share_level: 0.0,
            day: None,
        }
    }

    fn normal(&mut self) -> f64 {
        let (one, two) = (1.0 - self.random.f64(), self.random.f64());
        (-2.0 * one.ln()).sqrt() * (TAU * two).cos()
    }

    fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            return (mean.sqrt().mul_add(self.normal(), mean)).round().max(0.0) as u64;
        }
        let (least, mut product, mut count) = ((-mean).exp(), self.random.f64(), 0);
        while product > least {
            product *= self.random.f64();
            count += 1;
        }
        count
    }

    /// The counts of a minute, with the rate times `rate` and the denied share plus `share`.
    pub(super) fn counts(&mut self, minute: u64, rate: f64, share: f64) -> Counts {
        let (hour, day) = ((minute % DAY) as f64 / 60.0, minute / DAY);
        if self.day.is_none_or(|(known, _)| known != day) {
            self.day = Some((day, self.days * self.normal()));
        }
        let innovation = (1.0 - CORRELATION * CORRELATION).sqrt();
        self.level = CORRELATION * self.level + innovation * self.normal();
        self.share_level = CORRELATION * self.share_level + innovation * self.normal();
        let angle = TAU * (hour - self.phase) / 24.0;
        let season = 1.0 + self.daily * (angle.sin() + 0.2 * (2.0 * angle).sin());
        // 1970 began on a Thursday.
        let week = if (day + 3) % 7 >= 5 { self.weekend } else { 1.0 };
        let jobs = match self.jobs {
            Jobs::Hourly if minute % 60 < 2 => 4.0,
            Jobs::Nightly if minute % DAY / 5 == 36 => 7.0,
            _ => 1.0,
        };
        let noise = (self.slow * self.level + self.day.expect("set").1 + self.rough * self.normal()
            - self.rough * self.rough / 2.0)
            .exp();
        let mean = self.base * season.max(0.02) * week * jobs * noise * rate;
        let hits = self.poisson(mean);
        let usual = self.share * (1.0 + 0.5 * angle.sin()) * (0.3 * self.share_level).exp();
        let denied = self.poisson(hits as f64 * (usual + share).min(1.0)).min(hits);
        Counts { hits, denied }
    }
}

/// A factor of the hits, and what is added to the denied share.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) hits: f64,
    pub(super) denied: f64,
}

impl Change {
    pub(super) const NONE: Self = Self { hits: 1.0, denied: 0.0 };
}

/// A domain's counters since minute 0.
#[derive(Clone)]
pub(super) struct History {
    pub(super) traffic: Traffic,
    minute: u64,
    hits: Samples,
    denied: Samples,
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            traffic: Traffic::by_chance(seed),
            minute: 0,
            hits: Samples::default(),
            denied: Samples::default(),
        }
    }

    /// Continues to a minute, with a change by the minutes since now.
    pub(super) fn run_until(&mut self, end: u64, change: fn(u64) -> Change) {
        let begin = self.minute;
        for minute in begin..end {
            let Change { hits, denied } = change(minute - begin);
            let counts = self.traffic.counts(minute, hits, denied);
            self.hits.add(minute + 1, counts.hits);
            self.denied.add(minute + 1, counts.denied);
        }
        self.minute = end;
    }

    /// Series of the counters, each with its values.
    pub(super) fn series(self, domain: &str) -> [(String, String); 2] {
        [("hits", self.hits), ("over_limit", self.denied)].map(|(name, samples)| {
            (format!("tollgate_rule_{name}_total{{domain=\"{domain}\"}}"), samples.values)
        })
    }
}

/// Values of a counter, of two minutes in five: the first and the last within the range of a rate.
#[derive(Clone)]
struct Samples {
    total: u64,
    values: String,
}

impl Default for Samples {
    fn default() -> Self {
        Self { total: 0, values: "0".to_owned() }
    }
}

impl Samples {
    fn add(&mut self, minute: u64, count: u64) {
        self.total += count;
        let gap = match minute % 5 {
            0 => " _x3",
            1 => "",
            _ => return,
        };
        write!(self.values, "{gap} {}", self.total).expect("a string");
    }
}
