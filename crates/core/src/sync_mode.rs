//! Whether an instance may decide a counter without asking the store.

/// Whether a rule's counter may be decided from hits that this instance charged ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// The store makes every decision.
    #[default]
    Strict,
    /// An instance may charge a few hits ahead and decide from them for a moment. The limit is never exceeded; a
    /// request may rarely be denied although another instance holds unused hits.
    Leased,
}

impl SyncMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Leased];

    /// The name that the configuration uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Leased => "leased",
        }
    }
}
