//! The decision of a request as its dynamic metadata names it.

use tollgate_core::descriptor::Descriptor;
use tollgate_limiter::{
    deciding_rule::{AppliedPolicy, NamedText},
    decision::{Code, Decision},
};

use super::{NamedDecisions, ResponseOptions};

/// Key of the metadata.
pub(super) const KEY: &str = "decision";

/// Rule, key and policy that decided a request. Texts are bounded, and may be empty.
#[derive(Debug)]
pub(super) struct NamedDecision {
    pub(super) rule: NamedText,
    pub(super) key: NamedText,
    pub(super) code: Code,
    pub(super) policy: AppliedPolicy,
    pub(super) remaining: Option<u64>,
}

impl NamedDecision {
    /// Names what decided, if the options request it.
    pub(super) fn of(
        options: &ResponseOptions,
        decision: &Decision<'_>,
        descriptors: &[Descriptor<'_>],
    ) -> Option<Self> {
        let is_named = match options.decision_metadata {
            NamedDecisions::Off => false,
            NamedDecisions::Denials => decision.has_denial(),
            NamedDecisions::All => true,
        };
        let deciding = is_named.then(|| decision.deciding()).flatten()?;
        Some(Self {
            rule: deciding.rule(),
            key: if options.decision_key { deciding.key(descriptors) } else { NamedText::default() },
            code: deciding.code,
            policy: deciding.policy,
            remaining: deciding.remaining,
        })
    }

    /// Name of the code, as in protobuf.
    pub(super) const fn code(&self) -> &'static str {
        code_name(self.code)
    }
}

/// Name of a code, as in protobuf.
pub(super) const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}
