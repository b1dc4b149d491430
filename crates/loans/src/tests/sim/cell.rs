//! A counter of one region, or the ideal one of all: each algorithm in its simplest form, under any effective limit.

use std::collections::VecDeque;

use crate::terms::{LimitKind, Moment};

/// State of a counter.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Label and hits.
    Fixed { label: u64, count: u64 },
    /// Label, hits of its window and of the one before.
    Sliding { label: u64, count: u64, previous: u64 },
    /// Times of hits.
    Log(VecDeque<u64>),
    /// When the bucket is full, in nanoseconds.
    Bucket { full_at: u64 },
    /// Number and expiry of permits.
    Permits(VecDeque<(u64, u64)>),
}

impl Cell {
    pub(crate) fn new(kind: LimitKind) -> Self {
        match kind {
            LimitKind::FixedWindow { .. } => Self::Fixed { label: 0, count: 0 },
            LimitKind::SlidingWindow { .. } => Self::Sliding { label: 0, count: 0, previous: 0 },
            LimitKind::SlidingWindowLog { .. } => Self::Log(VecDeque::new()),
            LimitKind::TokenBucket { .. } => Self::Bucket { full_at: 0 },
            LimitKind::Concurrency { .. } => Self::Permits(VecDeque::new()),
        }
    }

    /// The time at the counter, by its region's clock.
    pub(crate) fn moment(&self, kind: LimitKind, micros: u64) -> Moment {
        let Some(step) = kind.label_step() else { return Moment { label: micros, micros } };
        let seconds = micros / 1_000_000;
        let end = seconds - seconds % step + step;
        let known = match self {
            Self::Fixed { label, .. } | Self::Sliding { label, .. } => *label,
            _ => 0,
        };
        Moment { label: end.max(known), micros }
    }

    /// Moves the counter to `now`, and returns the hits that count; 0 for a bucket.
    pub(crate) fn used(&mut self, kind: LimitKind, now: Moment) -> u64 {
        match self {
            Self::Fixed { label, count } => {
                if *label < now.label {
                    (*label, *count) = (now.label, 0);
                }
                *count
            }
            Self::Sliding { label, count, previous } => {
                let step = kind.label_step().unwrap_or(1);
                if *label < now.label {
                    *previous = if *label + step == now.label { *count } else { 0 };
                    (*label, *count) = (now.label, 0);
                }
                let window = step * 1_000_000;
                let left = (now.label * 1_000_000).saturating_sub(now.micros).min(window);
                *count + (*previous * left).div_ceil(window)
            }
            Self::Log(times) => {
                while times.front().is_some_and(|time| *time + kind.window_micros() <= now.micros) {
                    times.pop_front();
                }
                times.len() as u64
            }
            Self::Bucket { .. } => 0,
            Self::Permits(held) => {
                while held.front().is_some_and(|(_, expires_at)| *expires_at <= now.micros) {
                    held.pop_front();
                }
                held.len() as u64
            }
        }
    }

    /// Decides `hits` under an effective limit; `id` names permits.
    pub(crate) fn admit(&mut self, kind: LimitKind, now: Moment, effective: u32, hits: u64, id: u64) -> bool {
        let used = self.used(kind, now);
        if !matches!(self, Self::Bucket { .. }) && used + hits > u64::from(effective) {
            return false;
        }
        match self {
            Self::Fixed { count, .. } | Self::Sliding { count, .. } => *count += hits,
            Self::Log(times) => times.extend((0..hits).map(|_| now.micros)),
            Self::Bucket { full_at } => {
                let LimitKind::TokenBucket { capacity, .. } = kind else { return false };
                let cost = (kind.window_micros() * 1_000).div_ceil(effective.max(1).into()) * hits;
                let owed = full_at.saturating_sub(now.micros * 1_000);
                if effective == 0 || owed + cost > capacity * 1_000 {
                    return false;
                }
                *full_at = now.micros * 1_000 + owed + cost;
            }
            Self::Permits(held) => {
                let LimitKind::Concurrency { lease_ttl } = kind else { return false };
                held.extend((0..hits).map(|_| (id, now.micros + lease_ttl)));
            }
        }
        true
    }

    /// Returns permits.
    pub(crate) fn release(&mut self, id: u64) {
        if let Self::Permits(held) = self {
            release(held, id);
        }
    }

    /// When a bucket is full, in microseconds.
    pub(crate) fn full_at(&self) -> u64 {
        match self {
            Self::Bucket { full_at } => full_at.div_ceil(1_000),
            _ => 0,
        }
    }

    /// Sets when a bucket is full, unless it is so later.
    pub(crate) fn set_full_at(&mut self, micros: u64) {
        if let Self::Bucket { full_at } = self
            && full_at.div_ceil(1_000) != micros
        {
            *full_at = micros * 1_000;
        }
    }
}

/// Removes the permits of a number; numbers rise.
pub(super) fn release(held: &mut VecDeque<(u64, u64)>, id: u64) {
    let first = held.partition_point(|(held, _)| *held < id);
    let last = held.partition_point(|(held, _)| *held <= id);
    held.drain(first..last);
}
