//! YAML text as a tree that knows its lines.
//!
//! The tree is built from the events of `saphyr-parser`. Deserializing with `serde` would be shorter, but it
//! stops at the first value that doesn't fit and can't say where a value stood, while a user wants every
//! mistake of a file with its line.

mod builder;
mod keyed;

use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use self::builder::{Builder, Frame};
use super::scalar::{Meaning, meaning_of};

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
}

impl Position {
    /// The whole file.
    pub(super) const WHOLE: Self = Self { line: 0, column: 0 };
}

impl From<Span> for Position {
    fn from(span: Span) -> Self {
        Self { line: span.start.line(), column: span.start.col().saturating_add(1) }
    }
}

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) content: Content,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A mapping, with merge keys applied and the last of duplicate keys kept.
    Map(Vec<(Node, Node)>),
}

/// A scalar as it is written.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: Rc<str>,
    is_plain: bool,
    /// The name of a tag such as `!!str`; any other tag is an empty name.
    tag: Option<Rc<str>>,
}

impl Scalar {
    /// What the scalar means.
    pub(super) fn meaning(&self) -> Meaning {
        match self.tag.as_deref() {
            None if self.is_plain => meaning_of(&self.text),
            Some("bool" | "int" | "null") => meaning_of(&self.text),
            Some("float") => match meaning_of(&self.text) {
                Meaning::Integer(number) => Meaning::Float(number as f64),
                meaning => meaning,
            },
            _ => Meaning::Text,
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
        let at = Position { line: at.line(), column: at.col().saturating_add(1) };
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
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        let at = Position::from(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let content = Content::Scalar(scalar(&text, style, tag.as_deref()));
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
        builder.remark(span.into(), "only the first document of a file is read; this one is ignored");
    }
    Ok(Document { root: builder.root, remarks: builder.remarks })
}

fn not_utf8(bytes: &[u8], valid: usize) -> Mistake {
    let before = bytes.get(..valid).unwrap_or_default();
    let line = before.split(|byte| *byte == b'\n').count();
    let column = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(column).chars().count().saturating_add(1);
    let message = "the file is not valid UTF-8 here; save it as UTF-8".to_owned();
    Mistake { at: Position { line, column }, path: String::new(), message }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let tag = tag.map(|tag| if tag.is_yaml_core_schema() { tag.suffix.as_str().into() } else { "".into() });
    Scalar { text: text.into(), is_plain: style == ScalarStyle::Plain, tag }
}
