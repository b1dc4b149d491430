//! Reader from YAML to [`raw`](super::raw): checks shapes, types and keys.

mod regions;
mod values;

use std::{borrow::Borrow, rc::Rc};

pub use self::regions::read_regions;
pub(super) use self::values::{ReadValue, describe, excerpt};
use self::values::{is_null, stated_if};
use super::{
    problem::{Path, Problems},
    raw::{
        Field, RawBan, RawDescriptor, RawDescriptors, RawFile, RawLimit, RawRateLimit, RawReplaces,
        RawReserve, RawShedding, Stated,
    },
    scalar::Meaning,
    vocabulary::{KeyStatus, Section, is_of_reference},
    yaml::{Content, Layer, Node, Position, parse},
};

/// Reads a file; `None` if it is not YAML. Its positions are in `layer`.
pub(super) fn read(name: &str, bytes: &[u8], layer: Layer, problems: &mut Problems) -> Option<RawFile> {
    let document = match parse(bytes, layer) {
        Ok(document) => document,
        Err(mistake) => {
            problems.error(name, mistake.at, mistake.path, mistake.message);
            return None;
        }
    };
    for warning in document.warnings {
        problems.warning(name, warning.at, warning.path, warning.message);
    }
    let mut file = RawFile {
        name: name.into(),
        domain: Field::Absent,
        hash_tag: Field::Absent,
        atomic: Field::Absent,
        defaults: RawRateLimit::default(),
        descriptors: Vec::new(),
    };
    if let Some(mut root) = document.root {
        let mut reader = Reader { file: name, problems };
        let items = root.take_list("descriptors");
        reader.file(&root, &mut file);
        // Each node is freed before the next one is read: there may be a hundred thousand.
        let path = &Path::Root.key("descriptors");
        file.descriptors.extend(reader.each_of(items, path, Reader::descriptor));
    }
    Some(file)
}

/// Reads a mapping of the keys of `rate_limit`; `None` if it is invalid, which is reported.
pub(super) fn read_rate_limit(
    name: &str,
    bytes: &[u8],
    path: &Path<'_>,
    problems: &mut Problems,
) -> Option<Stated<RawRateLimit>> {
    let document = parse(bytes, Layer::BASE).map_err(|mistake| {
        problems.error(name, mistake.at, mistake.path, mistake.message);
    });
    let root = document.ok()?.root?;
    match (Reader { file: name, problems }).rate_limit(&root, path, Section::RateLimit) {
        Field::Stated(limit) => Some(limit),
        Field::Absent | Field::Invalid => None,
    }
}

/// Reads the nodes of one file.
pub(super) struct Reader<'a> {
    file: &'a str,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn file(&mut self, root: &Node, file: &mut RawFile) {
        let path = &Path::Root;
        self.each_key(root, path, Section::File, |reader, key, value, path| match key {
            "domain" => file.domain = reader.text(value, path),
            "hash_tag" => file.hash_tag = reader.texts(value, path),
            "atomic" => file.atomic = reader.flag(value, path),
            "descriptors" => file.descriptors = reader.descriptors(value, path),
            "defaults" => {
                if let Field::Stated(defaults) = reader.rate_limit(value, path, Section::Defaults) {
                    file.defaults = defaults.value;
                }
            }
            _ => {}
        });
    }

    fn descriptors(&mut self, list: &Node, path: &Path<'_>) -> RawDescriptors {
        self.each_item(list, path, Self::descriptor)
    }

    fn descriptor(&mut self, index: usize, node: &Node, path: &Path<'_>) -> Option<Box<RawDescriptor>> {
        let mut descriptor = Box::new(RawDescriptor::new(node.at, index));
        let was_read = self.each_key(node, path, Section::Descriptor, |reader, key, value, path| {
            reader.descriptor_key(&mut descriptor, key, value, path);
        });
        was_read.then_some(descriptor)
    }

    fn descriptor_key(&mut self, into: &mut RawDescriptor, key: &str, value: &Node, path: &Path<'_>) {
        match key {
            "key" => into.key = self.text(value, path),
            "value" => into.value = self.text(value, path),
            "regex" => into.regex = self.text(value, path),
            "cidr" => into.cidr = self.text(value, path),
            "rate_limit" => into.rate_limit = self.rate_limit(value, path, Section::RateLimit),
            "rate_limits" => into.rate_limits = self.rate_limits(value, path),
            "load_shedding" => into.load_shedding = self.load_shedding(value, path),
            "descriptors" => into.descriptors = self.descriptors(value, path),
            "shadow_mode" => into.shadow_mode = self.flag(value, path),
            "quota_mode" => into.quota_mode = self.flag(value, path),
            "detailed_metric" => into.detailed_metric = self.flag(value, path),
            "value_to_metric" => into.value_to_metric = self.flag(value, path),
            "share_threshold" => into.share_threshold = self.flag(value, path),
            "metadata" => into.metadata = self.mapping(value, path),
            "weight" => into.weight = self.mapping(value, path),
            _ => {}
        }
    }

    /// Reads a list of limits; invalid if one of them is.
    fn rate_limits(&mut self, list: &Node, path: &Path<'_>) -> Field<Vec<RawLimit>> {
        if is_null(list) {
            return Field::Absent;
        }
        let mut is_valid = matches!(list.content, Content::List(_));
        let limits = self.each_item(list, path, |reader, index, node, path| {
            match reader.rate_limit(node, path, Section::RateLimit) {
                Field::Stated(limit) => Some(RawLimit { index, limit }),
                Field::Absent => {
                    reader.wrong_type(node, path, "a mapping");
                    is_valid = false;
                    None
                }
                Field::Invalid => {
                    is_valid = false;
                    None
                }
            }
        });
        stated_if(is_valid, list, limits)
    }

    fn rate_limit(&mut self, node: &Node, path: &Path<'_>, section: Section) -> Field<RawRateLimit> {
        if is_null(node) {
            return Field::Absent;
        }
        let mut limit = RawRateLimit::default();
        let was_read = self.each_key(node, path, section, |reader, key, value, path| match key {
            "replaces" => limit.replaces = reader.replaces(value, path),
            key => limit.read_key(key, value, path, reader),
        });
        stated_if(was_read, node, limit)
    }

    fn load_shedding(&mut self, node: &Node, path: &Path<'_>) -> Field<RawShedding> {
        if is_null(node) {
            return Field::Absent;
        }
        let mut shedding = RawShedding::default();
        let was_read =
            self.each_key(node, path, Section::LoadShedding, |reader, key, value, path| match key {
                "target" => shedding.target = reader.ratio(value, path),
                "half_life" => shedding.half_life = reader.text(value, path),
                "floor" => shedding.floor = reader.ratio(value, path),
                "priority_key" => shedding.priority_key = reader.text(value, path),
                "stale_after" => shedding.stale_after = reader.text(value, path),
                _ => {}
            });
        stated_if(was_read, node, shedding)
    }

    fn ban(&mut self, node: &Node, path: &Path<'_>) -> Field<RawBan> {
        if is_null(node) {
            return Field::Absent;
        }
        let mut ban = RawBan::default();
        let was_read = self.each_key(node, path, Section::Ban, |reader, key, value, path| match key {
            "threshold" => ban.threshold = reader.number(value, path),
            "interval" => ban.interval = reader.text(value, path),
            "duration" => ban.duration = reader.text(value, path),
            "max_duration" => ban.max_duration = reader.text(value, path),
            "forgive" => ban.forgive = reader.text(value, path),
            "list_after" => ban.list_after = reader.number(value, path),
            "mode" => ban.mode = reader.text(value, path),
            _ => {}
        });
        stated_if(was_read, node, ban)
    }

    fn reserve(&mut self, node: &Node, path: &Path<'_>) -> Field<RawReserve> {
        if is_null(node) {
            return Field::Absent;
        }
        let mut reserve = RawReserve::default();
        let was_read = self.each_key(node, path, Section::Reserve, |reader, key, value, path| match key {
            "ttl" => reserve.ttl = reader.text(value, path),
            "unsettled" => reserve.unsettled = reader.text(value, path),
            "add" => reserve.add = reader.number(value, path),
            "cap" => reserve.cap = reader.ratio(value, path),
            _ => {}
        });
        stated_if(was_read, node, reserve)
    }

    fn replaces(&mut self, list: &Node, path: &Path<'_>) -> Vec<RawReplaces> {
        self.each_item(list, path, |reader, index, node, path| {
            let mut replaces = RawReplaces { at: node.at, index, name: Field::Absent };
            let was_read = reader.each_key(node, path, Section::Replaces, |reader, _, value, path| {
                replaces.name = reader.text(value, path);
            });
            was_read.then_some(replaces)
        })
    }

    /// Calls `read` for each key that belongs to `section`, and reports the others. Returns `false` if there is no mapping.
    fn each_key(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        section: Section,
        mut read: impl FnMut(&mut Self, &str, &Node, &Path<'_>),
    ) -> bool {
        let Content::Map(pairs) = &node.content else {
            self.wrong_type(node, path, "a mapping");
            return false;
        };
        for (key, value) in pairs {
            if self.problems.is_full() {
                break;
            }
            let Some(name) = self.key(key, path) else { continue };
            let path = path.key(&name);
            match section.status_of(&name) {
                KeyStatus::Known => read(self, &name, value, &path),
                status => self.unknown_key(key.at, value, &path, section, status),
            }
        }
        true
    }

    /// Returns the text of a key.
    fn key(&mut self, key: &Node, path: &Path<'_>) -> Option<Rc<str>> {
        if let Content::Scalar(scalar) = &key.content
            && scalar.meaning() == Meaning::Text
        {
            return Some(scalar.text.clone());
        }
        let message = format!("expected a text as the key, found {}", describe(key));
        self.problems.error(self.file, key.at, path, message);
        None
    }

    /// Returns the results of `read` for the elements of a list; empty if there is no list.
    fn each_item<T>(
        &mut self,
        list: &Node,
        path: &Path<'_>,
        read: impl FnMut(&mut Self, usize, &Node, &Path<'_>) -> Option<T>,
    ) -> Vec<T> {
        match &list.content {
            Content::List(items) => self.each_of(items, path, read),
            _ if is_null(list) => Vec::new(),
            Content::Scalar(_) | Content::Map(_) => {
                self.wrong_type(list, path, "a list");
                Vec::new()
            }
        }
    }

    /// Returns the results of `read` for elements.
    fn each_of<T, N: Borrow<Node>>(
        &mut self,
        items: impl IntoIterator<Item = N>,
        path: &Path<'_>,
        mut read: impl FnMut(&mut Self, usize, &Node, &Path<'_>) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            if self.problems.is_full() {
                break;
            }
            all.extend(read(self, index, item.borrow(), &path.item(index)));
        }
        all
    }

    /// Reports a key that does not belong to `section`.
    fn unknown_key(
        &mut self,
        at: Position,
        value: &Node,
        path: &Path<'_>,
        section: Section,
        status: KeyStatus,
    ) {
        let here = section.name();
        let message = match status {
            KeyStatus::Known => return,
            KeyStatus::Ignored(home) => {
                let message = format!("has no effect in {here}; it belongs to {}", home.name());
                self.problems.warning(self.file, at, path, message);
                if !matches!(path, Path::Key(_, "metadata")) {
                    self.check_ignored(value, path);
                }
                return;
            }
            KeyStatus::Misplaced(home) => format!("does not belong to {here}; it belongs to {}", home.name()),
            KeyStatus::Unknown(Some(meant)) => format!("unknown key; did you mean `{meant}`?"),
            KeyStatus::Unknown(None) => {
                let keys: Vec<_> = section.keys().collect();
                format!("unknown key; expected one of {} in {here}", keys.join(", "))
            }
        };
        self.problems.error(self.file, at, path, message);
    }

    /// Reports values that envoyproxy/ratelimit rejects even in sections that it ignores.
    fn check_ignored(&mut self, node: &Node, path: &Path<'_>) {
        match &node.content {
            Content::Scalar(scalar) => self.reject_float(scalar, node.at, path),
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.item(index);
                    match &item.content {
                        Content::Map(_) => self.check_ignored(item, &path),
                        Content::Scalar(_) | Content::List(_) => self.wrong_type(item, &path, "a mapping"),
                    }
                }
            }
            Content::Map(pairs) => {
                for (key, value) in pairs {
                    let Some(name) = self.key(key, path) else { continue };
                    let path = path.key(&name);
                    match &*name {
                        "metadata" => {}
                        name if is_of_reference(name) => self.check_ignored(value, &path),
                        _ => self.problems.error(self.file, key.at, path, "unknown key"),
                    }
                }
            }
        }
    }
}
