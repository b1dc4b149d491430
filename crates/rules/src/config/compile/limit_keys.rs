//! Keys of a limit whose meaning depends on its quota and algorithm, or on each other.

use std::time::Duration;

use tollgate_core::{SyncMode, ban::BanPolicy};

use super::{
    ban::{self, Banned},
    degraded,
    descriptor::Compiler,
    notify, overdraft, rollout, scope, weight,
};
use crate::{
    Limit, NotifyThresholds, OnShareExhausted, OnStoreError, Rollout, Scope, Segment, Weights,
    config::{
        problem::Path,
        raw::{RawDescriptor, RawRateLimit, Stated},
    },
};

/// Values of the keys; the outer `None` of a value states that it is invalid.
pub(super) struct LimitKeys {
    pub(super) limit: Option<Limit>,
    pub(super) is_overdraft: bool,
    pub(super) sync: Option<SyncMode>,
    pub(super) scope: Scope,
    pub(super) on_share_exhausted: OnShareExhausted,
    pub(super) rollout: Option<Rollout>,
    pub(super) on_store_error: Option<OnStoreError>,
    pub(super) degraded_limit: Option<u32>,
    pub(super) ban: Option<Option<BanPolicy>>,
    pub(super) weights: Option<Option<Box<Weights>>>,
    pub(super) notify: Option<Option<NotifyThresholds>>,
    pub(super) retry_after_spread: Option<Duration>,
}

impl LimitKeys {
    /// Reads the keys of the limit at `limit_path` of the descriptor at `path`.
    pub(super) fn read(
        compiler: &mut Compiler<'_>,
        raw: &RawDescriptor,
        stated: &Stated<RawRateLimit>,
        segments: &[Segment],
        (path, limit_path): (&Path<'_>, &Path<'_>),
    ) -> Self {
        let keys = &stated.value;
        let (limit, overdraft) = compiler.limit(stated, limit_path).unzip();
        let (limit_ref, is_overdraft) = (limit.as_ref(), overdraft.unwrap_or_default());
        let sync = compiler.sync(keys, limit_ref, limit_path);
        let sync = overdraft::sync_beside(compiler, is_overdraft, keys, sync, limit_path);
        let scope = scope::read(compiler, stated, (limit_ref, is_overdraft), limit_path);
        let rolled_out = rollout::RolledOut { limit: limit_ref, segments, scope };
        let rollout = rollout::read(compiler, raw, keys, rolled_out, limit_path);
        let sync = rollout::sync_beside(compiler, rollout.as_ref(), keys, sync, limit_path);
        let (on_store_error, degraded_limit) = degraded::read(compiler, keys, limit_ref, limit_path);
        let banned = Banned { limit: limit_ref, is_overdraft, segments };
        let ban = ban::read(compiler, raw, &keys.ban, banned, limit_path);
        let weights = weight::read(compiler, raw, limit_ref, path);
        let notify = notify::read(compiler, keys, (limit_ref, scope), limit_path);
        let retry_after_spread = compiler.retry_after_spread(keys, limit_ref, limit_path);
        let on_share_exhausted = scope::on_share_exhausted(compiler, stated, (limit_ref, scope), limit_path);
        Self {
            limit,
            is_overdraft,
            sync,
            scope,
            on_share_exhausted,
            rollout,
            on_store_error,
            degraded_limit,
            ban,
            weights,
            notify,
            retry_after_spread,
        }
    }
}
