//! Its log.

use super::{Fate::Same, Form::Text, Variable};

pub(super) const VARIABLES: [Variable; 2] = [
    Variable::new("LOG_LEVEL", "WARN", Text, Same("log-level")),
    Variable::new("LOG_FORMAT", "text", Text, Same("log-format")),
];
