//! What an operator can choose about answers.

/// How answers look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Which headers tell the caller's client about its limits.
    pub headers: HeaderStyle,
    /// Whether a denial carries an `application/problem+json` body.
    pub problem_body: bool,
    /// Whether a header marks answers that were made without the store.
    pub degraded_header: bool,
    /// Whether answers carry dynamic metadata: the request as it was understood, and the metadata of the rules
    /// that let it pass.
    pub dynamic_metadata: bool,
}

/// The headers that answers add to the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderStyle {
    /// None but `Retry-After` on a denial.
    Off,
    /// Limit, remaining and seconds to reset, under three names.
    Triple(HeaderNames),
    /// `RateLimit` and `RateLimit-Policy`, as draft-ietf-httpapi-ratelimit-headers-10 has them.
    Ietf,
}

/// The names of the three headers of [`HeaderStyle::Triple`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// Carries the limit.
    pub limit: String,
    /// Carries what remains.
    pub remaining: String,
    /// Carries the seconds to the reset.
    pub reset: String,
}

impl HeaderNames {
    /// The reference's names.
    pub fn ratelimit() -> Self {
        Self::with_prefix("RateLimit-")
    }

    /// The names most clients know.
    pub fn x_ratelimit() -> Self {
        Self::with_prefix("X-RateLimit-")
    }

    fn with_prefix(prefix: &str) -> Self {
        let name = |end: &str| format!("{prefix}{end}");
        Self { limit: name("Limit"), remaining: name("Remaining"), reset: name("Reset") }
    }
}

/// The largest request that is looked at. What is larger is refused with `INVALID_ARGUMENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Descriptors in a request.
    pub descriptors: usize,
    /// Entries in a descriptor.
    pub entries: usize,
    /// Bytes of a key, a value or a domain.
    pub text: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        // Texts come from a proxy's clients, and a refused request is one that a proxy may let pass: the bound has
        // to be above what a proxy takes, which is 60 KiB of headers in Envoy.
        Self { descriptors: 64, entries: 16, text: 128 << 10 }
    }
}
