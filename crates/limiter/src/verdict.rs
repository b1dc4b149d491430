//! What a request came to.

use std::{borrow::Cow, time::Duration};

use smallvec::SmallVec;

use tollgate_core::{
    algorithm::{Algorithm, Verdict},
    quota::Quota,
};
use tollgate_rules::{List, OnStoreError, Rule};

/// Whether something passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It passes.
    Ok,
    /// It is over a limit.
    OverLimit,
}

/// What one descriptor came to.
#[derive(Clone, Debug)]
pub enum Status<'r> {
    /// No rule limits it, or the rule was replaced by another one of the request.
    NoLimit,
    /// A rule says that it is unlimited.
    Unlimited,
    /// An operator has switched its rule off.
    Off {
        /// Whether that one is a quota: then it is one that never runs out.
        is_quota: bool,
    },
    /// A list denies it.
    Denied,
    /// A counter decided.
    Limited(Limited<'r>),
}

/// What a counter decided, and for whom.
#[derive(Clone, Debug)]
pub struct Limited<'r> {
    /// The rule; none for a limit that the request brought along.
    pub rule: Option<&'r Rule>,
    /// The quota that was enforced.
    pub quota: Quota,
    /// What it was enforced by.
    pub algorithm: Algorithm,
    /// What the counter said.
    pub verdict: Verdict,
    /// Whether it is a quota: it denies only when every quota of the request is exhausted.
    pub is_quota: bool,
    /// Whether the limit is only watched.
    pub is_shadow: bool,
}

impl<'r> Limited<'r> {
    /// What the descriptor's status says: a watched limit is never over.
    pub const fn code(&self) -> Code {
        match self.verdict.admitted || self.is_shadow {
            true => Code::Ok,
            false => Code::OverLimit,
        }
    }

    /// The limit's name; empty when it has none.
    pub fn name(&self) -> &'r str {
        self.rule.map(|rule| &*rule.name).unwrap_or_default()
    }

    /// What people are told that the limit is called: its name, else the rule's place in the tree.
    pub fn label(&self) -> Cow<'r, str> {
        match self.rule {
            Some(rule) if rule.name.is_empty() => rule.path().into(),
            Some(rule) => (&*rule.name).into(),
            None => "request".into(),
        }
    }

    /// Until the state that the status reports changes for the better: on a denial, until the same request
    /// would pass; else until the counter is as good as unused.
    pub fn until_reset(&self) -> Duration {
        match self.verdict.retry_after {
            Duration::ZERO => self.verdict.reset_after,
            // A place is free when a request ends, which may be at any time.
            _ if self.algorithm.holds_permits() => Duration::from_secs(1),
            // It never would. That is to be said in a finite time, so as not to invite the next try at once.
            Duration::MAX if self.verdict.reset_after.is_zero() => {
                Duration::from_secs(u64::from(self.quota.window.seconds()))
            }
            Duration::MAX => self.verdict.reset_after,
            retry_after => retry_after,
        }
    }
}

impl<'r> Status<'r> {
    /// What a counter decided, if one did.
    pub const fn limited(&self) -> Option<&Limited<'r>> {
        match self {
            Self::Limited(limited) => Some(limited),
            Self::NoLimit | Self::Unlimited | Self::Off { .. } | Self::Denied => None,
        }
    }

    /// Whether the descriptor passes.
    pub const fn code(&self) -> Code {
        match self {
            Self::NoLimit | Self::Unlimited | Self::Off { .. } => Code::Ok,
            Self::Denied => Code::OverLimit,
            Self::Limited(limited) => limited.code(),
        }
    }
}

/// How a counter was decided that the store did not decide, and why it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// What was done about it.
    pub policy: OnStoreError,
    /// The label of the store's error.
    pub reason: &'static str,
}

/// What a list has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// That the request passes.
    Allowed,
    /// That it does not.
    Denied {
        /// For so long at least, as far as anyone is told.
        still: Duration,
    },
}

impl Listed {
    /// The list that did.
    pub const fn list(self) -> List {
        match self {
            Self::Allowed => List::Allow,
            Self::Denied { .. } => List::Deny,
        }
    }
}

/// What a request came to, and each of its descriptors in order.
#[derive(Clone, Debug)]
pub struct Decision<'r> {
    /// Whether the request passes.
    pub code: Code,
    /// How the first of those counters was decided that the store did not decide, if there are any.
    pub degraded: Option<Degraded>,
    /// What a list decided, if one did.
    pub listed: Option<Listed>,
    /// What each descriptor came to.
    pub statuses: SmallVec<[Status<'r>; 2]>,
}

impl Decision<'_> {
    /// Until a denied request may be sent again: when the last of the limits that deny it lets it pass, and, where
    /// every quota is exhausted, the first of these does too; or when the list no longer denies it. `None` for a request
    /// that passes.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.code == Code::Ok {
            return None;
        }
        let limited = || self.statuses.iter().filter_map(Status::limited);
        let over = |limited: &&Limited<'_>| limited.code() == Code::OverLimit;
        let enforced =
            limited().filter(over).filter(|limited| !limited.is_quota).map(Limited::until_reset).max();
        let are_quotas_left = limited().any(|limited| limited.is_quota && limited.code() == Code::Ok);
        let quotas =
            limited().filter(over).filter(|limited| limited.is_quota).map(Limited::until_reset).min();
        let denied = self.listed.and_then(|listed| match listed {
            Listed::Allowed => None,
            Listed::Denied { still } => Some(still),
        });
        enforced.max(quotas.filter(|_| !are_quotas_left)).max(denied)
    }
}
