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

mod computed;
mod counter;
mod declared;
mod deltas;
mod exporter;
mod exposition;
mod family;
mod gauge;
mod histogram;
pub mod series;
mod striped_counter;

pub use self::{
    computed::Computed,
    counter::{Counter, CounterFamily},
    declared::{Declared, MetricKind},
    deltas::{Delta, DeltaSources, Deltas, Measure, Reader, Receipt},
    exporter::Exporter,
    exposition::{Metric, Page},
    gauge::{Gauge, GaugeFamily},
    histogram::{Histogram, Observed, Unit},
    striped_counter::{Sink, Striped, StripedCounter, StripedFamily, publish},
};
