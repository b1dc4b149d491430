#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

pub mod algorithm;
pub mod ban;
pub mod calendar;
pub mod clock;
pub mod descriptor;
pub mod duration;
mod enforced_share;
pub mod lease;
pub mod quota;
mod record_id;
mod saturating;
mod unit;

pub use self::enforced_share::{CountedKey, EnforcedShare, NotAShare};
pub use self::record_id::{Fnv, PathStep, RecordId, hash_of, mixed};

/// Defines an enum whose variants have names, with all of them in [`ALL`](SyncMode::ALL) and the name of each.
#[macro_export]
macro_rules! named {
    ($(#[$attribute:meta])* $visibility:vis enum $type:ident {
        $($(#[$variant_attribute:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$attribute])*
        $visibility enum $type {
            $($(#[$variant_attribute])* $variant,)+
        }

        impl $type {
            /// All variants, in the order of their definition.
            #[allow(dead_code)]
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Name in the configuration, the API, metrics and metadata.
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

named! {
    /// Whether an instance may decide a rule's counter from hits that it charged ahead.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum SyncMode {
        /// The store makes each decision.
        #[default]
        Strict = "strict",
        /// An instance may charge a few hits ahead and decide from them for up to their hold. The limit is never exceeded; a
        /// request is rarely denied while another instance holds unused hits.
        Leased = "leased",
        /// Like [`Self::Leased`] for a counter that gets many requests in a worker and is not near its limit, and otherwise
        /// like [`Self::Strict`], except that only admitted hits count.
        Auto = "auto",
    }
}

impl SyncMode {
    /// Whether an instance may charge a counter ahead.
    pub const fn may_lease(self) -> bool {
        matches!(self, Self::Leased | Self::Auto)
    }
}
