//! Converts a resource to a raw file. A protobuf default counts as absent, except for `requests_per_unit`: with 0, a control
//! plane denies every request.

use std::rc::Rc;

use tollgate_rules::config::{
    problem::{Path, Problems},
    raw::{Field, RawDescriptor, RawDescriptors, RawFile, RawRateLimit, RawReplaces, Stated},
    yaml::{MAX_SCALAR_BYTES, Position},
};

use super::metadata;
use crate::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};

/// Levels of descriptors, the same as in a file.
const MAX_LEVELS: usize = 31;

pub(super) fn file(name: Rc<str>, config: RateLimitConfig, problems: &mut Problems) -> RawFile {
    let mut converter = Converter { file: &name, problems };
    let domain = converter.text(&config.domain, &Path::Root.key("domain"));
    let descriptors = converter.descriptors(config.descriptors, &Path::Root, 0);
    RawFile { domain, descriptors, name, ..RawFile::default() }
}

struct Converter<'a> {
    file: &'a str,
    problems: &'a mut Problems,
}

impl Converter<'_> {
    fn descriptors(
        &mut self,
        descriptors: Vec<RateLimitDescriptor>,
        parent: &Path<'_>,
        level: usize,
    ) -> RawDescriptors {
        let list = parent.key("descriptors");
        if level >= MAX_LEVELS && !descriptors.is_empty() {
            let message = format!("nested more than {MAX_LEVELS} levels deep");
            self.problems.error(self.file, Position::WHOLE, list, message);
            return Vec::new();
        }
        let each = descriptors.into_iter().enumerate();
        each.map_while(|(index, descriptor)| {
            let path = list.item(index);
            (!self.problems.is_full()).then(|| self.descriptor(descriptor, index, &path, level))
        })
        .collect()
    }

    fn descriptor(
        &mut self,
        stated: RateLimitDescriptor,
        index: usize,
        path: &Path<'_>,
        level: usize,
    ) -> Box<RawDescriptor> {
        let mut raw = Box::new(RawDescriptor { index, ..RawDescriptor::default() });
        raw.key = self.text(&stated.key, &path.key("key"));
        raw.value = self.text(&stated.value, &path.key("value"));
        raw.shadow_mode = flag(stated.shadow_mode);
        raw.quota_mode = flag(stated.quota_mode);
        raw.detailed_metric = flag(stated.detailed_metric);
        if let Some(limit) = stated.rate_limit {
            raw.rate_limit = field(self.rate_limit(limit, &path.key("rate_limit")));
        }
        if let Some(stated) = stated.metadata {
            raw.metadata = field(metadata::node(stated));
        }
        raw.descriptors = self.descriptors(stated.descriptors, path, level.saturating_add(1));
        raw
    }

    fn rate_limit(&mut self, stated: RateLimitPolicy, path: &Path<'_>) -> RawRateLimit {
        let mut raw = RawRateLimit { name: self.text(&stated.name, &path.key("name")), ..Default::default() };
        raw.unit = match RateLimitUnit::try_from(stated.unit) {
            Ok(RateLimitUnit::Unknown) => Field::Absent,
            Ok(unit) => field(unit.as_str_name().to_ascii_lowercase().into()),
            Err(_) => field(stated.unit.to_string().into()),
        };
        raw.unlimited = flag(stated.unlimited);
        if stated.requests_per_unit > 0 || !stated.unlimited {
            raw.requests_per_unit = field(stated.requests_per_unit.into());
        }
        let list = path.key("replaces");
        let replaces = stated.replaces.into_iter().enumerate();
        raw.replaces = replaces
            .map(|(index, replaced)| {
                let name = self.text(&replaced.name, &list.item(index).key("name"));
                RawReplaces { at: Position::WHOLE, index, name }
            })
            .collect();
        raw
    }

    fn text(&mut self, text: &str, path: &Path<'_>) -> Field<Rc<str>> {
        match text.len() {
            0 => Field::Absent,
            1..=MAX_SCALAR_BYTES => field(text.into()),
            _ => {
                let most = MAX_SCALAR_BYTES >> 10;
                let message = format!("text longer than {most} KiB; expected a shorter one");
                self.problems.error(self.file, Position::WHOLE, path, message);
                Field::Invalid
            }
        }
    }
}

const fn field<T>(value: T) -> Field<T> {
    Field::Stated(Stated { at: Position::WHOLE, value })
}

const fn flag(is_set: bool) -> Field<bool> {
    if is_set { field(true) } else { Field::Absent }
}
