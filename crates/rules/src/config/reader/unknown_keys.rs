//! Keys that don't belong where they stand.

use super::Reader;
use crate::config::{
    problem::Path,
    vocabulary::{Place, Standing, is_of_reference},
    yaml::{Content, Node, Position},
};

impl Reader<'_> {
    /// Reports a key that does not belong to `place`.
    pub(super) fn stranger(
        &mut self,
        at: Position,
        value: &Node,
        path: &Path<'_>,
        place: Place,
        standing: Standing,
    ) {
        let here = place.name();
        let message = match standing {
            Standing::Known => return,
            Standing::Ignored(home) => {
                let message = format!("has no effect in {here}; it belongs to {}", home.name());
                self.problems.warning(self.file, at, path, message);
                if !matches!(path, Path::Key(_, "metadata")) {
                    self.ignored(value, path);
                }
                return;
            }
            Standing::Misplaced(home) => format!("does not belong to {here} but to {}", home.name()),
            Standing::Unknown(Some(meant)) => format!("unknown key; did you mean `{meant}`?"),
            Standing::Unknown(None) => {
                format!("unknown key; {here} may have {}", place.keys().join(", "))
            }
        };
        self.problems.error(self.file, at, path, message);
    }

    /// Looks for what the reference refuses even in places that it ignores otherwise.
    fn ignored(&mut self, node: &Node, path: &Path<'_>) {
        match &node.content {
            Content::Scalar(scalar) => self.refuse_float(scalar, node.at, path),
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.item(index);
                    match &item.content {
                        Content::Map(_) => self.ignored(item, &path),
                        Content::Scalar(_) | Content::List(_) => self.refuse(item, &path, "a mapping"),
                    }
                }
            }
            Content::Map(pairs) => {
                for (key, value) in pairs {
                    let Some(name) = self.key(key, path) else { continue };
                    let path = path.key(&name);
                    match &*name {
                        "metadata" => {}
                        name if is_of_reference(name) => self.ignored(value, &path),
                        _ => self.problems.error(self.file, key.at, path, "unknown key"),
                    }
                }
            }
        }
    }
}
