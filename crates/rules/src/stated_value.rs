//! Places where the values of a rule are stated.

use std::sync::Arc;

/// Place where a key of a rule is stated, of a rule that has keys of several places: it inherits, or an overlay changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedValue {
    /// The key.
    pub key: &'static str,
    /// The file, as in problems.
    pub file: Arc<str>,
    /// The line, from 1; 0 if the file has no lines, as the resource of a control plane.
    pub line: u32,
}
