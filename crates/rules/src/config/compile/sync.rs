//! Whether counters may be leased: `sync`.

use std::rc::Rc;

use super::{Origin, Site, descriptor::Compiler, domain::DomainBuilder, parameters::Reporter};
use crate::{
    Limit,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
    },
};
use tollgate_core::SyncMode;

impl Compiler<'_> {
    /// Whether the counters of a limit may be leased: what it states, else the default where that can be. `None` when
    /// what is stated is wrong, also where the limit is.
    pub(super) fn sync(
        &mut self,
        raw: &RawRateLimit,
        limit: Option<&Limit>,
        path: &Path<'_>,
    ) -> Option<SyncMode> {
        let algorithm = match limit {
            Some(Limit::Quota { policy, .. }) => Some(policy.algorithm()),
            // What stands beside `unlimited` was reported.
            Some(Limit::Unlimited) => return Some(SyncMode::Strict),
            None => None,
        };
        let can_be_leased = algorithm.is_none_or(|algorithm| algorithm.can_be_leased());
        match &raw.sync {
            Field::Wrong => None,
            Field::Absent => {
                let default = self.defaults.sync.filter(|_| can_be_leased);
                Some(default.map(|default| default.value).unwrap_or_default())
            }
            field => {
                let mut reporter = Reporter { file: self.file, problems: &mut *self.problems };
                let Stated { at, value } = reporter.sync(field, path)?;
                let path = path.key("sync");
                if value == SyncMode::Leased {
                    self.domain.leased.push(self.site(at, &path));
                }
                if let (SyncMode::Leased, Some(algorithm), false) = (value, algorithm, can_be_leased) {
                    let message = format!("{} can't be leased; state `strict`", algorithm.name());
                    self.error(at, &path, message);
                    return None;
                }
                Some(value)
            }
        }
    }
}

impl DomainBuilder {
    /// Remembers where a file says that counters may be leased.
    pub(super) fn set_default_sync(&mut self, file: &Rc<str>, stated: Option<Stated<SyncMode>>) {
        if let Some(Stated { at, value: SyncMode::Leased }) = stated {
            let path = Path::Root.key("defaults").key("sync").to_string();
            self.leased.push(Site { origin: Origin { file: file.clone(), at }, path });
        }
    }

    /// Warns of leases where all counters of a request are charged or none.
    pub(super) fn warn_of_leases_without_effect(&self, problems: &mut Problems) {
        let Some((true, origin)) = &self.atomic else { return };
        for site in &self.leased {
            let message = format!(
                "has no effect beside `atomic: true` at {origin}: to charge all counters or none takes all of them at \
                 once"
            );
            site.warn(problems, message);
        }
    }
}
