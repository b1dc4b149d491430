//! The `force` field of a change.

use serde::{Deserialize, Deserializer};

/// Whether guardrails are overridden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::http::admin::api) enum Force {
    #[default]
    Off,
    On,
}

impl<'de> Deserialize<'de> for Force {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(if bool::deserialize(deserializer)? { Self::On } else { Self::Off })
    }
}
