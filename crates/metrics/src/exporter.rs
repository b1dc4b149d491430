//! The page with all metrics of the process.

use std::{fmt, sync::Arc};

use super::{
    exposition::{Metric, Page},
    points::MetricPoints,
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
        let mut page = Page::default();
        self.0.iter().for_each(|metric| metric.write(&mut page));
        page.into_text()
    }

    /// Every metric that has series so far, one after the other, so that the points of all are not kept together.
    pub fn read(&self, mut each: impl FnMut(MetricPoints)) {
        publish();
        for metric in self.0.iter() {
            let mut page = Page::of_points();
            metric.write(&mut page);
            page.into_points().into_iter().filter(|metric| !metric.points.is_empty()).for_each(&mut each);
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}
