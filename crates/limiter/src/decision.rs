//! Decision of a request, and the status of each descriptor.

use std::{slice, time::Duration};

use smallvec::SmallVec;
use tollgate_core::algorithm::{Algorithm, Verdict};
use tollgate_core::{ban::Ban, quota::Quota};
use tollgate_rules::{List, OnStoreError, Rule};
use tollgate_shedding::Priority;

tollgate_core::named! {
    /// Whether a request or a descriptor passes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Code {
        /// Passes.
        Ok = "OK",
        /// Over a limit.
        OverLimit = "OVER_LIMIT",
    }
}

/// Status of one descriptor.
#[derive(Clone, Debug)]
pub enum Status<'r> {
    /// No rule limits the descriptor, or another rule of the request replaces its rule.
    NoLimit,
    /// The rule is unlimited.
    Unlimited,
    /// An operator has switched the rule off.
    Off {
        /// Whether the rule is a quota, which then is never exhausted.
        is_quota: bool,
    },
    /// A deny list matches.
    Denied,
    /// A counter decided.
    Limited(Limited<'r>),
    /// A rule that sheds by utilization decided.
    Shedding(Shed<'r>),
}

/// Decision of a rule that sheds by utilization.
#[derive(Clone, Copy, Debug)]
pub struct Shed<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The request's priority.
    pub priority: Priority,
    /// Whether the rule sheds the request.
    pub is_shed: bool,
    /// Whether the rule is in shadow mode.
    pub is_shadow: bool,
}

impl Shed<'_> {
    /// Whether the request does not pass because of the rule.
    pub const fn denies(&self) -> bool {
        self.is_shed && !self.is_shadow
    }
}

/// Decision of a counter, and the limit behind it.
#[derive(Clone, Debug)]
pub struct Limited<'r> {
    /// The rule; `None` for a limit override.
    pub rule: Option<&'r Rule>,
    /// The quota that was enforced.
    pub quota: Quota,
    /// The algorithm that enforced the quota.
    pub algorithm: Algorithm,
    /// The counter's verdict.
    pub verdict: Verdict,
    /// Whether the limit is a quota, which denies only if every quota of the request is exhausted.
    pub is_quota: bool,
    /// Whether the limit is in shadow mode.
    pub is_shadow: bool,
    /// Whether the verdict is that of the limit's `on_store_error` policy.
    pub is_degraded: bool,
    /// All limits of its descriptor, in the order of the configuration, if that has several: this is the strictest one.
    pub several: Box<[Self]>,
}

impl<'r> Limited<'r> {
    /// The descriptor's code: a limit in shadow mode is never over.
    pub const fn code(&self) -> Code {
        if self.verdict.admitted || self.is_shadow { Code::Ok } else { Code::OverLimit }
    }

    /// The ban that denies, if the counter is banned.
    pub fn enforced_ban(&self) -> Option<Ban> {
        self.verdict.ban.filter(|ban| ban.is_enforced && self.code() == Code::OverLimit)
    }

    /// The limit's name; empty if it has no name.
    pub fn name(&self) -> &'r str {
        self.rule.map(|rule| &*rule.name).unwrap_or_default()
    }

    /// The limit's name for people, or the rule's path if it has no name.
    pub fn label(&self) -> &'r str {
        self.rule.map_or("request", |rule| rule.label())
    }

    /// Time until the reported state improves: after a denial, until the same request would pass; otherwise, until the
    /// counter is as good as unused.
    pub fn until_reset(&self) -> Duration {
        match self.verdict.retry_after {
            Duration::ZERO => self.verdict.reset_after,
            // A permit is released when a request ends, which may be at any time.
            _ if self.algorithm.holds_permits() => Duration::from_secs(1),
            // The request would never pass. A finite time is reported, so that the client does not retry at once.
            Duration::MAX if self.verdict.reset_after.is_zero() => {
                Duration::from_secs(u64::from(self.quota.window.seconds()))
            }
            Duration::MAX => self.verdict.reset_after,
            retry_after => retry_after,
        }
    }
}

impl<'r> Status<'r> {
    /// The counter's decision, if there is a counter.
    pub const fn limited(&self) -> Option<&Limited<'r>> {
        if let Self::Limited(limited) = self { Some(limited) } else { None }
    }

    /// The decisions of all limits of the descriptor.
    pub fn limits(&self) -> &[Limited<'r>] {
        match self.limited() {
            None => &[],
            Some(limited) if limited.several.is_empty() => slice::from_ref(limited),
            Some(limited) => &limited.several,
        }
    }

    /// The decision of a rule that sheds the request, if it does.
    pub fn denying_shed(&self) -> Option<&Shed<'r>> {
        self.shed().filter(|shed| shed.denies())
    }

    /// The decision of a rule that sheds, or would.
    pub(super) fn shed(&self) -> Option<&Shed<'r>> {
        if let Self::Shedding(shed) = self { Some(shed) } else { None }
    }

    /// Whether the descriptor passes.
    pub const fn code(&self) -> Code {
        match self {
            Self::NoLimit | Self::Unlimited | Self::Off { .. } => Code::Ok,
            Self::Denied => Code::OverLimit,
            Self::Shedding(shed) if shed.denies() => Code::OverLimit,
            Self::Shedding(_) => Code::Ok,
            Self::Limited(limited) => limited.code(),
        }
    }
}

/// Decision of a counter without the store, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Degraded {
    /// The policy that was applied.
    pub policy: OnStoreError,
    /// The label of the store's error.
    pub reason: &'static str,
}

impl Degraded {
    /// Whether the policy denies requests unchecked.
    pub fn denies(self) -> bool {
        self.policy == OnStoreError::Deny
    }
}

/// Decision of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListDecision {
    /// An allow list matches: the request passes.
    Allowed,
    /// A deny list matches: the request does not pass.
    Denied {
        /// Reported time until the entry expires.
        retry_after: Duration,
    },
}

impl ListDecision {
    /// The list that decided.
    pub const fn list(self) -> List {
        match self {
            Self::Allowed => List::Allow,
            Self::Denied { .. } => List::Deny,
        }
    }
}

/// Decision of a request, with the status of each descriptor in order.
#[derive(Clone, Debug)]
pub struct Decision<'r> {
    /// Whether the request passes.
    pub code: Code,
    /// The first decision that was made without the store, if any.
    pub degraded: Option<Degraded>,
    /// The decision of a list, if one matched.
    pub listed: Option<ListDecision>,
    /// Time after which a request that was shed may be retried.
    pub shed: Option<Duration>,
    /// The status of each descriptor; of several limits, that of the strictest one.
    pub statuses: SmallVec<[Status<'r>; 2]>,
}

impl<'r> Decision<'r> {
    /// Every limit that decided, in the order of the descriptors.
    pub fn every_limit(&self) -> impl Iterator<Item = &Limited<'r>> {
        self.statuses.iter().flat_map(Status::limits)
    }

    /// The strictest limit of each descriptor that has one, with the descriptor's index.
    pub(super) fn limits(&self) -> impl DoubleEndedIterator<Item = (usize, &Limited<'r>)> {
        let statuses = self.statuses.iter().enumerate();
        statuses.filter_map(|(at, status)| Some((at, status.limited()?)))
    }

    /// The active ban among the limits of the request: of those that deny, the last to end; otherwise one that is watched.
    pub fn ban(&self) -> Option<Ban> {
        let bans = self.every_limit().filter_map(|limited| limited.verdict.ban);
        bans.max_by_key(|ban| (ban.is_enforced, ban.until))
    }

    /// Time until a denied request may be retried: when the last limit that denies it would let it pass, and, if every
    /// quota is exhausted, the first quota too; or when the list entry expires. `None` for a request that passes.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_by(|_, limited| limited.until_reset())
    }

    /// Time until a denied request may be retried, where `time` returns the time of a limit, given the index of its
    /// descriptor.
    pub fn retry_after_by(&self, time: impl Fn(usize, &Limited<'_>) -> Duration) -> Option<Duration> {
        if self.code == Code::Ok {
            return None;
        }
        let over = |is_quota: bool| {
            let over = self.limits().filter(move |(_, limited)| {
                limited.is_quota == is_quota && limited.code() == Code::OverLimit
            });
            over.map(|(at, limited)| time(at, limited))
        };
        let (enforced, quotas) = (over(false).max(), over(true).min());
        let has_quota_left = self.limits().any(|(_, limited)| limited.is_quota && limited.code() == Code::Ok);
        let denied = self.listed.and_then(|listed| match listed {
            ListDecision::Allowed => None,
            ListDecision::Denied { retry_after } => Some(retry_after),
        });
        enforced.max(quotas.filter(|_| !has_quota_left)).max(denied).max(self.shed)
    }
}
