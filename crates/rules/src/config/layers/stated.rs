//! Places where the keys of merged limits are stated.

use std::sync::Arc;

use crate::{
    StatedValue,
    config::{
        problem::Problems,
        raw::{RawDescriptor, RawInherit, RawRateLimit},
        yaml::Layer,
    },
};

/// Returns the places of the keys of a limit in `file`, if it inherits or has keys of an overlay.
pub(in crate::config) fn stated_values(
    file: &str,
    raw: &RawDescriptor,
    limit: &RawRateLimit,
    problems: &Problems,
) -> Option<Box<[StatedValue]>> {
    let flags = raw.flags().map(|(key, flag, _)| (key, flag.stated().map(|stated| stated.at)));
    let metadata = ("metadata", raw.metadata.stated().map(|stated| stated.at));
    let others = flags.into_iter().chain([metadata]).filter_map(|(key, at)| Some((key, at?)));
    let keys = || limit.stated_keys().chain(others.clone());
    let inherits = limit.inherit.stated().is_some_and(|inherit| inherit.value != RawInherit::No);
    if !inherits && keys().all(|(_, at)| at.file() == Layer::BASE) {
        return None;
    }
    let base: Arc<str> = file.into();
    let stated = keys().filter(|(key, _)| *key != "inherit").map(|(key, at)| StatedValue {
        key,
        file: match at.file() {
            Layer::BASE => Arc::clone(&base),
            _ => problems.file_at(file, at).into(),
        },
        line: u32::try_from(at.line()).unwrap_or(u32::MAX),
    });
    Some(stated.collect())
}
