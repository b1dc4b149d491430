//! The last hour of a series, minute by minute, and the sums of its last minutes.

use super::{anomaly::Counts, band::ExpectedHits};

/// Minutes of the windows.
pub(crate) const SHORT_MINUTES: usize = 5;
pub(crate) const LONG_MINUTES: usize = 60;

/// A minute of a series: its hits, and the expected ones if there is an expectation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Minute {
    pub(crate) hits: f64,
    pub(crate) denied: f64,
    pub(crate) low: f64,
    pub(crate) mid: f64,
    pub(crate) high: f64,
    /// 1 if the minute is no gap; 1 if there is an expectation.
    pub(crate) present: f64,
    pub(crate) expected: f64,
}

impl Minute {
    /// A minute with these counts; without any, a gap.
    pub(crate) fn of(counts: Option<Counts>, expected: Option<&ExpectedHits>) -> Self {
        let Some(Counts { hits, denied }) = counts else { return Self::default() };
        let minute = Self { hits: hits as f64, denied: denied as f64, present: 1.0, ..Self::default() };
        match expected {
            Some(ExpectedHits { low, mid, high, .. }) => {
                Self { low: *low, mid: *mid, high: *high, expected: 1.0, ..minute }
            }
            None => minute,
        }
    }

    /// Expected hits of a window, without known extremes.
    pub(crate) fn sums(&self) -> ExpectedHits {
        let of = |sum: f64| sum.max(0.0);
        ExpectedHits {
            low: of(self.low),
            mid: of(self.mid),
            high: of(self.high),
            peak: 0.0,
            trough: f64::INFINITY,
        }
    }

    /// Adds `other` times `sign`.
    fn add(&mut self, other: &Self, sign: f64) {
        self.hits += sign * other.hits;
        self.denied += sign * other.denied;
        self.low += sign * other.low;
        self.mid += sign * other.mid;
        self.high += sign * other.high;
        self.present += sign * other.present;
        self.expected += sign * other.expected;
    }

    /// Whether at least this part of the minutes of a window is no gap, and there is an expectation for all of them.
    pub(crate) fn is_complete(&self, minutes: usize) -> bool {
        self.has_counts(minutes) && (self.expected - self.present).abs() < 0.5
    }

    /// Whether at least three quarters of the minutes of a window are no gaps.
    pub(crate) fn has_counts(&self, minutes: usize) -> bool {
        self.present >= 0.75 * minutes as f64
    }
}

/// The last hour.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    /// By minute since 1970, modulo an hour.
    minutes: Box<[Minute]>,
    short: Minute,
    long: Minute,
    at: Option<u64>,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            minutes: vec![Minute::default(); LONG_MINUTES].into(),
            short: Minute::default(),
            long: Minute::default(),
            at: None,
        }
    }
}

fn slot(minute: u64) -> usize {
    usize::try_from(minute).unwrap_or_default().checked_rem(LONG_MINUTES).unwrap_or_default()
}

impl Windows {
    /// Adds a minute that is later than all before; those in between are gaps.
    pub(crate) fn add(&mut self, minute: u64, counts: Minute) {
        let skipped = self.at.map_or(0, |at| minute.saturating_sub(at).saturating_sub(1));
        if skipped >= LONG_MINUTES as u64 {
            *self = Self::default();
        } else {
            let first = minute.saturating_sub(skipped);
            (first..minute).for_each(|gap| self.push(gap, Minute::default()));
        }
        self.push(minute, counts);
        self.at = Some(minute);
    }

    fn push(&mut self, minute: u64, counts: Minute) {
        let leaves_short =
            minute.checked_sub(SHORT_MINUTES as u64).and_then(|before| self.minutes.get(slot(before)));
        let leaves_short = leaves_short.copied().unwrap_or_default();
        let Some(place) = self.minutes.get_mut(slot(minute)) else { return };
        let leaves_long = std::mem::replace(place, counts);
        if slot(minute) == 0 {
            // Once an hour, so that errors of rounding do not add up.
            self.long = self.sum(0..LONG_MINUTES as u64, minute);
            self.short = self.sum(0..SHORT_MINUTES as u64, minute);
            return;
        }
        self.short.add(&counts, 1.0);
        self.short.add(&leaves_short, -1.0);
        self.long.add(&counts, 1.0);
        self.long.add(&leaves_long, -1.0);
    }

    fn sum(&self, ages: std::ops::Range<u64>, minute: u64) -> Minute {
        let mut sum = Minute::default();
        for age in ages {
            let place = minute.checked_sub(age).and_then(|minute| self.minutes.get(slot(minute)));
            place.inspect(|counts| sum.add(counts, 1.0));
        }
        sum
    }

    /// Sums of the last five minutes.
    pub(crate) const fn short(&self) -> &Minute {
        &self.short
    }

    /// Sums of the last hour.
    pub(crate) const fn long(&self) -> &Minute {
        &self.long
    }
}
