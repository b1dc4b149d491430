//! The hour in progress: what is learned of it, and what is expected in it.

use super::{
    band::ExpectedHits,
    season::{HourLevel, Season, Share},
};

/// Minutes of an hour without which nothing is learned of it.
const MIN_MINUTES: f64 = 30.0;
/// Hits of a window without which its share is no peak.
pub(crate) const MIN_SHARE_HITS: f64 = 100.0;

/// Minutes of a peak.
const BURST_MINUTES: f64 = 5.0;

/// Sums of the hour in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HourInProgress {
    minutes: f64,
    hits: f64,
    denied: f64,
    extremes: Option<(f64, f64)>,
    share_peak: f64,
}

/// A minute that is learned, with the rate and denied share of the last five.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learned {
    pub(crate) hits: f64,
    pub(crate) denied: f64,
    /// Per minute, if there were enough minutes.
    pub(crate) recent: Option<f64>,
    /// If there were enough hits.
    pub(crate) recent_share: Option<f64>,
}

impl HourInProgress {
    pub(crate) fn add(&mut self, minute: &Learned) {
        self.minutes += 1.0;
        self.hits += minute.hits;
        self.denied += minute.denied;
        if let Some(recent) = minute.recent {
            let (peak, trough) = self.extremes.unwrap_or((recent, recent));
            self.extremes = Some((peak.max(recent), trough.min(recent)));
        }
        self.share_peak = self.share_peak.max(minute.recent_share.unwrap_or_default());
    }

    /// The level of the completed hour, unless much of it is missing.
    pub(crate) fn level(&self) -> Option<HourLevel> {
        if self.minutes < MIN_MINUTES {
            return None;
        }
        let rate = self.hits / self.minutes;
        let (peak, trough) = self.extremes.unwrap_or((rate, rate));
        let share = (self.hits >= 1.0).then(|| {
            let mean = self.denied / self.hits;
            Share { mean, peak: self.share_peak.max(mean) }
        });
        Some(HourLevel { rate, peak: peak.max(rate), trough: trough.min(rate), share })
    }
}

/// Expectation of an hour: its level, and those of the hours beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    before: HourLevel,
    now: HourLevel,
    after: HourLevel,
}

impl Expectation {
    /// The expectation for an hour, if the same hour of another week is known.
    pub(crate) fn of(season: &Season, hour: u32) -> Option<Self> {
        let now = season.expected(hour)?;
        let beside = |hour: Option<u32>| hour.and_then(|hour| season.expected(hour)).unwrap_or(now);
        Some(Self { before: beside(hour.checked_sub(1)), now, after: beside(hour.checked_add(1)) })
    }

    /// Expected hits of one minute of the hour.
    pub(crate) fn hits(&self, minute: u64) -> ExpectedHits {
        let all = [self.before, self.now, self.after];
        let most = |part: fn(&HourLevel) -> f64| all.iter().map(part).fold(0.0, f64::max);
        let least = |part: fn(&HourLevel) -> f64| all.iter().map(part).fold(f64::INFINITY, f64::min);
        let mid = self.interpolated(minute, |level| level.rate);
        // What comes in bursts within an hour may be due in another minute of it.
        let burst = most(|level| level.peak - level.rate) * BURST_MINUTES / 60.0;
        ExpectedHits {
            low: (mid - burst).max(0.0),
            mid,
            high: mid + burst,
            peak: most(|level| level.peak),
            trough: least(|level| level.trough),
        }
    }

    /// Linear between the middles of the hours.
    fn interpolated(&self, minute: u64, part: impl Fn(&HourLevel) -> f64) -> f64 {
        let of_hour = minute.checked_rem(60).unwrap_or_default() as f64;
        let offset = (of_hour - 29.5) / 60.0;
        let other = if offset < 0.0 { &self.before } else { &self.after };
        let weight = offset.abs();
        (1.0 - weight).mul_add(part(&self.now), weight * part(other))
    }

    /// Expected denied share in a minute, the highest of the hours, and its usual peak, if shares are known.
    pub(crate) fn share(&self, minute: u64) -> Option<(f64, f64, f64)> {
        let now = self.now.share?;
        let share = |level: &HourLevel| level.share.unwrap_or(now);
        let all = [self.before, self.now, self.after];
        let most = |part: fn(Share) -> f64| all.iter().map(|level| part(share(level))).fold(0.0, f64::max);
        let mid = self.interpolated(minute, |level| share(level).mean);
        Some((mid, most(|share| share.mean), most(|share| share.peak)))
    }
}
