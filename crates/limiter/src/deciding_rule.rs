//! The rule or list that decided a request, as a response names it for the proxy's access log.

use std::str;

use smallvec::SmallVec;
use tollgate_core::descriptor::{Descriptor, Entry};
use tollgate_runtime::redact::{beginning, is_printable};

use crate::decision::{Code, Decision, Limited, Status};

/// Maximum length of a named rule and of a named key, in bytes: access logs are not the place for long ones.
pub const MAX_NAMED_BYTES: usize = 128;

/// Mark of a text that was truncated.
const ELLIPSIS: &str = "…";

/// Name of a limit override in place of a rule, as in metrics.
const OVERRIDE_NAME: &str = "(request)";

tollgate_core::named! {
    /// Policy by which a request was decided.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AppliedPolicy {
        /// The rule's limit.
        Enforced = "enforced",
        /// The rule's limit would deny, but the rule or the process is in shadow mode.
        Shadow = "shadow",
        /// An operator's override of the rule, or of one of its keys.
        Override = "override",
        /// The limit override of the request.
        Request = "request",
        /// An allow or deny list.
        List = "list",
        /// An active ban of the rule's counter.
        Ban = "ban",
        /// Load shedding by the rule.
        Shed = "shed",
        /// The rule's `on_store_error` policy, since the store did not decide.
        Degraded = "degraded",
    }
}

/// The rule or list that decided a request.
#[derive(Clone, Copy, Debug)]
pub struct Deciding<'d> {
    /// Whether the request passes.
    pub code: Code,
    /// The policy that applied.
    pub policy: AppliedPolicy,
    /// Remaining hits of the rule's counter, if it has one.
    pub remaining: Option<u64>,
    rule: &'d str,
    /// The counter that decided, with the index of its descriptor.
    counter: Option<(usize, &'d Limited<'d>)>,
}

/// Text of at most [`MAX_NAMED_BYTES`].
#[derive(Debug, Default)]
pub struct NamedText(SmallVec<[u8; MAX_NAMED_BYTES]>);

impl Decision<'_> {
    /// The rule or list that decided: of rules that deny, the one that the headers report; otherwise, one in shadow mode
    /// that would deny, or the one with the least remaining. `None` if nothing limits the request.
    pub fn deciding(&self) -> Option<Deciding<'_>> {
        let of = |policy, rule| Deciding { code: self.code, policy, remaining: None, rule, counter: None };
        if let Some(listed) = self.listed {
            return Some(of(AppliedPolicy::List, listed.list().name()));
        }
        if let Some(shed) = self.statuses.iter().find_map(Status::denying_shed) {
            let policy = if self.code == Code::Ok { AppliedPolicy::Shadow } else { AppliedPolicy::Shed };
            return Some(of(policy, shed.rule.label()));
        }
        let mut sheds = self.statuses.iter().filter_map(Status::shed);
        let shadow_shed = sheds.find(|shed| shed.is_shed && shed.is_shadow);
        match self.denying().or_else(|| self.governing()) {
            Some((_, limited)) if limited.verdict.admitted && shadow_shed.is_some() => {
                shadow_shed.map(|shed| of(AppliedPolicy::Shadow, shed.rule.label()))
            }
            Some((at, limited)) => Some(Deciding {
                remaining: Some(limited.verdict.remaining),
                counter: Some((at, limited)),
                ..of(self.policy_of(limited), limited.rule.map_or(OVERRIDE_NAME, |rule| rule.label()))
            }),
            None => shadow_shed
                .map(|shed| of(AppliedPolicy::Shadow, shed.rule.label()))
                .or_else(|| self.degraded.map(|_| of(AppliedPolicy::Degraded, ""))),
        }
    }

    /// Whether the request does not pass, or would not if a rule that denies were not in shadow mode.
    pub fn has_denial(&self) -> bool {
        let denies = |status: &Status<'_>| match status {
            // An exhausted quota denies only with all others.
            Status::Limited(limited) => !limited.verdict.admitted && !limited.is_quota,
            Status::Shedding(shed) => shed.is_shed,
            Status::Denied => true,
            Status::NoLimit | Status::Unlimited | Status::Off { .. } => false,
        };
        self.code == Code::OverLimit || self.statuses.iter().any(denies)
    }

    /// The limit that the headers report, with the index of its descriptor, chosen as in envoyproxy/ratelimit: the last one
    /// that denies the request, else the first one with the least remaining.
    pub fn governing(&self) -> Option<(usize, &Limited<'_>)> {
        let denying =
            self.limits().rfind(|(_, limited)| limited.code() == Code::OverLimit && !limited.is_quota);
        // As in envoyproxy/ratelimit, an untouched limit of the largest possible size is not reported.
        let largest = u64::from(u32::MAX);
        let is_untouched_largest =
            |limited: &Limited<'_>| limited.quota.limit == largest && limited.verdict.remaining == largest;
        let least = || {
            self.limits()
                .filter(|(_, limited)| !is_untouched_largest(limited))
                .min_by_key(|(_, limited)| limited.verdict.remaining)
        };
        denying.or_else(least)
    }

    /// The last limit that denies the request, or would but for shadow mode.
    fn denying(&self) -> Option<(usize, &Limited<'_>)> {
        let over = |is_shadow: bool| {
            self.limits().rfind(move |(_, limited)| {
                !limited.verdict.admitted && !limited.is_quota && limited.is_shadow == is_shadow
            })
        };
        let exhausted = || {
            let mut over = self.limits().filter(|_| self.code == Code::OverLimit);
            over.find(|(_, limited)| limited.is_quota && limited.code() == Code::OverLimit)
        };
        over(false).or_else(exhausted).or_else(|| over(true))
    }

    fn policy_of(&self, limited: &Limited<'_>) -> AppliedPolicy {
        let is_over = !limited.verdict.admitted && !limited.is_quota;
        match limited {
            _ if is_over && self.code == Code::Ok => AppliedPolicy::Shadow,
            _ if is_over && limited.is_shadow => AppliedPolicy::Shadow,
            _ if limited.enforced_ban().is_some() => AppliedPolicy::Ban,
            Limited { is_degraded: true, .. } => AppliedPolicy::Degraded,
            Limited { rule: None, .. } => AppliedPolicy::Request,
            Limited { rule: Some(rule), .. } if rule.is_override() => AppliedPolicy::Override,
            _ => AppliedPolicy::Enforced,
        }
    }
}

impl Deciding<'_> {
    /// The rule's name, its path if it has no name, or the list; empty if none of them decided.
    pub fn rule(&self) -> NamedText {
        let mut text = NamedText::default();
        text.push(self.rule);
        text
    }

    /// The counted key: the entries that select the rule's counter, `key=value`, joined by commas. Empty if all requests
    /// share it.
    pub fn key(&self, descriptors: &[Descriptor<'_>]) -> NamedText {
        let mut text = NamedText::default();
        let Some((at, limited)) = self.counter else { return text };
        let Some(descriptor) = descriptors.get(at) else { return text };
        match limited.rule {
            Some(rule) => text.push_entries(rule.open(&descriptor.entries).map(|(_, entry)| entry)),
            None => text.push_entries(descriptor.entries.iter().copied()),
        }
        text
    }
}

impl NamedText {
    /// The text.
    pub fn as_str(&self) -> &str {
        // Only whole characters are added.
        str::from_utf8(&self.0).unwrap_or_default()
    }

    fn push_entries<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) {
        for entry in entries {
            if !self.0.is_empty() {
                self.push(",");
            }
            self.push(entry.key);
            self.push("=");
            self.push(entry.value);
        }
    }

    /// Appends a text, with a question mark for each control or invisible character, which could forge a line of a log.
    fn push(&mut self, text: &str) {
        if self.is_truncated() {
            return;
        }
        let fits = text.len() <= MAX_NAMED_BYTES.saturating_sub(self.0.len());
        let part = if fits { text } else { self.make_room(text) };
        if part.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_control()) {
            self.0.extend_from_slice(part.as_bytes());
        } else {
            for character in part.chars() {
                let character = if is_printable(character) { character } else { '?' };
                self.0.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if !fits {
            self.0.extend_from_slice(ELLIPSIS.as_bytes());
        }
    }

    /// Makes room for the mark, and returns the part of `text` that fits before it.
    fn make_room<'t>(&mut self, text: &'t str) -> &'t str {
        let most = MAX_NAMED_BYTES.saturating_sub(ELLIPSIS.len());
        let kept = beginning(self.as_str(), most).len();
        if kept < self.0.len() {
            self.0.truncate(kept);
            return "";
        }
        beginning(text, most.saturating_sub(kept))
    }

    fn is_truncated(&self) -> bool {
        self.0.ends_with(ELLIPSIS.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(entries: &[(&str, &str)]) -> String {
        let mut text = NamedText::default();
        text.push_entries(entries.iter().map(|(key, value)| Entry { key, value }));
        text.as_str().to_owned()
    }

    #[test]
    fn a_key_has_its_entries_without_control_characters() {
        assert_eq!(text(&[("api_key", "abc"), ("path", "/a")]), "api_key=abc,path=/a");
        assert_eq!(text(&[("path", "/a\n403 forged\u{85}é")]), "path=/a?403 forged?é");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn a_text_that_was_cut_is_not_continued() {
        let key = format!("{}€é", "a".repeat(MAX_NAMED_BYTES - 5));
        assert_eq!(text(&[(&key, "v")]), format!("{}…", "a".repeat(MAX_NAMED_BYTES - 5)));
    }

    #[test]
    fn a_text_that_ends_like_a_truncated_one_is_not_continued() {
        assert_eq!(text(&[("k", "…"), ("l", "v")]), "k=…");
    }

    proptest! {
        #[test]
        fn a_named_text_is_bounded_and_begins_like_the_whole(
            entries in prop::collection::vec(("[aé€🦀]{0,40}", "[aé€🦀]{0,200}"), 0..4),
        ) {
            let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let whole: Vec<_> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let (whole, named) = (whole.join(","), text(&entries));
            prop_assert!(named.len() <= MAX_NAMED_BYTES);
            match named.strip_suffix(ELLIPSIS) {
                Some(begin) => {
                    prop_assert!(whole.starts_with(begin) && whole.len() > MAX_NAMED_BYTES);
                    prop_assert!(named.len() > MAX_NAMED_BYTES - 4);
                }
                None => prop_assert_eq!(named, whole),
            }
        }
    }
}
