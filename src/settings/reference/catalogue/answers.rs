//! What it answers.

use super::{
    Fate::{NoEffect, Part, Same},
    Form::{Boolean, Decimal, Text},
    Variable,
};

pub(super) const VARIABLES: [Variable; 9] = [
    Variable::new("LIMIT_RESPONSE_HEADERS_ENABLED", "false", Boolean, Part("response-headers")),
    Variable::new("LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, Same("limit-header")),
    Variable::new("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, Same("remaining-header")),
    Variable::new("LIMIT_RESET_HEADER", "RateLimit-Reset", Text, Same("reset-header")),
    Variable::new("RESPONSE_DYNAMIC_METADATA", "false", Boolean, Same("dynamic-metadata")),
    Variable::new("SHADOW_MODE", "false", Boolean, Same("shadow-mode")),
    Variable::new("QUOTA_MODE", "false", Boolean, Same("quota-mode")),
    Variable::new("NEAR_LIMIT_RATIO", "0.8", Decimal, Same("near-limit-ratio")),
    Variable::new(
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "false",
        Boolean,
        NoEffect("`atomic: true` in a domain charges all limits of a request or none"),
    ),
];
