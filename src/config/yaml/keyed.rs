//! The pairs of a mapping: duplicate keys and merge keys.

use std::{collections::HashMap, rc::Rc};

use super::{Content, Mistake, Node, Position, builder::Builder};

impl Builder {
    /// The pairs of a mapping with duplicates dropped and merge keys applied. What the mapping states itself
    /// goes before what it merges.
    pub(super) fn keyed(&mut self, pairs: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, Mistake> {
        let mut keyed = Keyed::default();
        let mut merges = Vec::new();
        for (key, value) in pairs {
            if is_merge(&key) {
                merges.push((keyed.pairs.len(), value));
            } else if let Some((before, name)) = keyed.put(key, value) {
                let remark = format!("`{name}` stands on line {} already; this one wins", before.at.line);
                self.remark(before.again, remark);
            }
        }
        let own = keyed.pairs.len();
        for (stated_before, merge) in merges {
            let at = merge.at;
            let maps = match merge.content {
                Content::Map(map) => vec![map],
                Content::List(items) => {
                    items.into_iter().map(map_of).collect::<Option<_>>().unwrap_or_default()
                }
                Content::Scalar(_) => Vec::new(),
            };
            if maps.is_empty() {
                return Err(self.mistake(at, "`<<` merges a mapping or a list of mappings, found neither"));
            }
            for (key, value) in maps.into_iter().flatten() {
                if let Some(index) = keyed.put_if_new(key, value)
                    && index < stated_before.min(own)
                {
                    let message = "`<<` does not change the keys before it, while the reference would; \
                                   put it first, so that both read the same";
                    self.remark(at, message);
                }
            }
        }
        Ok(keyed.pairs)
    }
}

/// A key that came again.
struct Again {
    /// Where it stood.
    at: Position,
    /// Where it came again.
    again: Position,
}

/// The pairs of a mapping by key.
#[derive(Debug, Default)]
struct Keyed {
    pairs: Vec<(Node, Node)>,
    index: HashMap<Rc<str>, usize>,
}

impl Keyed {
    /// Puts a pair in; a key that is there already takes the new value.
    fn put(&mut self, key: Node, value: Node) -> Option<(Again, Rc<str>)> {
        let Some(name) = name_of(&key) else {
            // No key of the language; whoever reads the mapping says so.
            self.pairs.push((key, value));
            return None;
        };
        if let Some(pair) = self.index.get(&name).and_then(|at| self.pairs.get_mut(*at)) {
            let again = Again { at: pair.0.at, again: key.at };
            *pair = (key, value);
            return Some((again, name));
        }
        self.index.insert(name, self.pairs.len());
        self.pairs.push((key, value));
        None
    }

    /// Puts a pair in unless the key is there already, and then says at which index.
    fn put_if_new(&mut self, key: Node, value: Node) -> Option<usize> {
        let known = name_of(&key).and_then(|name| self.index.get(&name).copied());
        if known.is_none() {
            self.put(key, value);
        }
        known
    }
}

fn name_of(key: &Node) -> Option<Rc<str>> {
    match &key.content {
        Content::Scalar(key) => Some(key.text.clone()),
        Content::List(_) | Content::Map(_) => None,
    }
}

fn is_merge(key: &Node) -> bool {
    matches!(&key.content, Content::Scalar(key) if key.is_plain && &*key.text == "<<")
}

fn map_of(node: Node) -> Option<Vec<(Node, Node)>> {
    match node.content {
        Content::Map(map) => Some(map),
        Content::Scalar(_) | Content::List(_) => None,
    }
}
