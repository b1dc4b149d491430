//! Limits with `inherit`, which take the keys that they omit from the nearest limit above them, or from the one of a name.

use std::{collections::HashMap, rc::Rc};

use super::merge::{Identity, default_algorithm, fill};
use crate::config::{
    problem::{Path, Problems},
    raw::{Field, RawDescriptor, RawFile, RawInherit, RawRateLimit, Stated},
    reader::excerpt,
    vocabulary::nearest,
};

/// Limits of a file by their names.
type Named = HashMap<Rc<str>, Vec<RawRateLimit>>;

/// Fills every limit that inherits: first those of a name, whose limit states all of its keys, then those of the limit above.
pub(in crate::config) fn resolve(files: &mut [RawFile], problems: &mut Problems) {
    for file in files {
        let (mut named, mut inherits) = (Named::new(), false);
        file.descriptors.iter().for_each(|descriptor| collect(descriptor, &mut named, &mut inherits));
        if inherits {
            let default_algorithm = default_algorithm(&file.defaults);
            let mut resolver = Resolver { file: &file.name, default_algorithm, named, problems };
            resolver.level(&mut file.descriptors, None, &Path::Root);
        }
    }
}

/// The limit that another one inherits.
fn inherit_of(limit: &RawRateLimit) -> Option<&Stated<RawInherit>> {
    limit.inherit.stated().filter(|inherit| inherit.value != RawInherit::No)
}

fn collect(descriptor: &RawDescriptor, named: &mut Named, inherits: &mut bool) {
    if let Some(limit) = descriptor.rate_limit.stated() {
        *inherits |= inherit_of(&limit.value).is_some();
        if !limit.value.name.text().is_empty() {
            named.entry(limit.value.name.text().into()).or_default().push(limit.value.clone());
        }
    }
    descriptor.descriptors.iter().for_each(|below| collect(below, named, inherits));
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
    named: Named,
    problems: &'a mut Problems,
}

impl Resolver<'_> {
    fn level(&mut self, descriptors: &mut [Box<RawDescriptor>], above: Option<Above<'_>>, parent: &Path<'_>) {
        let list = parent.key("descriptors");
        for descriptor in descriptors {
            let path = list.item(descriptor.index);
            self.limit(&mut descriptor.rate_limit, above, &path);
            let RawDescriptor { rate_limit, rate_limits, descriptors, .. } = &mut **descriptor;
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
        let Some(Stated { at, value: inherit }) = inherit_of(&stated.value).cloned() else { return };
        let base = match (inherit, above) {
            (RawInherit::Named(name), _) => self.named_limit(&name),
            (_, Some(Above::Limit(Field::Stated(above)))) => Ok(&above.value),
            // Reported where it is stated.
            (_, Some(Above::Limit(Field::Invalid))) => {
                *limit = Field::Invalid;
                return;
            }
            (_, Some(Above::Several)) => {
                Err("has several limits above it; expected one `rate_limit` there, or all keys of this limit"
                    .to_owned())
            }
            (_, Some(Above::Limit(Field::Absent)) | None) => {
                Err("has no limit to inherit; expected a `rate_limit` in a descriptor that contains this one"
                    .to_owned())
            }
        };
        match base {
            Ok(base) => fill(&mut stated.value, base, &self.default_algorithm, Identity::Own),
            Err(message) => {
                self.problems.error(self.file, at, path.key("rate_limit").key("inherit"), message);
            }
        }
    }

    /// The limit with a name.
    fn named_limit(&self, name: &str) -> Result<&RawRateLimit, String> {
        let shown = excerpt(name);
        match self.named.get(name).map(Vec::as_slice) {
            Some([one]) if inherit_of(one).is_none() => Ok(one),
            Some([_]) => Err(format!("`{shown}` inherits too; expected a limit that states its keys")),
            Some(_) => Err(format!("`{shown}` is the name of several limits of the file; expected one")),
            None => {
                let meant = nearest(name, self.named.keys().map(|name| &**name));
                let meant = meant.map(|meant| format!(", such as `{}`", excerpt(meant))).unwrap_or_default();
                Err(format!("no limit of the file has the name `{shown}`; expected true or a name{meant}"))
            }
        }
    }
}
