//! The page with all metrics of the process.

use std::{fmt, sync::Arc};

use super::{
    exposition::{Metric, Page},
    family::RECORDER,
    striped_counter::publish,
};

/// Renders metrics. Clones render the same ones.
#[derive(Clone)]
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
        let mut page = Page::after(RECORDER.handle().render());
        self.0.iter().for_each(|metric| metric.write(&mut page));
        page.into_text()
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}
