//! YAML trees with line numbers.
//!
//! The tree is built from the events of `saphyr-parser`. Deserializing with `serde` would be shorter, but it stops at the
//! first invalid value and does not report positions, while users need all mistakes of a file with their lines.

mod builder;
mod scalar;

use std::{mem, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use self::builder::{Builder, Frame};
pub(super) use self::scalar::Meaning;
use self::scalar::meaning_of;

/// Maximum length of a text in bytes: no request contains a longer one.
pub const MAX_SCALAR_BYTES: usize = 64 << 10;

/// Position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    // 64 bits together, since each node has a position, and files are small enough.
    pub(super) file: Layer,
    column: u16,
    line: u32,
}

/// File of a position: the one whose descriptors are read, or one that was laid over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layer(u16);

impl Layer {
    /// The file whose descriptors are read.
    pub const BASE: Self = Self(0);

    /// The file at this index among those laid over; `None` if there are too many.
    pub(super) fn over(index: usize) -> Option<Self> {
        u16::try_from(index.checked_add(1)?).ok().map(Self)
    }

    /// The index among the files laid over.
    pub(super) fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

impl Position {
    /// The whole file.
    pub const WHOLE: Self = Self { file: Layer::BASE, line: 0, column: 0 };

    /// Returns the position at a line and a column in characters, both from 1.
    pub fn new(line: usize, column: usize) -> Self {
        Self {
            file: Layer::BASE,
            column: u16::try_from(column).unwrap_or(u16::MAX),
            line: u32::try_from(line).unwrap_or(u32::MAX),
        }
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

/// Value with the position of its beginning.
#[derive(Clone, Debug)]
pub struct Node {
    pub at: Position,
    pub content: Content,
}

impl Node {
    /// Takes the elements of the list with this key out of a mapping.
    pub(super) fn take_list(&mut self, key: &str) -> Vec<Self> {
        let Content::Map(pairs) = &mut self.content else { return Vec::new() };
        let is_key = |node: &Self| matches!(&node.content, Content::Scalar(scalar) if &*scalar.text == key);
        match pairs.iter_mut().find(|(key, _)| is_key(key)) {
            Some((_, Self { content: Content::List(items), .. })) => mem::take(items),
            _ => Vec::new(),
        }
    }
}

/// Content of a node.
#[derive(Clone, Debug)]
pub enum Content {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A mapping with merge keys applied, and with the last of duplicate keys.
    Map(Vec<(Node, Node)>),
}

/// Scalar as written.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: Rc<str>,
    is_plain: bool,
    tag: ScalarTag,
}

/// Effect of a scalar's tag on its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScalarTag {
    /// No tag.
    None,
    /// `!!bool`, `!!int` or `!!null`: the meaning of the text.
    Meaning,
    /// `!!float`.
    Float,
    /// Any other tag: a text.
    Text,
}

impl Scalar {
    /// Returns a text without quotes, which may mean a number, a bool or null.
    pub fn plain(text: &str) -> Self {
        Self { text: text.into(), is_plain: true, tag: ScalarTag::None }
    }

    /// Returns a text in quotes, which is always a text.
    pub fn quoted(text: &str) -> Self {
        Self { text: text.into(), is_plain: false, tag: ScalarTag::None }
    }

    /// The meaning of the scalar.
    pub(super) fn meaning(&self) -> Meaning {
        match self.tag {
            ScalarTag::None if self.is_plain => meaning_of(&self.text),
            ScalarTag::Meaning => meaning_of(&self.text),
            ScalarTag::Float => match meaning_of(&self.text) {
                Meaning::Integer(number) => Meaning::Float(number as f64),
                meaning => meaning,
            },
            ScalarTag::None | ScalarTag::Text => Meaning::Text,
        }
    }
}

/// First document of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// The root; `None` for an empty file.
    pub(super) root: Option<Node>,
    /// Warnings: valid YAML that is likely a mistake.
    pub(super) warnings: Vec<Mistake>,
}

/// Problem of the YAML itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) at: Position,
    /// The path in the tree, as far as it was read.
    pub(super) path: String,
    pub(super) message: String,
}

impl From<ScanError> for Mistake {
    fn from(error: ScanError) -> Self {
        let at = *error.marker();
        let at = Position::new(at.line(), at.col().saturating_add(1));
        let path = String::new();
        let mut message = format!("invalid YAML: {}", error.info());
        if message.contains("':' must be followed") {
            message.push_str("; put a space there, and not a tab");
        }
        Self { at, path, message }
    }
}

/// Reads the first document of a file, whose positions are in `file`.
pub(super) fn parse(bytes: &[u8], file: Layer) -> Result<Document, Mistake> {
    let mut parser = Parser::new_from_str(text_of(bytes)?);
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event?;
        let at = Position { file, ..Position::from(span) };
        match event {
            Event::Scalar(text, _, _, _) if text.len() > MAX_SCALAR_BYTES => {
                let message =
                    format!("text longer than {} KiB; expected a shorter one", MAX_SCALAR_BYTES >> 10);
                return Err(builder.mistake(at, message));
            }
            Event::Scalar(text, style, anchor, tag) => {
                let content = Content::Scalar(scalar(builder.text(&text), style, tag.as_deref()));
                builder.complete(Node { at, content }, anchor)?;
            }
            Event::SequenceStart(anchor, _) => builder.open(Frame::List { at, anchor, items: Vec::new() })?,
            Event::MappingStart(anchor, _) => {
                builder.open(Frame::Map { at, anchor, pairs: Vec::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close()?,
            Event::Alias(anchor) => builder.alias(anchor, at)?,
            Event::DocumentEnd => break,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {}
        }
    }
    if let Some(Ok((Event::DocumentStart(_), span))) = parser.next_event() {
        let message = "only the first document of a file is read; this one is ignored";
        builder.warn(span.into(), message);
    }
    Ok(Document { root: builder.root, warnings: builder.warnings })
}

fn scalar(text: Rc<str>, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let tag = match tag {
        None => ScalarTag::None,
        Some(tag) if !tag.is_yaml_core_schema() => ScalarTag::Text,
        Some(tag) => match tag.suffix.as_str() {
            "bool" | "int" | "null" => ScalarTag::Meaning,
            "float" => ScalarTag::Float,
            _ => ScalarTag::Text,
        },
    };
    Scalar { text, is_plain: style == ScalarStyle::Plain, tag }
}

/// Returns the text of a file without its byte order mark.
///
/// # Errors
/// The position of a byte that is not UTF-8, or of a character that YAML forbids: the parser would treat the first NUL as
/// the end of the file, and silently ignore the rest.
fn text_of(bytes: &[u8]) -> Result<&str, Mistake> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = "invalid UTF-8; expected a file saved as UTF-8".to_owned();
        mistake(bytes, error.valid_up_to(), message)
    })?;
    if let Some((at, character)) = text.char_indices().find(|(_, character)| is_forbidden(*character)) {
        let message = format!("control character {}, which YAML forbids", character.escape_unicode());
        return Err(mistake(bytes, at, message));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Characters that the parser of envoyproxy/ratelimit rejects too.
const fn is_forbidden(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        character => character <= '\u{9f}' || matches!(character, '\u{fffe}' | '\u{ffff}'),
    }
}

fn mistake(bytes: &[u8], at: usize, message: String) -> Mistake {
    let before = bytes.get(..at).unwrap_or_default();
    let line = before.split(|byte| *byte == b'\n').count();
    let column = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(column).chars().count().saturating_add(1);
    Mistake { at: Position::new(line, column), path: String::new(), message }
}

/// Description of a node for messages.
pub(super) fn describe(node: &Node) -> String {
    let scalar = match &node.content {
        Content::List(_) => return "a list".to_owned(),
        Content::Map(_) => return "a mapping".to_owned(),
        Content::Scalar(scalar) => scalar,
    };
    let text = excerpt(&scalar.text);
    match scalar.meaning() {
        Meaning::Null => "nothing".to_owned(),
        Meaning::Bool(value) if *text != value.to_string() => {
            format!("`{text}`, which YAML reads as {value}")
        }
        Meaning::Bool(_) | Meaning::Integer(_) | Meaning::Float(_) => format!("`{text}`"),
        Meaning::Text => format!("the text \"{text}\""),
    }
}

/// Text for messages, truncated if it is long.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).escape_debug().to_string(),
        None => text.escape_debug().to_string(),
    }
}
