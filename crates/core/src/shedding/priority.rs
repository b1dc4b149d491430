//! Priorities of requests.

/// Priority of a request; the lowest is shed first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Shed last.
    Critical,
    /// Shed after default requests.
    High,
    /// Requests without a priority, or with an unknown one.
    #[default]
    Default,
    /// Shed first.
    Low,
}

impl Priority {
    /// Number of priorities.
    pub const COUNT: usize = 4;

    /// All priorities, the one that is shed last first.
    pub const ALL: [Self; Self::COUNT] = [Self::Critical, Self::High, Self::Default, Self::Low];

    /// The value that requests carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Default => "default",
            Self::Low => "low",
        }
    }

    /// Position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the priority of that name in any case, and the default one for any other text.
    pub fn of(name: &str) -> Self {
        let named = Self::ALL.into_iter().find(|priority| priority.name().eq_ignore_ascii_case(name));
        named.unwrap_or_default()
    }
}
