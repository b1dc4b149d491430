//! Builder of a tree from the parser's events; duplicate keys and merge keys have the semantics of envoyproxy/ratelimit.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use foldhash::quality::RandomState;

use super::{Content, Mistake, Node, Position, excerpt};

/// Maximum nesting: the tree is walked recursively, and no configuration needs more.
const MAX_DEPTH: usize = 64;
/// Maximum number of nodes of a file: 100,000 rules of twenty nodes. Fewer in tests, which are not optimized.
const MAX_NODES: usize = if cfg!(test) { 400_000 } else { 2_000_000 };
/// Maximum number of warnings of a file. A generated file may have more, all for one reason.
const MAX_WARNINGS: usize = 1_000;
/// Maximum number of nodes that anchors and aliases may add to a document: a few lines can expand to billions.
const MAX_ALIASED_NODES: usize = 1_000_000;
/// Cost of an anchor in nodes, besides those that it names.
const ANCHOR_COST_NODES: usize = 10;
/// Maximum size of text that anchors and aliases may add to a document, in bytes.
const MAX_ALIASED_BYTES: usize = 64 << 20;

/// Maximum length in bytes of texts that are interned, such as keys.
const MAX_INTERNED_BYTES: usize = 32;
/// Maximum number of interned texts.
const MAX_INTERNED_TEXTS: usize = 1_000;

/// A collection that is still open.
#[derive(Debug)]
pub(super) enum Frame {
    List { at: Position, anchor: usize, items: Vec<Node> },
    Map { at: Position, anchor: usize, pairs: Vec<(Node, Node)>, key: Option<Node> },
}

/// Anchored node, with the cost of repeating it.
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
    /// Number of fields compared to merge mappings.
    merged: usize,
    pub(super) root: Option<Node>,
    pub(super) warnings: Vec<Mistake>,
}

impl Builder {
    pub(super) fn mistake(&self, at: Position, message: impl Into<String>) -> Mistake {
        Mistake { at, path: self.path(), message: message.into() }
    }

    /// Adds a warning, unless there are too many already.
    pub(super) fn warn(&mut self, at: Position, message: impl Into<String>) {
        let warning = match MAX_WARNINGS.saturating_sub(self.warnings.len()) {
            0 => return,
            1 => self.mistake(at, "too many warnings of this kind; further ones are omitted"),
            _ => self.mistake(at, message),
        };
        self.warnings.push(warning);
    }

    /// Returns the text, interned if it is short.
    pub(super) fn text(&mut self, text: &str) -> Rc<str> {
        if text.len() > MAX_INTERNED_BYTES {
            return text.into();
        }
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Rc<str> = text.into();
        if self.texts.len() < MAX_INTERNED_TEXTS {
            self.texts.insert(text.clone());
        }
        text
    }

    /// Path of the current node.
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
            return Err(self.mistake(at, "this alias is inside the node that it names"));
        };
        if self.open.len().saturating_add(depth) > MAX_DEPTH {
            return Err(self.mistake(at, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        self.charge(at, nodes, bytes)?;
        // Problems are reported at the anchor, where the value is written and can be corrected.
        match self.anchors.get(&anchor).map(|anchored| anchored.node.clone()) {
            Some(node) => self.complete(node, 0),
            None => Ok(()),
        }
    }

    /// Accounts for nodes and bytes that anchors and aliases add to the document.
    fn charge(&mut self, at: Position, nodes: usize, bytes: usize) -> Result<(), Mistake> {
        self.aliased_nodes = self.aliased_nodes.saturating_add(nodes);
        self.aliased_bytes = self.aliased_bytes.saturating_add(bytes);
        match self.aliased_nodes > MAX_ALIASED_NODES || self.aliased_bytes > MAX_ALIASED_BYTES {
            true => Err(self.mistake(at, "the anchors and aliases of this file repeat too much")),
            false => Ok(()),
        }
    }

    /// Adds a complete node to the innermost open collection.
    pub(super) fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Mistake> {
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values, keys, lists and mappings; split the file");
            return Err(self.mistake(node.at, message));
        }
        if anchor > 0 {
            let (nodes, bytes, depth) = cost(&node);
            // The anchored copy counts as one repetition.
            self.charge(node.at, nodes.saturating_add(ANCHOR_COST_NODES), bytes)?;
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

/// Number of nodes, bytes of text and depth of a node.
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

/// Keys whose mappings are merged by field if they are repeated; of other keys the last one wins.
const MERGED_BY_FIELD: [&str; 2] = ["rate_limit", "metadata"];

/// Maximum number of repeated keys of a mapping.
const MAX_REPEATS: usize = 100;
/// Maximum number of fields compared to merge the mappings of a file: each merge takes time for all fields.
const MAX_MERGED_FIELDS: usize = 1_000_000;

impl Builder {
    /// Resolves duplicates and merge keys of a mapping. Pairs take effect in their order, so a `<<` changes earlier pairs,
    /// unlike in YAML; a warning reports it.
    fn keyed(&mut self, pairs: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, Mistake> {
        let mut keyed = Keyed::default();
        let mut repeats = 0_usize;
        for (key, value) in pairs {
            let again = key.at;
            if repeats > MAX_REPEATS {
                return Err(self.mistake(again, "this mapping repeats its keys too often"));
            }
            if matches!(&key.content, Content::Scalar(key) if key.is_plain && &*key.text == "<<") {
                self.merge(&mut keyed, again, value)?;
            } else if let Some((name, Earlier::Stated(before))) = keyed.put(key, value, true) {
                let effect = match MERGED_BY_FIELD.contains(&&*name) {
                    true => "both are merged, and this one wins for fields in both",
                    false => "this one wins",
                };
                let name = excerpt(&name);
                self.warn(again, format!("duplicate of `{name}` on line {}; {effect}", before.line()));
                repeats = repeats.saturating_add(1);
            }
            self.charge_merges(again, &mut keyed)?;
        }
        Ok(keyed.pairs)
    }

    /// Applies a merge key. Of several mappings the first has precedence.
    fn merge(&mut self, keyed: &mut Keyed, at: Position, value: Node) -> Result<(), Mistake> {
        let maps = match value.content {
            Content::Map(map) => vec![map],
            Content::List(items) => {
                let map = |item: Node| if let Content::Map(map) = item.content { Some(map) } else { None };
                items.into_iter().map(map).collect::<Option<_>>().unwrap_or_default()
            }
            Content::Scalar(_) => Vec::new(),
        };
        if maps.is_empty() {
            return Err(self.mistake(at, "expected a mapping or a list of mappings after `<<`"));
        }
        for (key, value) in maps.into_iter().rev().flatten() {
            self.charge_merges(at, keyed)?;
            if let Some((name, Earlier::Stated(before))) = keyed.put(key, value, false) {
                let message = format!(
                    "`<<` changes `{}` on line {}, as in envoyproxy/ratelimit but not in other YAML parsers; put `<<` \
                     first",
                    excerpt(&name),
                    before.line()
                );
                self.warn(at, message);
            }
        }
        Ok(())
    }

    /// Accounts for the cost of merging.
    fn charge_merges(&mut self, at: Position, keyed: &mut Keyed) -> Result<(), Mistake> {
        self.merged = self.merged.saturating_add(std::mem::take(&mut keyed.merged));
        match self.merged > MAX_MERGED_FIELDS {
            true => Err(self.mistake(at, "the mappings of this file are merged too often")),
            false => Ok(()),
        }
    }
}

/// Origin of an earlier equal key.
enum Earlier {
    /// Stated in the mapping at this position.
    Stated(Position),
    /// Added by a merge key.
    Merged,
}

/// The pairs of a mapping by key.
#[derive(Debug, Default)]
struct Keyed {
    pairs: Vec<(Node, Node)>,
    /// Position in the pairs, and whether the mapping states the key itself.
    index: HashMap<Rc<str>, (usize, bool)>,
    /// Number of fields compared since the cost was last accounted for.
    merged: usize,
}

impl Keyed {
    /// Inserts a pair; the value of an existing key is replaced or merged.
    fn put(&mut self, key: Node, value: Node, is_stated: bool) -> Option<(Rc<str>, Earlier)> {
        let Content::Scalar(scalar) = &key.content else {
            // Not a key of the language; the reader of the mapping reports it.
            self.pairs.push((key, value));
            return None;
        };
        let name = scalar.text.clone();
        let Some((at, was_stated)) = self.index.insert(name.clone(), (self.pairs.len(), is_stated)) else {
            self.pairs.push((key, value));
            return None;
        };
        self.index.insert(name.clone(), (at, was_stated || is_stated));
        let pair = self.pairs.get_mut(at)?;
        let known = if was_stated { Earlier::Stated(pair.0.at) } else { Earlier::Merged };
        pair.0 = key;
        match (&mut pair.1.content, value) {
            (Content::Map(fields), Node { content: Content::Map(more), .. })
                if MERGED_BY_FIELD.contains(&&*name) =>
            {
                let mut merged = Self::default();
                self.merged = self.merged.saturating_add(fields.len()).saturating_add(more.len());
                for (key, value) in std::mem::take(fields).into_iter().chain(more) {
                    merged.put(key, value, true);
                }
                self.merged = self.merged.saturating_add(merged.merged);
                *fields = merged.pairs;
            }
            (_, value) => pair.1 = value,
        }
        Some((name, known))
    }
}
