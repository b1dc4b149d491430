//! Patterns of descriptors.

use std::rc::Rc;

use ipnet::IpNet;

use super::{
    budget::{Budget, RegexFailure},
    parameters::Reporter,
    suspicious,
};
use crate::{
    Matcher, Value,
    config::{
        problem::Path,
        raw::{Field, RawDescriptor, Stated},
    },
    join,
};

/// Pattern of a descriptor, with its text.
#[derive(Debug)]
pub(super) struct Pattern<'a> {
    pub(super) matcher: Matcher<'a>,
    /// `key_value`, or `key` alone; `key_10.0.0.0/8` for a range and `key_~expression` for an expression.
    /// Unique in a level, so that counters and metrics named by it never mix.
    pub(super) stated: Box<str>,
    pub(super) value: Value,
}

/// Compiles the patterns of one file's descriptors.
pub(super) struct PatternCompiler<'a> {
    pub(super) reporter: Reporter<'a>,
    pub(super) budget: &'a mut Budget,
}

impl PatternCompiler<'_> {
    /// Compiles a descriptor's pattern; `None` if it is invalid.
    pub(super) fn compile<'a>(&mut self, raw: &'a RawDescriptor, path: &Path<'_>) -> Option<Pattern<'a>> {
        let key = self.required_key(raw, path)?;
        let stated = [("value", &raw.value), ("regex", &raw.regex), ("cidr", &raw.cidr)];
        let mut stated = stated.into_iter().filter(|(_, field)| field.is_present());
        let first = stated.next();
        if let (Some((first, _)), Some((second, field))) = (first, stated.next()) {
            let at = field.stated().map_or(raw.at, |stated| stated.at);
            let message = format!("contradicts `{first}`; expected only one of value, regex and cidr");
            self.reporter.error(at, &path.key(second), message);
            return None;
        }
        let pattern = match first {
            Some((_, Field::Invalid)) => return None,
            Some(("regex", Field::Stated(regex))) => self.regex(key, regex, path)?,
            Some(("cidr", Field::Stated(cidr))) => self.cidr(key, cidr, path)?,
            Some((_, Field::Stated(value))) => {
                if let Some(doubt) = suspicious::doubt_of_value(key, &value.value) {
                    self.reporter.warning(value.at, &path.key("value"), doubt);
                }
                by_text(key, &value.value)
            }
            _ => by_text(key, ""),
        };
        self.shared(raw, pattern, path)
    }

    fn required_key<'a>(&mut self, raw: &'a RawDescriptor, path: &Path<'_>) -> Option<&'a str> {
        match &raw.key {
            Field::Stated(key) if !key.value.is_empty() => {
                if let Some(doubt) = suspicious::doubt(&key.value) {
                    self.reporter.warning(key.at, &path.key("key"), doubt);
                }
                Some(&key.value)
            }
            Field::Invalid => None,
            Field::Stated(Stated { at, .. }) => {
                self.reporter.error(*at, &path.key("key"), "is empty; expected a key");
                None
            }
            Field::Absent => {
                self.reporter.error(raw.at, path, "has no `key`; expected one in each descriptor");
                None
            }
        }
    }

    fn regex<'a>(
        &mut self,
        key: &'a str,
        stated: &'a Stated<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Pattern<'a>> {
        let path = path.key("regex");
        let text = &*stated.value;
        if text.is_empty() {
            self.reporter.error(
                stated.at,
                &path,
                "is empty; expected an expression, or a key alone to match every value",
            );
            return None;
        }
        if let Some(doubt) = suspicious::doubt_of_regex(text) {
            self.reporter.warning(stated.at, &path, doubt);
        }
        let regex = match self.budget.regex(text) {
            Ok(regex) => regex,
            Err(RegexFailure::Invalid(error)) => {
                self.reporter.error(stated.at, &path, error);
                return None;
            }
            Err(RegexFailure::BudgetExceeded) => {
                let message = format!(
                    "the expressions up to this one take more than {} MiB together; expected fewer or smaller ones: \
                     `[^/]+` takes a tenth of `\\w+`, which covers all alphabets, and (a|b|c) in one rule takes less \
                     than three rules",
                    Budget::regex_mib()
                );
                self.reporter.error(stated.at, &path, message);
                return None;
            }
            Err(RegexFailure::ExceededBefore) => return None,
        };
        self.without_star(key, &path, stated)?;
        let stated = format!("{key}_~{text}").into();
        Some(Pattern { matcher: Matcher::Regex(key, regex), stated, value: Value::Open })
    }

    fn cidr<'a>(
        &mut self,
        key: &'a str,
        stated: &'a Stated<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Pattern<'a>> {
        let path = path.key("cidr");
        let text = &*stated.value;
        let Ok(range) = text.parse::<IpNet>() else {
            let message =
                format!("`{text}` is not an address range; expected e.g. 10.0.0.0/8 or 2001:db8::/32");
            self.reporter.error(stated.at, &path, message);
            return None;
        };
        if range != range.trunc() {
            let message = format!("means {}; expected no bits after the prefix", range.trunc());
            self.reporter.warning(stated.at, &path, message);
        }
        if let IpNet::V6(range) = range
            && range.addr().to_ipv4_mapped().is_some()
        {
            self.reporter.warning(
                stated.at,
                &path,
                "never matches, since such addresses count as IPv4; expected an IPv4 range",
            );
        }
        self.without_star(key, &path, stated)?;
        let range = range.trunc();
        let stated = format!("{key}_{range}").into();
        Some(Pattern { matcher: Matcher::Cidr(key, range), stated, value: Value::Open })
    }

    /// Rejects a pattern as the key of a condition on the value alone.
    fn without_star(&mut self, key: &str, path: &Path<'_>, stated: &Stated<Rc<str>>) -> Option<()> {
        if key.contains('*') {
            let message = format!("cannot be combined with the wildcard `{key}`; expected a plain key");
            self.reporter.error(stated.at, path, message);
            return None;
        }
        Some(())
    }

    /// Applies `share_threshold`.
    fn shared<'a>(
        &mut self,
        raw: &RawDescriptor,
        pattern: Pattern<'a>,
        path: &Path<'_>,
    ) -> Option<Pattern<'a>> {
        let Some(share) = raw.share_threshold.stated().filter(|share| share.value) else {
            return Some(pattern);
        };
        let is_pattern = match pattern.matcher {
            Matcher::Stated { .. } => pattern.stated.contains('*'),
            Matcher::Cidr(..) | Matcher::Regex(..) => true,
        };
        if is_pattern {
            return Some(Pattern { value: Value::Shared, ..pattern });
        }
        let message = format!(
            "has no effect on `{}`; expected a wildcard (a value that contains `*`), a regex or a cidr",
            pattern.stated
        );
        self.reporter.error(share.at, &path.key("share_threshold"), message);
        None
    }
}

/// Returns the pattern of an exact value, a wildcard, or a key alone.
fn by_text<'a>(key: &'a str, value: &'a str) -> Pattern<'a> {
    let stated = join(key, value);
    let is_open = value.is_empty() || stated.contains('*');
    let value_of = if is_open { Value::Open } else { Value::Stated };
    Pattern { matcher: Matcher::Stated { key, value }, stated, value: value_of }
}
