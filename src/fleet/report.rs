//! Report of an instance about its traffic, every few seconds.

use serde::{Deserialize, Serialize};
use tollgate_control::MAX_REPORT_BYTES;
use tollgate_limiter::talkers::{self, DomainCounts};

/// Size of a report: less than the maximum, for names that need escapes.
const TARGET_BYTES: usize = MAX_REPORT_BYTES / 2;

/// Report of an instance, stored as JSON. A release ignores fields that it does not have, and lacks those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Heaviest keys by domain; `None` if they are not sampled.
    #[serde(default)]
    pub(crate) top: Option<Vec<DomainCounts>>,
}

impl Report {
    /// The report of this instance. Takes up to a millisecond for each domain.
    pub(super) fn of_this_instance(is_sampling: bool) -> Self {
        Self { top: is_sampling.then(|| talkers::counts(TARGET_BYTES)) }
    }

    /// The report as JSON of at most [`MAX_REPORT_BYTES`]; without keys if they do not fit.
    pub(super) fn into_text(mut self) -> String {
        let mut text = to_json(&self);
        while text.len() > MAX_REPORT_BYTES && self.drop_lightest_domains() {
            text = to_json(&self);
        }
        text
    }

    /// Drops half of the domains; whether there were any.
    fn drop_lightest_domains(&mut self) -> bool {
        let Some(top) = self.top.as_mut().filter(|top| !top.is_empty()) else { return false };
        top.truncate(top.len() / 2);
        true
    }
}

/// Maps with text keys and numbers always have a JSON form.
fn to_json(report: &Report) -> String {
    serde_json::to_string(report).unwrap_or_default()
}
