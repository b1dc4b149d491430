//! Counters, gauges and histograms, the page on which Prometheus scrapes them.
//!
//! A metric is declared once, as a static with its name, labels and help, in the `metrics.rs` beside the code that records
//! it. Each such file lists its statics; the program joins the lists into one [`Exporter`]. This crate knows no metric by
//! name.
//!
//! - [`Counter`], [`Gauge`] and their families: for events that are rare. The exporter crate records and renders them.
//! - [`StripedCounter`], [`StripedFamily`] and [`Histogram`]: for each request. Threads add to memory of their own.
//! - [`Computed`]: for values of other modules, read when the page is rendered.
//! - [`series`]: counters by domain and path, with a bound on their number.
//! - [`Deltas`]: the same counts for push exporters.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod deltas;
mod exposition;
mod histogram;
mod recorded;
pub mod series;
mod striped_counter;

use std::sync::Arc;

pub use self::deltas::{Delta, DeltaSources, Deltas, Measure, Reader, Receipt};
pub use self::exposition::{Computed, Declared, Metric, MetricKind, Page};
pub use self::histogram::{Histogram, Observed, Unit};
use self::recorded::RECORDER;
pub use self::recorded::{Counter, CounterFamily, Gauge, GaugeFamily};
pub use self::striped_counter::{Sink, Striped, StripedCounter, StripedFamily, publish};

/// Renders metrics. Clones render the same ones.
#[derive(Clone, Debug)]
pub struct Exporter(Arc<[&'static dyn Metric]>);

impl Exporter {
    /// An exporter of these metrics.
    pub fn new(metrics: impl IntoIterator<Item = &'static dyn Metric>) -> Self {
        let metrics: Arc<[_]> = metrics.into_iter().collect();
        metrics.iter().for_each(|metric| metric.register());
        Self(metrics)
    }

    /// Every series so far, in Prometheus' text format.
    pub fn render(&self) -> String {
        publish();
        let mut page = Page(RECORDER.handle().render());
        self.0.iter().for_each(|metric| metric.write(&mut page));
        page.0
    }
}
