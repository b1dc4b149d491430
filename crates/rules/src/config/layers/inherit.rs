//! Limits with `inherit: true`, which take the keys that they omit from the nearest limit above them.

use std::rc::Rc;

use super::merge::{Identity, default_algorithm, fill};
use crate::config::{
    problem::{Path, Problems},
    raw::{Field, RawDescriptor, RawFile, RawRateLimit},
    yaml::Position,
};

/// Fills every limit that inherits.
pub(in crate::config) fn resolve(files: &mut [RawFile], problems: &mut Problems) {
    for file in files {
        if file.descriptors.iter().any(inherits_anywhere) {
            let mut resolver =
                Resolver { file: &file.name, default_algorithm: default_algorithm(&file.defaults), problems };
            resolver.level(&mut file.descriptors, None, &Path::Root);
        }
    }
}

/// Position of a limit's `inherit: true`.
fn inherited_at(limit: &RawRateLimit) -> Option<Position> {
    limit.inherit.stated().filter(|inherit| inherit.value).map(|inherit| inherit.at)
}

fn inherits_anywhere(descriptor: &RawDescriptor) -> bool {
    let limit = descriptor.rate_limit.stated();
    limit.is_some_and(|limit| inherited_at(&limit.value).is_some())
        || descriptor.descriptors.iter().any(inherits_anywhere)
}

/// Nearest limit above a descriptor.
#[derive(Clone, Copy)]
enum Above<'a> {
    Limit(&'a Field<RawRateLimit>),
    Several,
}

struct Resolver<'a> {
    file: &'a Rc<str>,
    default_algorithm: Rc<str>,
    problems: &'a mut Problems,
}

impl Resolver<'_> {
    fn level(&mut self, descriptors: &mut [RawDescriptor], above: Option<Above<'_>>, parent: &Path<'_>) {
        let list = parent.key("descriptors");
        for descriptor in descriptors {
            let path = list.item(descriptor.index);
            self.limit(&mut descriptor.rate_limit, above, &path);
            let RawDescriptor { rate_limit, rate_limits, descriptors, .. } = descriptor;
            let nearest = match rate_limit.is_present() {
                _ if rate_limits.is_present() => Some(Above::Several),
                true => Some(Above::Limit(&*rate_limit)),
                false => above,
            };
            self.level(descriptors, nearest, &path);
        }
    }

    fn limit(&mut self, limit: &mut Field<RawRateLimit>, above: Option<Above<'_>>, path: &Path<'_>) {
        let Field::Stated(stated) = &mut *limit else { return };
        let Some(at) = inherited_at(&stated.value) else { return };
        match above {
            Some(Above::Limit(Field::Stated(above))) => {
                fill(&mut stated.value, &above.value, &self.default_algorithm, Identity::Own);
            }
            // Reported where it is stated.
            Some(Above::Limit(Field::Invalid)) => *limit = Field::Invalid,
            Some(Above::Several) => {
                let message =
                    "has several limits above it; expected one `rate_limit` there, or all keys of this limit";
                self.problems.error(self.file, at, path.key("rate_limit").key("inherit"), message);
            }
            Some(Above::Limit(Field::Absent)) | None => {
                let message =
                    "has no limit to inherit; expected a `rate_limit` in a descriptor that contains this one";
                self.problems.error(self.file, at, path.key("rate_limit").key("inherit"), message);
            }
        }
    }
}
