//! One series: the traffic of a rule or a domain.

use super::{
    alarm::{Active, Alarm, Change, Position},
    anomaly::{Anomaly, AnomalyEnd, AnomalyKind, Counts, Transition},
    band::{
        Band, ExpectedHits, RUN_PART, Sensitivity, count_band, count_distance, share_band, share_distance,
    },
    drift::{Day, Drift},
    hour::{Expectation, HourInProgress, Learned, MIN_SHARE_HITS},
    reading::Reading,
    scale::{Pace, Spread},
    season::Season,
    window::{LONG_MINUTES, Minute, SHORT_MINUTES, Windows},
};

/// Hits of a window that must be expected for fewer ones to be unusual: below, none at all may be chance.
const MIN_LOW_HITS: f64 = 36.0;

/// Windows of which the spread must be learned before anomalies of them begin: a day.
const MIN_SHORT_WINDOWS: u32 = 288;
const MIN_LONG_WINDOWS: u32 = 24;

/// Minutes in a row beyond the narrower band of an hour that are unusual too: a run of three hours (Western Electric rules).
const RUN_MINUTES: u32 = 120;

/// Pace of learning spreads: large steps for two days, then small ones, so that an anomaly hardly widens its band before it
/// is found.
const SHORT_PACE: Pace = Pace { step: 0.03, first_observations: 576, first_step: 0.2 };
const LONG_PACE: Pace = Pace { step: 0.06, first_observations: 48, first_step: 0.5 };

/// Largest change of a level that keeps its pattern; beyond it, learning starts anew.
const MAX_RESCALE: f64 = 8.0;

/// An alarm, and the last reading that concerns it.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    alarm: Alarm,
    /// Minutes in a row beyond the narrower band of an hour.
    run: u32,
    reading: Reading,
}

impl Watched {
    /// Counts a run; whether it is long enough.
    const fn has_run(&mut self, is_beyond: bool) -> bool {
        self.run = if is_beyond { self.run.saturating_add(1) } else { 0 };
        self.run >= RUN_MINUTES
    }
}

/// Spreads of windows of five minutes and of an hour.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spreads {
    pub(crate) short: Spread,
    pub(crate) long: Spread,
}

/// State of a series.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub(crate) season: Season,
    pub(crate) rates: Spreads,
    pub(crate) shares: Spreads,
    pub(crate) drift: Drift,
    /// Identifies the limit under which the shares were observed.
    pub(crate) limit: u32,
    /// The hour in progress, since 1970.
    pub(crate) hour: Option<u32>,
    learned: HourInProgress,
    expectation: Option<Expectation>,
    windows: Windows,
    high: Watched,
    low: Watched,
    drifting: Watched,
    denied: Watched,
}

impl Series {
    /// A stored series. The hour in progress when it was stored is completed by what follows, or as a gap.
    pub(crate) fn stored(
        season: Season,
        rates: Spreads,
        shares: Spreads,
        drift: Drift,
        limit: u32,
        hour: u32,
    ) -> Self {
        let expectation = Expectation::of(&season, hour);
        Self { season, rates, shares, drift, limit, hour: Some(hour), expectation, ..Self::default() }
    }

    /// Adds a minute, which must be later than all before; `None` is a gap. Returns what begins and ends by it.
    pub fn observe(
        &mut self,
        minute: u64,
        counts: Option<Counts>,
        sensitivity: Sensitivity,
    ) -> Vec<Transition> {
        let mut found = Vec::new();
        self.enter_hour(minute, &mut found);
        let expected = self.expectation.map(|expectation| expectation.hits(minute));
        self.windows.add(minute, Minute::of(counts, expected.as_ref()));
        let Some(counts) = counts else { return found };
        let band =
            expected.and_then(|expected| self.check_rate(minute, counts, expected, sensitivity, &mut found));
        let most = self.check_share(minute, counts, sensitivity, &mut found);
        self.learn(counts, expected.as_ref(), band.as_ref(), most);
        found
    }

    /// Sets what identifies the limit. Under another limit, denied shares have to be learned anew.
    pub fn set_limit(&mut self, limit: u32) {
        if limit != self.limit {
            if self.limit != 0 {
                self.season.forget_shares();
                (self.shares, self.denied) = (Spreads::default(), Watched::default());
                self.expectation = self.hour.and_then(|hour| Expectation::of(&self.season, hour));
            }
            self.limit = limit;
        }
    }

    /// The anomalies that last.
    pub fn active(&self) -> impl Iterator<Item = Anomaly> + '_ {
        AnomalyKind::ALL.into_iter().filter_map(|kind| {
            let Watched { alarm, reading, run: _ } = self.watched(kind);
            alarm.active().map(|active| reading.anomaly(kind, active))
        })
    }

    /// Ends what lasts, because the rule was removed.
    pub(crate) fn abandon(&mut self) -> Vec<Transition> {
        let ended = self.active().map(Transition::removed).collect();
        (self.high, self.low, self.drifting, self.denied) = Default::default();
        ended
    }

    /// Continues an anomaly that another instance found.
    pub fn resume(&mut self, anomaly: &Anomaly) {
        let Anomaly { kind, since, observed, expected, low, high } = *anomaly;
        let watched = self.watched_mut(kind);
        watched.alarm.resume(since);
        watched.reading = Reading { observed, low, expected, high };
    }

    /// Whether a baseline of the rate is learned by now.
    pub fn is_learned(&self) -> bool {
        self.expectation.is_some() && self.rates.short.observations() >= MIN_SHORT_WINDOWS
    }

    /// Mean hits per minute of the last three weeks.
    pub(crate) fn level(&self) -> f64 {
        self.season.mean_rate()
    }

    const fn watched(&self, kind: AnomalyKind) -> &Watched {
        match kind {
            AnomalyKind::RateHigh => &self.high,
            AnomalyKind::RateLow => &self.low,
            AnomalyKind::RateDrift => &self.drifting,
            AnomalyKind::DeniedShareHigh => &self.denied,
        }
    }

    const fn watched_mut(&mut self, kind: AnomalyKind) -> &mut Watched {
        match kind {
            AnomalyKind::RateHigh => &mut self.high,
            AnomalyKind::RateLow => &mut self.low,
            AnomalyKind::RateDrift => &mut self.drifting,
            AnomalyKind::DeniedShareHigh => &mut self.denied,
        }
    }

    /// Completes the hour in progress if the minute is of another one.
    fn enter_hour(&mut self, minute: u64, found: &mut Vec<Transition>) {
        let hour = u32::try_from(minute / 60).unwrap_or(u32::MAX);
        if self.hour == Some(hour) {
            return;
        }
        if let Some(before) = self.hour.replace(hour) {
            self.season.set(before, self.learned.level().as_ref());
            let gaps = before.saturating_add(1).max(hour.saturating_sub(crate::season::HOURS as u32))..hour;
            gaps.for_each(|gap| self.season.set(gap, None));
            if before / 24 != hour / 24 {
                self.complete_day(minute, found);
            }
        }
        self.learned = HourInProgress::default();
        self.expectation = Expectation::of(&self.season, hour);
    }

    fn complete_day(&mut self, minute: u64, found: &mut Vec<Transition>) {
        let Day { is_drifting, is_usual, observed, expected } = self.drift.complete_day();
        let is_active = self.drifting.alarm.active().is_some();
        let per_minute = 1.0 / 1_440.0;
        let [observed, expected] = [observed, expected].map(|hits| hits * per_minute);
        self.drifting.reading = Reading { observed, low: expected, expected, high: expected };
        let change = match (is_active, is_drifting && self.is_learned(), is_usual) {
            (false, true, _) => self.drifting.alarm.set(minute, true),
            (true, _, true) => {
                self.drift.reset();
                self.drifting.alarm.set(minute, false)
            }
            _ => None,
        };
        self.note(AnomalyKind::RateDrift, minute, change, found);
    }

    /// Compares the rate with its band. Returns the band of a minute.
    fn check_rate(
        &mut self,
        minute: u64,
        counts: Counts,
        expected: ExpectedHits,
        sensitivity: Sensitivity,
        found: &mut Vec<Transition>,
    ) -> Option<Band> {
        let (short, long) = (*self.windows.short(), *self.windows.long());
        if !short.is_complete(SHORT_MINUTES) {
            return None;
        }
        let minutes = short.present;
        let of_short =
            ExpectedHits { peak: expected.peak * minutes, trough: expected.trough * minutes, ..short.sums() };
        let band = count_band(&of_short, self.rates.short.get(), sensitivity, 1.0);
        let [of_long, of_run] =
            [1.0, RUN_PART].map(|part| count_band(&long.sums(), self.rates.long.get(), sensitivity, part));
        let (has_long, ready) =
            (long.is_complete(LONG_MINUTES), self.rates.short.observations() >= MIN_SHORT_WINDOWS);
        let long_ready = has_long && self.rates.long.observations() >= MIN_LONG_WINDOWS;
        self.learn_rate(minute, &short, has_long.then_some(&long));

        let is_low = |sums: &Minute, band: &Band| sums.hits < band.low && sums.mid >= MIN_LOW_HITS;
        let runs = (
            self.high.has_run(long_ready && long.hits > of_run.high),
            self.low.has_run(long_ready && is_low(&long, &of_run)),
        );
        let high = (ready && short.hits > band.high, runs.0 || long_ready && long.hits > of_long.high);
        let low = (ready && is_low(&short, &band), runs.1 || long_ready && is_low(&long, &of_long));
        let below = band.is_well_below(short.hits) && !high.1;
        let above = band.is_well_above(short.hits) && !low.1;
        let readings = [(&short, &band), (&long, &of_run)]
            .map(|(sums, band)| Reading::of(sums.hits / sums.present.max(1.0), &band.per(sums.present)));
        let observed = counts.hits as f64;
        for (kind, outside, is_inside) in
            [(AnomalyKind::RateHigh, high, below), (AnomalyKind::RateLow, low, above)]
        {
            let [of_short, of_long] = readings;
            let watched = self.watched_mut(kind);
            watched.reading = if outside.1 && !outside.0 { of_long } else { of_short };
            let position = Position { is_outside: outside.0 || outside.1, is_inside };
            let change = watched.alarm.update(minute, position, observed, expected.mid);
            self.note(kind, minute, change, found);
        }
        Some(band.per(minutes))
    }

    /// Learns the spread of the rate, from windows that do not overlap, and not while it is unusual.
    fn learn_rate(&mut self, minute: u64, short: &Minute, long: Option<&Minute>) {
        if self.is_rate_unusual() {
            return;
        }
        let distance = |sums: &Minute, spread: Spread| {
            count_distance(sums.hits.max(0.0), sums.mid.max(0.0), spread.get())
        };
        if minute.is_multiple_of(SHORT_MINUTES as u64) {
            self.rates.short.learn(distance(short, self.rates.short), &SHORT_PACE);
        }
        if let Some(long) = long.filter(|_| minute.is_multiple_of(LONG_MINUTES as u64)) {
            self.rates.long.learn(distance(long, self.rates.long), &LONG_PACE);
        }
    }

    const fn is_rate_unusual(&self) -> bool {
        self.high.alarm.active().is_some() || self.low.alarm.active().is_some()
    }

    /// Compares the denied share with its band. Returns the highest share that is learned, if there is a bound.
    fn check_share(
        &mut self,
        minute: u64,
        counts: Counts,
        sensitivity: Sensitivity,
        found: &mut Vec<Transition>,
    ) -> Option<f64> {
        let (expected, high, peak) = self.expectation.and_then(|expectation| expectation.share(minute))?;
        let (short, long) = (*self.windows.short(), *self.windows.long());
        let is_usual = self.denied.alarm.active().is_none();
        let mut readings = [None; 2];
        let windows = [
            (short, SHORT_MINUTES, &SHORT_PACE, MIN_SHORT_WINDOWS),
            (long, LONG_MINUTES, &LONG_PACE, MIN_LONG_WINDOWS),
        ];
        let spreads = [&mut self.shares.short, &mut self.shares.long];
        for (((sums, minutes, pace, min), spread), place) in
            windows.into_iter().zip(spreads).zip(&mut readings)
        {
            if !sums.has_counts(minutes) || sums.hits < MIN_SHARE_HITS {
                continue;
            }
            let share = (sums.denied / sums.hits).clamp(0.0, 1.0);
            let band_of = |part| share_band(expected, high, peak, sums.hits, spread.get(), sensitivity, part);
            let (band, ready) = (band_of(1.0), spread.observations() >= min);
            let has_run =
                minutes == LONG_MINUTES && self.denied.has_run(ready && share > band_of(RUN_PART).high);
            let is_outside = has_run || ready && share > band.high;
            if is_usual && minute.is_multiple_of(minutes as u64) {
                spread.learn(share_distance(share, expected, sums.hits, spread.get()), pace);
            }
            *place = Some((Reading::of(share, &band), is_outside, band.is_well_below(share), band.high));
        }
        let [of_short, of_long] = readings;
        let is_outside =
            |reading: &Option<(Reading, bool, bool, f64)>| reading.is_some_and(|(_, outside, ..)| outside);
        // Without hits there is no share, and an anomaly ends.
        let is_inside = of_short.is_none_or(|(_, _, inside, _)| inside) && !is_outside(&of_long);
        let position = Position { is_outside: is_outside(&of_short) || is_outside(&of_long), is_inside };
        let shown =
            if is_outside(&of_long) && !is_outside(&of_short) { of_long } else { of_short.or(of_long) };
        if let Some((reading, ..)) = shown {
            self.denied.reading = reading;
        }
        let expected_hits = counts.hits as f64;
        let change = self.denied.alarm.update(minute, position, counts.denied as f64, expected_hits);
        self.note(AnomalyKind::DeniedShareHigh, minute, change, found);
        of_short.map(|(.., most)| most)
    }

    /// Learns the minute; of an unusual one, only as much as the band has.
    fn learn(
        &mut self,
        counts: Counts,
        expected: Option<&ExpectedHits>,
        band: Option<&Band>,
        most: Option<f64>,
    ) {
        let band = band.filter(|_| self.is_rate_unusual());
        let within = |rate: f64| band.map_or(rate, |band| rate.min(band.high).max(band.low));
        let most = most.filter(|_| self.denied.alarm.active().is_some()).unwrap_or(1.0);
        let hits = within(counts.hits as f64);
        let share = if counts.hits > 0 { counts.denied as f64 / counts.hits as f64 } else { 0.0 };
        let short = self.windows.short();
        let recent =
            short.has_counts(SHORT_MINUTES).then(|| within(short.hits.max(0.0) / short.present.max(1.0)));
        let recent_share = (short.hits >= MIN_SHARE_HITS).then(|| (short.denied / short.hits).min(most));
        self.learned.add(&Learned { hits, denied: share.min(most) * hits, recent, recent_share });
        if let Some(expected) = expected {
            self.drift.add(hits, expected.mid);
        }
    }

    /// Adds a change to what was found, and makes a level that lasted for a day the expected one.
    fn note(&mut self, kind: AnomalyKind, minute: u64, change: Option<Change>, found: &mut Vec<Transition>) {
        let reading = self.watched(kind).reading;
        let (active, end) = match change {
            None => return,
            Some(Change::Begun) => (Active { since: minute, ..Active::default() }, None),
            Some(Change::Ended(active)) => (active, Some(AnomalyEnd::Ended)),
            Some(Change::Accepted(active)) => (active, Some(AnomalyEnd::Accepted)),
        };
        found.push(Transition { anomaly: reading.anomaly(kind, &active), end });
        if end == Some(AnomalyEnd::Accepted) {
            self.accept(kind, &active);
        }
    }

    fn accept(&mut self, kind: AnomalyKind, active: &Active) {
        let ratio = active.observed / active.expected.max(f64::MIN_POSITIVE);
        if kind == AnomalyKind::DeniedShareHigh {
            self.season.raise_share(ratio.min(1.0));
        } else {
            if (1.0 / MAX_RESCALE..=MAX_RESCALE).contains(&ratio) {
                self.season.scale(ratio);
            } else {
                self.season.forget();
                self.rates = Spreads::default();
            }
            (self.high, self.low) = Default::default();
            self.windows = Windows::default();
            self.drift.reset();
        }
        self.expectation = self.hour.and_then(|hour| Expectation::of(&self.season, hour));
    }
}
