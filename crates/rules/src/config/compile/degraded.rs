//! Limits while the store fails: `on_store_error` and `degraded_limit`.

use tollgate_core::algorithm::queue::MAX_QUEUED;

use super::descriptor::Compiler;
use crate::{
    Limit, OnStoreError,
    config::{
        problem::Path,
        raw::{RawRateLimit, Stated},
    },
};

/// Reads the policy and the limit while the store fails. The policy is the limit's own, else `local` for one with a
/// `degraded_limit`, else the default.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    raw: &RawRateLimit,
    limit: Option<&Limit>,
    path: &Path<'_>,
) -> (Option<OnStoreError>, Option<u32>) {
    let stated = compiler.reporter().on_store_error(&raw.on_store_error, path);
    let default = compiler.defaults.on_store_error;
    let Some(Stated { at, value: degraded }) = raw.degraded_limit.stated().copied() else {
        return (stated.or(default).map(|stated| stated.value), None);
    };
    let path = path.key("degraded_limit");
    match stated {
        Some(Stated { value: OnStoreError::Local, .. }) | None => {}
        Some(Stated { value: policy, .. }) => {
            let message = format!(
                "has no effect with `on_store_error: {}`; expected `on_store_error: local`, or only one of the keys",
                policy.name()
            );
            compiler.error(at, &path, message);
        }
    }
    if let Some(Limit::Quota { quota, policy }) = limit {
        if policy.algorithm().stores_hits() && degraded > MAX_QUEUED {
            let message = format!(
                "is too large; expected a limit of at most {MAX_QUEUED}, since this algorithm stores each hit"
            );
            compiler.error(at, &path, message);
        } else if u64::from(degraded) > quota.limit {
            let message = "is above `requests_per_unit`: more requests pass while the store fails; \
                           expected a lower limit";
            compiler.warning(at, &path, message);
        }
    }
    (Some(OnStoreError::Local), Some(degraded))
}
