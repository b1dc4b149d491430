//! Compilation of `notify`.

use tollgate_core::algorithm::Algorithm;

use super::descriptor::Compiler;
use crate::{
    Limit, NotifyThresholds, Scope,
    config::{
        problem::Path,
        raw::{Field, RawRateLimit, Stated},
    },
};

/// Reads the thresholds of a limit; `None` if they are invalid.
pub(super) fn read(
    compiler: &mut Compiler<'_>,
    raw: &RawRateLimit,
    (limit, scope): (Option<&Limit>, Scope),
    path: &Path<'_>,
) -> Option<Option<NotifyThresholds>> {
    let Stated { at, value } = match &raw.notify {
        Field::Absent => return Some(None),
        Field::Invalid => return None,
        Field::Stated(stated) => stated,
    };
    if value.0.is_empty() {
        return Some(None);
    }
    let path = path.key("notify");
    let Some(thresholds) = NotifyThresholds::new(value.0.iter().copied()) else {
        let message =
            format!("has too many percentages; expected at most {}", NotifyThresholds::MAX_THRESHOLDS);
        compiler.error(*at, &path, message);
        return None;
    };
    match limit {
        // An invalid limit, or a key beside `unlimited`, was reported.
        None | Some(Limit::Unlimited) => None,
        Some(Limit::Quota { policy, .. }) if policy.algorithm().stated() != Algorithm::FixedWindow => {
            let message = format!(
                "is not a key of {}, whose usage never begins anew; expected `algorithm: fixed_window`",
                policy.algorithm().name()
            );
            compiler.error(*at, &path, message);
            None
        }
        Some(Limit::Quota { .. }) if scope != Scope::Regional => {
            let message = format!(
                "contradicts `scope: {}`, of whose use each region would notify; remove one of them",
                scope.name()
            );
            compiler.error(*at, &path, message);
            None
        }
        Some(Limit::Quota { .. }) => Some(Some(thresholds)),
    }
}
