//! Observed counts, and anomalies among them.

/// Hits of a minute, of the whole fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Decided hits.
    pub hits: u64,
    /// Hits over the limit.
    pub denied: u64,
}

/// Kind of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// More hits than usual.
    RateHigh,
    /// Fewer hits than usual.
    RateLow,
    /// A slow change over days.
    RateDrift,
    /// A larger share of denied hits than usual.
    DeniedShareHigh,
}

impl AnomalyKind {
    pub const ALL: [Self; 4] = [Self::RateHigh, Self::RateLow, Self::RateDrift, Self::DeniedShareHigh];

    pub const fn name(self) -> &'static str {
        match self {
            Self::RateHigh => "rate_high",
            Self::RateLow => "rate_low",
            Self::RateDrift => "rate_drift",
            Self::DeniedShareHigh => "denied_share_high",
        }
    }
}

/// An unusual observation: hits per minute, or a share of hits between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anomaly {
    pub kind: AnomalyKind,
    /// The minute in which it began, since 1970.
    pub since: u64,
    pub observed: f64,
    pub expected: f64,
    /// The band of usual values.
    pub low: f64,
    pub high: f64,
}

/// Reason that an anomaly ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnomalyEnd {
    /// The observations are usual again.
    Ended,
    /// After a day, accepted as the new normal.
    Accepted,
    /// The rule or the domain was removed.
    Removed,
}

/// Begin of an anomaly, or its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    pub anomaly: Anomaly,
    /// If it ended.
    pub end: Option<AnomalyEnd>,
}

impl Transition {
    pub(crate) const fn removed(anomaly: Anomaly) -> Self {
        Self { anomaly, end: Some(AnomalyEnd::Removed) }
    }
}
