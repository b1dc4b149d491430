//! Puts the parser's events together.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use foldhash::quality::RandomState;

use super::{Content, Mistake, Node, Position};
use crate::config::reader::excerpt;

/// Nesting that no configuration needs; what is built here is walked recursively.
const MAX_DEPTH: usize = 64;
/// Nodes that a file may state: 100,000 rules of twenty each. Tests, which are not optimized, have less patience.
const MAX_NODES: usize = if cfg!(test) { 400_000 } else { 2_000_000 };
/// Remarks on one file. Generated ones may deserve more, all for the same reason.
const MAX_REMARKS: usize = 1_000;
/// Nodes that anchors and aliases may add to a document: a few lines can ask for billions.
const MAX_ALIASED_NODES: usize = 1_000_000;
/// Nodes that an anchor counts as, beside those that it names.
const NODES_OF_ANCHOR: usize = 10;
/// Bytes of text that anchors and aliases may add to a document.
const MAX_ALIASED_BYTES: usize = 64 << 20;

/// Bytes of the longest text that is kept once however often it is written, as the names of keys are.
const MAX_SHARED_TEXT: usize = 32;
/// Texts that are kept once.
const MAX_SHARED_TEXTS: usize = 1_000;

/// A collection whose end has not come yet.
#[derive(Debug)]
pub(super) enum Frame {
    List { at: Position, anchor: usize, items: Vec<Node> },
    Map { at: Position, anchor: usize, pairs: Vec<(Node, Node)>, key: Option<Node> },
}

impl Frame {
    pub(super) const fn list(at: Position, anchor: usize) -> Self {
        Self::List { at, anchor, items: Vec::new() }
    }

    pub(super) const fn map(at: Position, anchor: usize) -> Self {
        Self::Map { at, anchor, pairs: Vec::new(), key: None }
    }
}

/// A node that aliases may repeat, with what repeating it costs.
#[derive(Debug)]
struct Anchored {
    node: Node,
    nodes: usize,
    bytes: usize,
    depth: usize,
}

#[derive(Debug, Default)]
pub(super) struct Builder {
    open: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    aliased_nodes: usize,
    aliased_bytes: usize,
    texts: HashSet<Rc<str>, RandomState>,
    nodes: usize,
    /// Fields that were gone through to merge mappings.
    pub(super) merged: usize,
    pub(super) root: Option<Node>,
    pub(super) remarks: Vec<Mistake>,
}

impl Builder {
    pub(super) fn mistake(&self, at: Position, message: impl Into<String>) -> Mistake {
        Mistake { at, path: self.path(), message: message.into() }
    }

    /// Keeps a remark, if there are not too many already.
    pub(super) fn remark(&mut self, at: Position, message: impl Into<String>) {
        let remark = match MAX_REMARKS.saturating_sub(self.remarks.len()) {
            0 => return,
            1 => self.mistake(at, "looks odd, as other places before it do; what comes after it is not told"),
            _ => self.mistake(at, message),
        };
        self.remarks.push(remark);
    }

    /// A text, shared with equal ones where that is likely.
    pub(super) fn text(&mut self, text: &str) -> Rc<str> {
        if text.len() > MAX_SHARED_TEXT {
            return text.into();
        }
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Rc<str> = text.into();
        if self.texts.len() < MAX_SHARED_TEXTS {
            self.texts.insert(text.clone());
        }
        text
    }

    /// Where the reading stands.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.open {
            match frame {
                Frame::List { items, .. } => path.push_str(&format!("[{}]", items.len())),
                Frame::Map { key: Some(Node { content: Content::Scalar(key), .. }), .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&excerpt(&key.text));
                }
                Frame::Map { .. } => {}
            }
        }
        path
    }

    pub(super) fn open(&mut self, frame: Frame) -> Result<(), Mistake> {
        let (Frame::List { at, .. } | Frame::Map { at, .. }) = frame;
        if self.open.len() >= MAX_DEPTH {
            return Err(self.mistake(at, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.open.push(frame);
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<(), Mistake> {
        match self.open.pop() {
            Some(Frame::List { at, anchor, items }) => {
                self.complete(Node { at, content: Content::List(items) }, anchor)
            }
            Some(Frame::Map { at, anchor, pairs, .. }) => {
                let pairs = self.keyed(pairs)?;
                self.complete(Node { at, content: Content::Map(pairs) }, anchor)
            }
            None => Ok(()),
        }
    }

    pub(super) fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Mistake> {
        let Some(&Anchored { nodes, bytes, depth, .. }) = self.anchors.get(&anchor) else {
            return Err(self.mistake(at, "this alias stands inside of the node that it names"));
        };
        if self.open.len().saturating_add(depth) > MAX_DEPTH {
            return Err(self.mistake(at, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.charge(at, nodes, bytes)?;
        // Problems are reported where the value is written, which is where they are mended.
        match self.anchors.get(&anchor).map(|anchored| anchored.node.clone()) {
            Some(node) => self.complete(node, 0),
            None => Ok(()),
        }
    }

    /// Takes what anchors and aliases add to the document into account.
    fn charge(&mut self, at: Position, nodes: usize, bytes: usize) -> Result<(), Mistake> {
        self.aliased_nodes = self.aliased_nodes.saturating_add(nodes);
        self.aliased_bytes = self.aliased_bytes.saturating_add(bytes);
        match self.aliased_nodes > MAX_ALIASED_NODES || self.aliased_bytes > MAX_ALIASED_BYTES {
            true => Err(self.mistake(at, "the anchors and aliases of this file repeat too much")),
            false => Ok(()),
        }
    }

    /// Puts a node that is read where it belongs.
    pub(super) fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Mistake> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values, keys, lists and mappings; split the file");
            return Err(self.mistake(node.at, message));
        }
        if anchor > 0 {
            let (nodes, bytes, depth) = cost(&node);
            // It is kept beside the document, as if it were repeated once.
            self.charge(node.at, nodes.saturating_add(NODES_OF_ANCHOR), bytes)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, bytes, depth });
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { pairs, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(key) => pairs.push((key, node)),
            },
        }
        Ok(())
    }
}

/// Nodes, bytes of text and levels of a node.
fn cost(node: &Node) -> (usize, usize, usize) {
    let add = |(nodes, bytes, depth): (usize, usize, usize), node: &Node| {
        let (more_nodes, more_bytes, deep) = cost(node);
        (nodes.saturating_add(more_nodes), bytes.saturating_add(more_bytes), depth.max(deep))
    };
    let (nodes, bytes, depth) = match &node.content {
        Content::Scalar(scalar) => return (1, scalar.text.len(), 0),
        Content::List(items) => items.iter().fold((1, 0, 0), add),
        Content::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).fold((1, 0, 0), add),
    };
    (nodes, bytes, depth.saturating_add(1))
}
