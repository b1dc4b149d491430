//! Reader from YAML to [`raw`](super::raw): checks shapes, types and keys.

mod values;

use std::{borrow::Borrow, rc::Rc};

use self::values::{is_null, stated_if};
use super::problem::{Path, Problems};
use super::raw::{Field, RawDescriptor, RawFile, RawRateLimit, RawReplaces, Stated};
use super::vocabulary::{KeyStatus, Mapping, Section, Shape, is_of_reference};
use super::yaml::{Content, Document, Layer, Meaning, Node, Position, describe, parse};

/// Reads a file; `None` if it is not YAML. Its positions are in `layer`.
pub(super) fn read(name: &str, bytes: &[u8], layer: Layer, problems: &mut Problems) -> Option<RawFile> {
    let root = Reader { file: name, problems }.root(bytes, layer)?;
    let mut file = RawFile { name: name.into(), ..RawFile::default() };
    if let Some(mut root) = root {
        let mut reader = Reader { file: name, problems };
        let items = root.take_list("descriptors");
        reader.keys(&root, &Path::Root, Section::File, &mut file);
        // Each node is freed before the next one is read: there may be a hundred thousand.
        let path = &Path::Root.key("descriptors");
        file.descriptors.extend(reader.each_of(items, path, ReadItem::read));
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
    let mut reader = Reader { file: name, problems };
    let root = reader.root(bytes, Layer::BASE)??;
    reader.section(&root, path, Section::RateLimit).into_stated()
}

/// Reads the nodes of one file.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) problems: &'a mut Problems,
}

impl Reader<'_> {
    /// Reads the root of the file's first document, with positions in `layer`. The outer `None` if it is not YAML, which is
    /// reported; the inner one if the file is empty.
    pub(super) fn root(&mut self, bytes: &[u8], layer: Layer) -> Option<Option<Node>> {
        let parsed = parse(bytes, layer);
        if let Err(mistake) = &parsed {
            self.problems.error(self.file, mistake.at, &mistake.path, &mistake.message);
        }
        let Document { root, warnings } = parsed.ok()?;
        for warning in warnings {
            self.problems.warning(self.file, warning.at, warning.path, warning.message);
        }
        Some(root)
    }

    /// Reads a mapping with keys of the language.
    fn section<T: Mapping + Default>(&mut self, node: &Node, path: &Path<'_>, section: Section) -> Field<T> {
        if is_null(node) {
            return Field::Absent;
        }
        let mut mapping = T::default();
        let was_read = self.keys(node, path, section, &mut mapping);
        stated_if(was_read, node, mapping)
    }

    /// Reads each key that belongs to `section`, and reports the others. Returns `false` if there is no mapping.
    fn keys(&mut self, node: &Node, path: &Path<'_>, section: Section, into: &mut impl Mapping) -> bool {
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
                KeyStatus::Known => into.read_key(&name, value, &path, self),
                status => self.unknown_key(key.at, value, &path, section, status),
            }
        }
        true
    }

    /// Returns the text of a key.
    pub(super) fn key(&mut self, key: &Node, path: &Path<'_>) -> Option<Rc<str>> {
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
        let here = section.label();
        let message = match status {
            KeyStatus::Known => return,
            KeyStatus::Ignored(home) => {
                let message = format!("has no effect in {here}; it belongs to {}", home.label());
                self.problems.warning(self.file, at, path, message);
                if !matches!(path, Path::Key(_, "metadata")) {
                    self.check_ignored(value, path);
                }
                return;
            }
            KeyStatus::Misplaced(home) => {
                format!("does not belong to {here}; it belongs to {}", home.label())
            }
            KeyStatus::Unknown(Some(meant)) => format!("unknown key; did you mean `{meant}`?"),
            KeyStatus::Unknown(None) => {
                let keys: Vec<_> = section.keys().map(|key| key.name).collect();
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

/// Value of a key.
pub(super) trait KeyValue: Sized {
    /// Values that the schema permits.
    const SHAPE: Shape;

    /// Reads the value.
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Self;

    /// Whether the key is present, with any value.
    fn is_present(&self) -> bool;

    /// The position of a valid single value.
    fn at(&self) -> Option<Position> {
        None
    }
}

/// The defaults of a file, which are empty if they are invalid.
impl KeyValue for RawRateLimit {
    const SHAPE: Shape = Shape::Section(Section::Defaults);

    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Self {
        let defaults = reader.section(node, path, Section::Defaults).into_stated();
        defaults.map(|defaults| defaults.value).unwrap_or_default()
    }

    fn is_present(&self) -> bool {
        self.stated_keys().next().is_some()
    }
}

/// Element of a list of mappings with keys of the language.
trait ReadItem: Sized {
    const SECTION: Section;

    /// Reads an element; `None` if it is no mapping.
    fn read(reader: &mut Reader<'_>, index: usize, node: &Node, path: &Path<'_>) -> Option<Self>;
}

impl ReadItem for RawReplaces {
    const SECTION: Section = Section::Replaces;

    fn read(reader: &mut Reader<'_>, index: usize, node: &Node, path: &Path<'_>) -> Option<Self> {
        let mut replaces = Self { at: node.at, index, ..Self::default() };
        reader.keys(node, path, Self::SECTION, &mut replaces).then_some(replaces)
    }
}

impl ReadItem for Box<RawDescriptor> {
    const SECTION: Section = Section::Descriptor;

    fn read(reader: &mut Reader<'_>, index: usize, node: &Node, path: &Path<'_>) -> Option<Self> {
        let mut descriptor = Self::new(RawDescriptor { at: node.at, index, ..RawDescriptor::default() });
        reader.keys(node, path, Self::SECTION, &mut *descriptor).then_some(descriptor)
    }
}

impl<T: ReadItem> KeyValue for Vec<T> {
    const SHAPE: Shape = Shape::Sections(T::SECTION);

    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Self {
        reader.each_item(node, path, T::read)
    }

    fn is_present(&self) -> bool {
        !self.is_empty()
    }
}
