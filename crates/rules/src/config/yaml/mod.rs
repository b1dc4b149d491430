//! YAML text as a tree that knows its lines.
//!
//! The tree is built from the events of `saphyr-parser`. Deserializing with `serde` would be shorter, but it
//! stops at the first value that doesn't fit and can't say where a value stood, while a user wants every
//! mistake of a file with its line.

mod builder;
mod characters;
mod keyed;

use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use self::{
    builder::{Builder, Frame},
    characters::text_of,
};
use super::scalar::{Meaning, meaning_of};

/// Bytes of the longest text: no request brings a longer one.
pub const MAX_SCALAR_BYTES: usize = 64 << 10;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    // Every node has one, and no file is large enough for more digits.
    line: u32,
    column: u32,
}

impl Position {
    /// The whole file.
    pub const WHOLE: Self = Self { line: 0, column: 0 };

    /// The place at a line, and a column in characters, both from 1.
    pub fn new(line: usize, column: usize) -> Self {
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: narrow(line), column: narrow(column) }
    }

    /// The line, from 1.
    pub const fn line(self) -> usize {
        self.line as usize
    }

    /// The column in characters, from 1.
    pub const fn column(self) -> usize {
        self.column as usize
    }
}

impl From<Span> for Position {
    fn from(span: Span) -> Self {
        Self::new(span.start.line(), span.start.col().saturating_add(1))
    }
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub struct Node {
    pub at: Position,
    pub content: Content,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A mapping, with merge keys applied and the last of duplicate keys kept.
    Map(Vec<(Node, Node)>),
}

/// A scalar as it is written.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: Rc<str>,
    is_plain: bool,
    tag: Tagged,
}

/// What a tag says of a scalar's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tagged {
    /// There is none.
    No,
    /// `!!bool`, `!!int` or `!!null`: what its text means.
    Meaning,
    /// `!!float`.
    Float,
    /// Any other: a text.
    Text,
}

impl Scalar {
    /// A text without quotes, which may mean something else than itself.
    pub fn plain(text: &str) -> Self {
        Self { text: text.into(), is_plain: true, tag: Tagged::No }
    }

    /// A text that means itself.
    pub fn quoted(text: &str) -> Self {
        Self { text: text.into(), is_plain: false, tag: Tagged::No }
    }

    /// What the scalar means.
    pub(super) fn meaning(&self) -> Meaning {
        match self.tag {
            Tagged::No if self.is_plain => meaning_of(&self.text),
            Tagged::Meaning => meaning_of(&self.text),
            Tagged::Float => match meaning_of(&self.text) {
                Meaning::Integer(number) => Meaning::Float(number as f64),
                meaning => meaning,
            },
            Tagged::No | Tagged::Text => Meaning::Text,
        }
    }
}

/// A file's first document.
#[derive(Debug)]
pub(super) struct Document {
    /// Its root, or `None` when the file holds nothing.
    pub(super) root: Option<Node>,
    /// What is legal and yet likely a mistake.
    pub(super) remarks: Vec<Mistake>,
}

/// Something wrong with the YAML itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) at: Position,
    /// The place in the tree, as far as one was reached.
    pub(super) path: String,
    pub(super) message: String,
}

impl From<ScanError> for Mistake {
    fn from(error: ScanError) -> Self {
        let at = *error.marker();
        let at = Position::new(at.line(), at.col().saturating_add(1));
        let path = String::new();
        let mut message = format!("the YAML can't be read: {}", error.info());
        if message.contains("':' must be followed") {
            message.push_str("; put a space there, and not a tab");
        }
        Self { at, path, message }
    }
}

/// Reads the first document of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<Document, Mistake> {
    let mut parser = Parser::new_from_str(text_of(bytes)?);
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        let at = Position::from(span);
        match event {
            Event::Scalar(text, _, _, _) if text.len() > MAX_SCALAR_BYTES => {
                let message = format!(
                    "a text of more than {} KiB is no part of a configuration",
                    MAX_SCALAR_BYTES >> 10
                );
                return Err(builder.mistake(at, message));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let content = Content::Scalar(scalar(builder.text(&text), style, tag.as_deref()));
                builder.complete(Node { at, content }, anchor)?;
            }
            Event::SequenceStart(anchor, _) => builder.open(Frame::list(at, anchor))?,
            Event::MappingStart(anchor, _) => builder.open(Frame::map(at, anchor))?,
            Event::SequenceEnd | Event::MappingEnd => builder.close()?,
            Event::Alias(anchor) => builder.alias(anchor, at)?,
            Event::DocumentEnd => break,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
    }
    if let Some(Ok((Event::DocumentStart(_), span))) = parser.next_event() {
        let message = "only the first document of a file is read; this one is ignored";
        builder.remark(span.into(), message);
    }
    Ok(Document { root: builder.root, remarks: builder.remarks })
}

fn scalar(text: Rc<str>, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let tag = match tag {
        None => Tagged::No,
        Some(tag) if !tag.is_yaml_core_schema() => Tagged::Text,
        Some(tag) => match tag.suffix.as_str() {
            "bool" | "int" | "null" => Tagged::Meaning,
            "float" => Tagged::Float,
            _ => Tagged::Text,
        },
    };
    Scalar { text, is_plain: style == ScalarStyle::Plain, tag }
}
