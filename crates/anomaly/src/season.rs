//! Hourly levels of the last three weeks, six bytes for each hour.

use crate::band::{angle, share_at};

/// Hours of a week, and of all weeks that are kept.
const HOURS_OF_WEEK: u32 = 168;
pub(crate) const HOURS: usize = 504;
/// Bytes of an hour in a record.
pub(crate) const HOUR_BYTES: usize = 6;

/// Steps of an octave: of a level, and of the ratio of an extreme to it.
const LEVEL_STEPS: f64 = 2_048.0;
const RATIO_STEPS: f64 = 16.0;

/// Summary of an hour: rates per minute, and shares of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HourLevel {
    pub(crate) rate: f64,
    /// Extremes of five minutes, per minute.
    pub(crate) peak: f64,
    pub(crate) trough: f64,
    /// Denied share and its peak, where there were hits.
    pub(crate) share: Option<Share>,
}

/// Denied share of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) mean: f64,
    pub(crate) peak: f64,
}

/// An hour, coded: the level plus one (zero where the hour is missing), its extremes, and shares likewise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Coded {
    level: u16,
    peak: u8,
    trough: u8,
    share: u8,
    share_peak: u8,
}

/// Levels by hour since 1970, modulo three weeks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Season(Box<[Coded]>);

impl Default for Season {
    fn default() -> Self {
        Self(vec![Coded::default(); HOURS].into())
    }
}

fn slot(hour: u32) -> usize {
    usize::try_from(hour).unwrap_or_default().checked_rem(HOURS).unwrap_or_default()
}

fn code_ratio(ratio: f64) -> u8 {
    // Saturates; not a number is zero.
    (RATIO_STEPS * ratio.max(1.0).log2()).round() as u8
}

fn ratio(code: u8) -> f64 {
    (f64::from(code) / RATIO_STEPS).exp2()
}

fn code_share(share: f64) -> u8 {
    let part = angle(share) / std::f64::consts::FRAC_PI_2;
    (part.mul_add(254.0, 1.0)).round() as u8
}

fn share(code: u8) -> Option<f64> {
    let code = code.checked_sub(1)?;
    Some(share_at(f64::from(code) / 254.0 * std::f64::consts::FRAC_PI_2))
}

impl Coded {
    fn of(level: &HourLevel) -> Self {
        let code = (LEVEL_STEPS * (level.rate.max(0.0) + 1.0).log2()).round();
        let base = level.rate.max(f64::MIN_POSITIVE);
        Self {
            level: (code + 1.0) as u16,
            peak: code_ratio(level.peak / base),
            trough: if level.trough > 0.0 { code_ratio(base / level.trough) } else { u8::MAX },
            share: level.share.map_or(0, |share| code_share(share.mean)),
            share_peak: level.share.map_or(0, |share| code_share(share.peak)),
        }
    }

    fn level(self) -> Option<HourLevel> {
        let code = self.level.checked_sub(1)?;
        let rate = ((f64::from(code) / LEVEL_STEPS).exp2() - 1.0).max(0.0);
        let trough = if self.trough == u8::MAX { 0.0 } else { rate / ratio(self.trough) };
        let shares = share(self.share).zip(share(self.share_peak));
        let share = shares.map(|(mean, peak)| Share { mean, peak });
        Some(HourLevel { rate, peak: rate * ratio(self.peak), trough, share })
    }
}

/// The median of up to three values, if there are any.
fn median(values: [Option<f64>; 3]) -> Option<f64> {
    let mut all = values.into_iter().flatten();
    let first = all.next()?;
    Some(match (all.next(), all.next()) {
        (None, _) => first,
        (Some(second), None) => f64::midpoint(first, second),
        (Some(second), Some(third)) => first.min(second).max(first.max(second).min(third)),
    })
}

impl Season {
    /// Records an hour.
    pub(crate) fn set(&mut self, hour: u32, level: Option<&HourLevel>) {
        if let Some(coded) = self.0.get_mut(slot(hour)) {
            *coded = level.map_or_else(Coded::default, Coded::of);
        }
    }

    /// The median of the same hours of the three weeks before `hour`, as far as they are known.
    pub(crate) fn expected(&self, hour: u32) -> Option<HourLevel> {
        let before = [1, 2, 3].map(|weeks: u32| {
            let hour = hour.checked_sub(HOURS_OF_WEEK.saturating_mul(weeks))?;
            self.0.get(slot(hour))?.level()
        });
        let of = |part: fn(HourLevel) -> f64| median(before.map(|level| level.map(part)));
        let share = |part: fn(Share) -> f64| median(before.map(|level| level?.share.map(part)));
        let shares = share(|share| share.mean).zip(share(|share| share.peak));
        Some(HourLevel {
            rate: of(|level| level.rate)?,
            peak: of(|level| level.peak)?,
            trough: of(|level| level.trough)?,
            share: shares.map(|(mean, peak)| Share { mean, peak }),
        })
    }

    /// The mean rate of all known hours; zero if there are none.
    pub(crate) fn mean_rate(&self) -> f64 {
        let (count, sum) = self
            .0
            .iter()
            .filter_map(|coded| coded.level())
            .fold((0.0_f64, 0.0), |(count, sum), level| (count + 1.0, sum + level.rate));
        sum / count.max(1.0)
    }

    fn change(&mut self, change: impl Fn(&mut HourLevel)) {
        for coded in &mut self.0 {
            if let Some(mut level) = coded.level() {
                change(&mut level);
                *coded = Coded::of(&level);
            }
        }
    }

    /// Multiplies all rates: a new level of the same pattern.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.change(|level| {
            level.rate *= factor;
            level.peak *= factor;
            level.trough *= factor;
        });
    }

    /// Raises all denied shares to at least `mean`.
    pub(crate) fn raise_share(&mut self, mean: f64) {
        self.change(|level| {
            if let Some(share) = &mut level.share {
                share.mean = share.mean.max(mean);
                share.peak = share.peak.max(mean);
            }
        });
    }

    /// Drops all denied shares.
    pub(crate) fn forget_shares(&mut self) {
        self.change(|level| level.share = None);
    }

    /// Drops everything.
    pub(crate) fn forget(&mut self) {
        self.0.fill(Coded::default());
    }

    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().flat_map(|coded| {
            let [low, high] = coded.level.to_le_bytes();
            [low, high, coded.peak, coded.trough, coded.share, coded.share_peak]
        })
    }

    /// Reads [`Self::bytes`], if there are as many as there must be.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (hours, rest) = bytes.as_chunks::<HOUR_BYTES>();
        let coded = hours.iter().map(|[low, high, peak, trough, share, share_peak]| Coded {
            level: u16::from_le_bytes([*low, *high]),
            peak: *peak,
            trough: *trough,
            share: *share,
            share_peak: *share_peak,
        });
        let all: Box<[Coded]> = coded.collect();
        (rest.is_empty() && all.len() == HOURS).then_some(Self(all))
    }
}
