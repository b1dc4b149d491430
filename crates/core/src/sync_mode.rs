//! Synchronization of a counter between instances: strict or leased.

/// Whether an instance may decide a rule's counter from hits that it charged ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SyncMode {
    /// The store makes each decision.
    #[default]
    Strict,
    /// An instance may charge a few hits ahead and decide from them for up to their hold. The limit is never exceeded; a
    /// request is rarely denied while another instance holds unused hits.
    Leased,
}

impl SyncMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Leased];

    /// Value of the `sync` key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Leased => "leased",
        }
    }
}
