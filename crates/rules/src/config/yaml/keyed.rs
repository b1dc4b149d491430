//! Pairs of a mapping: duplicate keys and merge keys, with the semantics of envoyproxy/ratelimit.

use std::{collections::HashMap, rc::Rc};

use super::{Content, Mistake, Node, Position, builder::Builder};
use crate::config::reader::excerpt;

/// Keys whose mappings are merged by field if they are repeated; of other keys the last one wins.
const MERGED_BY_FIELD: [&str; 2] = ["rate_limit", "metadata"];

/// Maximum number of repeated keys of a mapping.
const MAX_REPEATS: usize = 100;
/// Maximum number of fields compared to merge the mappings of a file: each merge takes time for all fields.
const MAX_MERGED_FIELDS: usize = 1_000_000;

impl Builder {
    /// Resolves duplicates and merge keys of a mapping. Pairs take effect in their order, so a `<<` changes earlier pairs,
    /// unlike in YAML; a warning reports it.
    pub(super) fn keyed(&mut self, pairs: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, Mistake> {
        let mut keyed = Keyed::default();
        let mut repeats = 0_usize;
        for (key, value) in pairs {
            let again = key.at;
            if repeats > MAX_REPEATS {
                return Err(self.mistake(again, "this mapping repeats its keys too often"));
            }
            if is_merge(&key) {
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
            Content::List(items) => items.into_iter().map(map_of).collect::<Option<_>>().unwrap_or_default(),
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
        let Some(name) = name_of(&key) else {
            // Not a key of the language; the reader of the mapping reports it.
            self.pairs.push((key, value));
            return None;
        };
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
