//! What a descriptor matches.

use std::rc::Rc;

use ipnet::IpNet;

use super::{
    budget::{Budget, NoRegex},
    descriptor::Compiler,
};
use crate::{
    Matcher, Value,
    config::{
        problem::Path,
        raw::{Field, RawDescriptor, Stated},
    },
    join,
};

/// What a descriptor matches, and how it reads.
#[derive(Debug)]
pub(super) struct Pattern<'a> {
    pub(super) matcher: Matcher<'a>,
    /// `key_value`, or `key` alone; `key_10.0.0.0/8` for a range and `key_~expression` for an expression.
    /// Two descriptors of a level never read the same, so counters and metrics named by it never mix.
    pub(super) stated: Box<str>,
    pub(super) value: Value,
}

impl Compiler<'_> {
    /// The descriptor's pattern, unless it is wrong.
    pub(super) fn pattern<'a>(&mut self, raw: &'a RawDescriptor, path: &Path<'_>) -> Option<Pattern<'a>> {
        let key = self.required_key(raw, path)?;
        let stated = [("value", &raw.value), ("regex", &raw.regex), ("cidr", &raw.cidr)];
        let mut stated = stated.into_iter().filter(|(_, field)| field.is_present());
        let first = stated.next();
        if let (Some((first, _)), Some((second, field))) = (first, stated.next()) {
            let at = field.stated().map_or(raw.at, |stated| stated.at);
            let message =
                format!("goes in place of `{first}`; a descriptor may have one of value, regex and cidr");
            self.error(at, &path.key(second), message);
            return None;
        }
        let pattern = match first {
            Some((_, Field::Wrong)) => return None,
            Some(("regex", Field::Stated(regex))) => self.regex(key, regex, path)?,
            Some(("cidr", Field::Stated(cidr))) => self.cidr(key, cidr, path)?,
            _ => by_text(key, raw.value.text()),
        };
        self.shared(raw, pattern, path)
    }

    fn required_key<'a>(&mut self, raw: &'a RawDescriptor, path: &Path<'_>) -> Option<&'a str> {
        match &raw.key {
            Field::Stated(key) if !key.value.is_empty() => Some(&key.value),
            Field::Wrong => None,
            Field::Stated(Stated { at, .. }) => {
                self.error(*at, &path.key("key"), "is empty; a descriptor needs a key");
                None
            }
            Field::Absent => {
                self.error(raw.at, path, "has no `key`; a descriptor needs one");
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
            self.error(stated.at, &path, "is empty and would match every value; a key alone does that");
            return None;
        }
        let regex = match self.budget.regex(text) {
            Ok(regex) => regex,
            Err(NoRegex::Wrong(error)) => {
                self.error(stated.at, &path, error);
                return None;
            }
            Err(NoRegex::Spent) => {
                let message = format!(
                    "the expressions up to this one take more than {} MiB together; state fewer or smaller ones: \
                     `[^/]+` takes a tenth of `\\w+`, which knows every alphabet, and (a|b|c) in one rule less \
                     than three rules",
                    Budget::regex_mib()
                );
                self.error(stated.at, &path, message);
                return None;
            }
            Err(NoRegex::SpentBefore) => return None,
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
            let message = format!(
                "`{text}` is no range of addresses; expected one such as 10.0.0.0/8 or 2001:db8::/32"
            );
            self.error(stated.at, &path, message);
            return None;
        };
        if range != range.trunc() {
            let message = format!("means {}: the bits after the prefix don't count", range.trunc());
            self.warning(stated.at, &path, message);
        }
        if let IpNet::V6(range) = range
            && range.addr().to_ipv4_mapped().is_some()
        {
            self.warning(
                stated.at,
                &path,
                "never matches: such addresses count as IPv4; state an IPv4 range",
            );
        }
        self.without_star(key, &path, stated)?;
        let range = range.trunc();
        let stated = format!("{key}_{range}").into();
        Some(Pattern { matcher: Matcher::Cidr(key, range), stated, value: Value::Open })
    }

    /// Refuses a pattern as the key of what is asked of a value alone.
    fn without_star(&mut self, key: &str, path: &Path<'_>, stated: &Stated<Rc<str>>) -> Option<()> {
        if key.contains('*') {
            let message = format!("can't go with the wildcard `{key}`; it needs a plain key");
            self.error(stated.at, path, message);
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
            "goes with a wildcard (a value that contains `*`), a regex or a cidr, and `{}` is none",
            pattern.stated
        );
        self.error(share.at, &path.key("share_threshold"), message);
        None
    }
}

/// An exact value, a wildcard, or a key alone.
fn by_text<'a>(key: &'a str, value: &'a str) -> Pattern<'a> {
    let stated = join(key, value);
    let is_open = value.is_empty() || stated.contains('*');
    let value_of = if is_open { Value::Open } else { Value::Stated };
    Pattern { matcher: Matcher::Stated { key, value }, stated, value: value_of }
}
