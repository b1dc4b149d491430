//! Tree of a file with the byte ranges of its nodes.

use std::ops::Range;

use saphyr_parser::{Event, Parser, Span};

/// Maximum nesting, as of the reader.
const MAX_DEPTH: usize = 64;

/// A node with its range of bytes.
#[derive(Debug)]
pub(super) struct SpanNode {
    pub(super) range: Range<usize>,
    pub(super) content: SpanContent,
}

#[derive(Debug)]
pub(super) enum SpanContent {
    Scalar(String),
    Alias,
    List(Vec<SpanNode>),
    Map { pairs: Vec<(SpanNode, SpanNode)>, is_flow: bool },
}

impl SpanNode {
    /// The value of a key, if this is a mapping that states it itself.
    pub(super) fn value(&self, name: &str) -> Option<&Self> {
        let SpanContent::Map { pairs, .. } = &self.content else { return None };
        let found = pairs.iter().rev().find(|(key, _)| key.text() == Some(name));
        found.map(|(_, value)| value)
    }

    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.content {
            SpanContent::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            SpanContent::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Key and value of a descriptor, as the segments of paths have them.
    pub(super) fn stated(&self) -> Option<String> {
        let key = self.value("key")?.text()?;
        let of = |name: &str| match self.value(name) {
            None => Some(None),
            Some(value) => value.text().map(Some),
        };
        let (value, regex, cidr) = (of("value")?, of("regex")?, of("cidr")?);
        Some(match (value.filter(|value| !value.is_empty()), regex, cidr) {
            (_, Some(regex), _) => format!("{key}_~{regex}"),
            (_, _, Some(cidr)) => format!("{key}_{cidr}"),
            (Some(value), ..) => format!("{key}_{value}"),
            (None, ..) => key.to_owned(),
        })
    }
}

/// Collection that is still open.
#[derive(Debug)]
struct Open {
    start: usize,
    is_list: bool,
    nodes: Vec<SpanNode>,
}

/// Reads the first document; `None` if it is not valid.
pub(super) fn parse(text: &str) -> Option<SpanNode> {
    // The reader omits a byte order mark.
    let (skipped, source) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (text.len().saturating_sub(rest.len()), rest),
        None => (0, text),
    };
    // Spans count characters.
    let mut offsets: Vec<usize> = source.char_indices().map(|(at, _)| at.saturating_add(skipped)).collect();
    offsets.push(text.len());
    let range = |span: Span| -> Option<Range<usize>> {
        Some(*offsets.get(span.start.index())?..*offsets.get(span.end.index())?)
    };
    let (mut open, mut parser): (Vec<Open>, _) = (Vec::new(), Parser::new_from_str(source));
    while let Some(event) = parser.next_event() {
        let (event, span) = event.ok()?;
        let span = range(span)?;
        let node = match event {
            Event::Scalar(value, ..) => {
                SpanNode { range: span, content: SpanContent::Scalar(value.to_string()) }
            }
            Event::Alias(_) => SpanNode { range: span, content: SpanContent::Alias },
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() >= MAX_DEPTH {
                    return None;
                }
                let is_list = matches!(event, Event::SequenceStart(..));
                open.push(Open { start: span.start, is_list, nodes: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => closed(open.pop()?, span, text)?,
            _ => continue,
        };
        match open.last_mut() {
            Some(parent) => parent.nodes.push(node),
            None => return Some(node),
        }
    }
    None
}

fn closed(Open { start, is_list, nodes }: Open, end: Range<usize>, text: &str) -> Option<SpanNode> {
    // Only the end of a flow collection is a character.
    let is_flow = matches!(text.get(end.clone()), Some("}" | "]"));
    let last = nodes.last().map_or(start, |node| node.range.end);
    let range = start..if is_flow { end.end } else { last };
    if is_list {
        return Some(SpanNode { range, content: SpanContent::List(nodes) });
    }
    let (mut pairs, mut nodes) = (Vec::new(), nodes.into_iter());
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        pairs.push((key, value));
    }
    Some(SpanNode { range, content: SpanContent::Map { pairs, is_flow } })
}
