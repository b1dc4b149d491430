//! Metrics whose values are computed when a page is rendered.

use std::fmt;

use super::{
    declared::{Declared, MetricKind},
    exposition::{Metric, Page},
};

/// Metrics that one function adds to the page.
pub struct Computed<const N: usize> {
    declared: [Declared; N],
    write: fn(&[Declared; N], &mut Page),
}

impl<const N: usize> Computed<N> {
    /// Metrics that are collected together.
    pub const fn group(declared: [Declared; N], write: fn(&[Declared; N], &mut Page)) -> Self {
        Self { declared, write }
    }
}

impl Computed<1> {
    /// A gauge with labels; `write` begins it, unless it has no series.
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        write: fn(&[Declared; 1], &mut Page),
    ) -> Self {
        Self::group([Declared { name, kind: MetricKind::Gauge, labels, help }], write)
    }

    /// A counter with labels; `write` begins it, unless it has no series.
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        write: fn(&[Declared; 1], &mut Page),
    ) -> Self {
        Self::group([Declared { name, kind: MetricKind::Counter, labels, help }], write)
    }
}

impl<const N: usize> Metric for Computed<N> {
    fn declared(&self) -> &[Declared] {
        &self.declared
    }

    fn write(&self, page: &mut Page) {
        (self.write)(&self.declared, page);
    }
}

impl<const N: usize> fmt::Debug for Computed<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Computed").field(&self.declared).finish()
    }
}
