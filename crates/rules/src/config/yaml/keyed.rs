//! The pairs of a mapping: duplicate keys and merge keys, which mean what they mean to the reference.

use std::{collections::HashMap, rc::Rc};

use super::{Content, Mistake, Node, Position, builder::Builder};
use crate::config::reader::excerpt;

/// Keys whose mappings are merged field by field where they come again; of others the last one wins.
const MERGED_BY_FIELD: [&str; 2] = ["rate_limit", "metadata"];

/// Keys that a mapping may repeat.
const MAX_REPEATS: usize = 100;
/// Fields that are gone through to merge the mappings of a file: each merge costs time for all that are there.
const MAX_MERGED: usize = 1_000_000;

impl Builder {
    /// The pairs of a mapping with duplicates and merge keys resolved. Pairs take effect in their order, so a `<<`
    /// changes what stands before it; YAML has it otherwise, which is remarked.
    pub(super) fn keyed(&mut self, pairs: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, Mistake> {
        let mut keyed = Keyed::default();
        let mut repeats = 0_usize;
        for (key, value) in pairs {
            let again = key.at;
            if repeats > MAX_REPEATS {
                return Err(
                    self.mistake(again, "a mapping that repeats its keys this often is no configuration")
                );
            }
            if is_merge(&key) {
                self.merge(&mut keyed, again, value)?;
            } else if let Some((name, Known::Stated(before))) = keyed.put(key, value, true) {
                let effect = match MERGED_BY_FIELD.contains(&&*name) {
                    true => "both are merged, and of a field in both this one wins",
                    false => "this one wins",
                };
                let name = excerpt(&name);
                self.remark(again, format!("`{name}` stands on line {} already; {effect}", before.line()));
                repeats = repeats.saturating_add(1);
            }
            self.charge_merges(again, &mut keyed)?;
        }
        Ok(keyed.pairs)
    }

    /// Applies a merge key. Of several mappings the first goes before the others.
    fn merge(&mut self, keyed: &mut Keyed, at: Position, value: Node) -> Result<(), Mistake> {
        let maps = match value.content {
            Content::Map(map) => vec![map],
            Content::List(items) => items.into_iter().map(map_of).collect::<Option<_>>().unwrap_or_default(),
            Content::Scalar(_) => Vec::new(),
        };
        if maps.is_empty() {
            return Err(self.mistake(at, "`<<` merges a mapping or a list of mappings, found neither"));
        }
        for (key, value) in maps.into_iter().rev().flatten() {
            self.charge_merges(at, keyed)?;
            if let Some((name, Known::Stated(before))) = keyed.put(key, value, false) {
                let message = format!(
                    "`<<` changes `{}` on line {}, as in the reference, while YAML has it otherwise; put `<<` \
                     first, so that it reads the same to all",
                    excerpt(&name),
                    before.line()
                );
                self.remark(at, message);
            }
        }
        Ok(())
    }

    /// Takes what merging cost into account.
    fn charge_merges(&mut self, at: Position, keyed: &mut Keyed) -> Result<(), Mistake> {
        self.merged = self.merged.saturating_add(std::mem::take(&mut keyed.merged));
        match self.merged > MAX_MERGED {
            true => Err(self.mistake(at, "the mappings of this file are merged too often")),
            false => Ok(()),
        }
    }
}

/// A key that was there already.
enum Known {
    /// The mapping states it, here.
    Stated(Position),
    /// It came by a merge key.
    Merged,
}

/// The pairs of a mapping by key.
#[derive(Debug, Default)]
struct Keyed {
    pairs: Vec<(Node, Node)>,
    /// Position in the pairs, and whether the mapping states the key itself.
    index: HashMap<Rc<str>, (usize, bool)>,
    /// Fields that were gone through to merge mappings, since that was last charged.
    merged: usize,
}

impl Keyed {
    /// Puts a pair in; a key that is there already takes the new value.
    fn put(&mut self, key: Node, value: Node, is_stated: bool) -> Option<(Rc<str>, Known)> {
        let Some(name) = name_of(&key) else {
            // No key of the language; whoever reads the mapping says so.
            self.pairs.push((key, value));
            return None;
        };
        let Some((at, was_stated)) = self.index.insert(name.clone(), (self.pairs.len(), is_stated)) else {
            self.pairs.push((key, value));
            return None;
        };
        self.index.insert(name.clone(), (at, was_stated || is_stated));
        let pair = self.pairs.get_mut(at)?;
        let known = if was_stated { Known::Stated(pair.0.at) } else { Known::Merged };
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
