//! Patterns of descriptors, and texts that are valid, and hardly match what their author meant.

use std::{net::IpAddr, rc::Rc};

use ipnet::IpNet;

use super::Compiler;
use super::tree_level::{MAX_REGEX_BYTES, Pattern, RegexFailure};
use crate::config::problem::Path;
use crate::config::raw::{Field, RawDescriptor, Stated};
use crate::{Matcher, Value, path::join};

/// Compiles a descriptor's pattern; `None` if it is invalid.
pub(super) fn compile<'a>(
    compiler: &mut Compiler<'_>,
    raw: &'a RawDescriptor,
    path: &Path<'_>,
) -> Option<Pattern<'a>> {
    let key = required_key(compiler, raw, path)?;
    let stated = [("value", &raw.value), ("regex", &raw.regex), ("cidr", &raw.cidr)];
    let mut stated = stated.into_iter().filter(|(_, field)| field.is_present());
    let first = stated.next();
    if let (Some((first, _)), Some((second, field))) = (first, stated.next()) {
        let at = field.stated().map_or(raw.at, |stated| stated.at);
        let message = format!("contradicts `{first}`; expected only one of value, regex and cidr");
        return compiler.reporter.refuse(at, &path.key(second), message);
    }
    let pattern = match first {
        Some((_, Field::Invalid)) => return None,
        Some((condition @ ("regex" | "cidr"), Field::Stated(stated))) => {
            let path = path.key(condition);
            let (matcher, shown) = match condition {
                "regex" => regex(compiler, key, stated, &path)?,
                _ => cidr(compiler, key, stated, &path)?,
            };
            if key.contains('*') {
                let message = format!("cannot be combined with the wildcard `{key}`; expected a plain key");
                return compiler.reporter.refuse(stated.at, &path, message);
            }
            Pattern { matcher, stated: format!("{key}_{shown}").into(), value: Value::Open }
        }
        Some((_, Field::Stated(value))) => {
            if let Some(doubt) = doubt_of_value(key, &value.value) {
                compiler.reporter.warning(value.at, &path.key("value"), doubt);
            }
            by_text(key, &value.value)
        }
        _ => by_text(key, ""),
    };
    shared(compiler, raw, pattern, path)
}

fn required_key<'a>(compiler: &mut Compiler<'_>, raw: &'a RawDescriptor, path: &Path<'_>) -> Option<&'a str> {
    match &raw.key {
        Field::Stated(key) if !key.value.is_empty() => {
            if let Some(doubt) = doubt(&key.value) {
                compiler.reporter.warning(key.at, &path.key("key"), doubt);
            }
            Some(&key.value)
        }
        Field::Invalid => None,
        Field::Stated(Stated { at, .. }) => {
            compiler.reporter.refuse(*at, &path.key("key"), "is empty; expected a key")
        }
        Field::Absent => {
            compiler.reporter.refuse(raw.at, path, "has no `key`; expected one in each descriptor")
        }
    }
}

/// The condition that a value matches an expression, and its form in the names of rules.
fn regex<'a>(
    compiler: &mut Compiler<'_>,
    key: &'a str,
    stated: &'a Stated<Rc<str>>,
    path: &Path<'_>,
) -> Option<(Matcher<'a>, String)> {
    let text = &*stated.value;
    if text.is_empty() {
        let message = "is empty; expected an expression, or a key alone to match every value";
        return compiler.reporter.refuse(stated.at, path, message);
    }
    if let Some(doubt) = doubt_of_regex(text) {
        compiler.reporter.warning(stated.at, path, doubt);
    }
    let regex = match compiler.budget.regex(text) {
        Ok(regex) => regex,
        Err(RegexFailure::Invalid(error)) => {
            return compiler.reporter.refuse(stated.at, path, error);
        }
        Err(RegexFailure::BudgetExceeded) => {
            let message = format!(
                "the expressions up to this one take more than {} MiB together; expected fewer or smaller ones: \
                 `[^/]+` takes a tenth of `\\w+`, which covers all alphabets, and (a|b|c) in one rule takes less \
                 than three rules",
                MAX_REGEX_BYTES >> 20
            );
            return compiler.reporter.refuse(stated.at, path, message);
        }
        Err(RegexFailure::ExceededBefore) => return None,
    };
    Some((Matcher::Regex(key, regex), format!("~{text}")))
}

/// The condition that a value is an address of a range, and its form in the names of rules.
fn cidr<'a>(
    compiler: &mut Compiler<'_>,
    key: &'a str,
    stated: &'a Stated<Rc<str>>,
    path: &Path<'_>,
) -> Option<(Matcher<'a>, String)> {
    let text = &*stated.value;
    let Ok(range) = text.parse::<IpNet>() else {
        let message = format!("`{text}` is not an address range; expected e.g. 10.0.0.0/8 or 2001:db8::/32");
        return compiler.reporter.refuse(stated.at, path, message);
    };
    if range != range.trunc() {
        let message = format!("means {}; expected no bits after the prefix", range.trunc());
        compiler.reporter.warning(stated.at, path, message);
    }
    if let IpNet::V6(range) = range
        && range.addr().to_ipv4_mapped().is_some()
    {
        compiler.reporter.warning(
            stated.at,
            path,
            "never matches, since such addresses count as IPv4; expected an IPv4 range",
        );
    }
    let range = range.trunc();
    Some((Matcher::Cidr(key, range), range.to_string()))
}

/// Applies `share_threshold`.
fn shared<'a>(
    compiler: &mut Compiler<'_>,
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
    compiler.reporter.refuse(share.at, &path.key("share_threshold"), message)
}

/// Returns the pattern of an exact value, a wildcard, or a key alone.
fn by_text<'a>(key: &'a str, value: &'a str) -> Pattern<'a> {
    let stated = join(key, value);
    let is_open = value.is_empty() || stated.contains('*');
    let value_of = if is_open { Value::Open } else { Value::Stated };
    Pattern { matcher: Matcher::Stated { key, value }, stated, value: value_of }
}

/// Key of Envoy's masked addresses, whose values are ranges.
const MASKED_ADDRESS: &str = "masked_remote_address";

/// Parts of regular expressions that other texts hardly have: `com.example.*` is a wildcard, and `CORP\daniel` a user.
const EXPRESSIONS: [&str; 13] =
    ["/.*", ".+", "[^", "[0-9", "[a-z", "[A-Z", "(?", r"\.", r"\/", r"\d+", r"\d{", r"\w+", r"\w{"];

/// Begins of what a template or an environment would have replaced.
const TEMPLATES: [&str; 5] = ["{{", "{%", "<%", "${", "$("];

/// Returns what is suspicious about a key, a value or the name of a domain.
pub(super) fn doubt(text: &str) -> Option<&'static str> {
    let is_blank = |character: char| {
        character.is_whitespace() || character.is_control() || matches!(character, '\u{200b}' | '\u{feff}')
    };
    if text.starts_with(is_blank) || text.ends_with(is_blank) || text.contains(char::is_control) {
        return Some("has leading or trailing whitespace, or control characters; expected none");
    }
    is_template(text).then_some("is an unexpanded template; expected the final text")
}

/// Returns what is suspicious about a value of `key`, which is compared as text.
pub(super) fn doubt_of_value(key: &str, value: &str) -> Option<&'static str> {
    match doubt(value) {
        None if is_range(value) && key != MASKED_ADDRESS => {
            Some("is a range of addresses, but is compared as text; expected `cidr`")
        }
        None if is_expression(value) => {
            Some("is a regular expression, but is compared as text; expected `regex`")
        }
        doubt => doubt,
    }
}

/// Returns what is suspicious about an expression.
pub(super) fn doubt_of_regex(text: &str) -> Option<&'static str> {
    if text.starts_with('\n') || text.ends_with('\n') {
        return Some("has a line break at an end; expected none");
    }
    is_range(text).then_some("is a range of addresses; expected `cidr`")
}

/// Whether it is a prefix, a mask, or two addresses.
fn is_range(text: &str) -> bool {
    let is_address = |text: &str| text.trim().parse::<IpAddr>().is_ok();
    text.parse::<IpNet>().is_ok()
        || text.split_once(['/', '-']).is_some_and(|(from, to)| is_address(from) && is_address(to))
}

fn is_expression(text: &str) -> bool {
    let alternatives = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    text.starts_with('^')
        || text.starts_with(".*")
        || (text.ends_with('$') && text.len() > 1)
        || EXPRESSIONS.iter().any(|part| text.contains(part))
        || alternatives.is_some_and(|(inside, _)| inside.contains('|'))
}

fn is_template(text: &str) -> bool {
    let is_name = |name: &str| {
        name.len() > 2 && name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'))
    };
    // A command of Envoy's access logs, such as %REQ(x-user)%; not an escape, as in %EF%BB%BF.
    let is_command = |part: &str| part.split('(').next().is_some_and(is_name);
    TEMPLATES.iter().any(|begin| text.contains(begin))
        || (text.starts_with('<') && text.ends_with('>'))
        || text.strip_prefix('$').is_some_and(is_name)
        || (text.matches('%').count() > 1 && text.split('%').skip(1).any(is_command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_never_match_as_meant_are_suspicious() {
        for (value, expected) in [
            ("10.0.0.0/8", "`cidr`"),
            ("2001:db8::/32", "`cidr`"),
            ("1.2.3.4/32", "`cidr`"),
            ("10.0.0.0/255.0.0.0", "`cidr`"),
            ("10.0.0.1-10.0.0.9", "`cidr`"),
            ("10.0.0.1 - 10.0.0.9", "`cidr`"),
            ("^/api/.*$", "`regex`"),
            ("^GET", "`regex`"),
            ("/users$", "`regex`"),
            (".*", "`regex`"),
            ("/api/.*", "`regex`"),
            ("/users/[0-9]+", "`regex`"),
            (r"/users/\d+", "`regex`"),
            (r"example\.com", "`regex`"),
            ("(GET|POST)", "`regex`"),
            ("(?i)bot", "`regex`"),
            ("GET ", "whitespace"),
            ("\tGET", "whitespace"),
            ("GET\n", "whitespace"),
            ("a\nb", "control"),
            ("\u{feff}GET", "whitespace"),
            ("{{ .Values.path }}", "template"),
            ("{{path}}", "template"),
            ("{% if x %}", "template"),
            ("${PATH_PREFIX}/x", "template"),
            ("$(HOST)", "template"),
            ("$API_KEY", "template"),
            ("%REQ(x-user)%", "template"),
            ("%DOWNSTREAM_REMOTE_ADDRESS%", "template"),
            ("<no value>", "template"),
            ("<%= path %>", "template"),
        ] {
            let found = doubt_of_value("k", value);
            assert!(found.is_some_and(|found| found.contains(expected)), "{value}: {found:?}");
        }
    }

    #[test]
    fn literal_values_and_wildcards_are_not_suspicious() {
        for value in [
            "",
            "/",
            "*",
            "/api/*",
            "/static/*.js",
            "com.example.*",
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            "/users/{id}",
            "/users/:id",
            "10.1.2.3",
            "10.1.*",
            "2001:db8::1",
            "[::1]:80",
            "1.2.3.4, 5.6.7.8",
            "2026-11-27",
            "1/2",
            "outbound|8081||ratelimit.default.svc.cluster.local",
            r"CORP\daniel",
            "a+b@example.com",
            "Mozilla/5.0 (X11; Linux x86_64)",
            "/caf%C3%A9",
            "%EF%BB%BFx",
            "100%",
            "$5",
            "US$ 5",
            "a b",
            r#"{"a":{"b":1}}"#,
            "sha256:ab12==",
        ] {
            assert_eq!(doubt_of_value("k", value), None, "{value}");
        }
        assert_eq!(doubt_of_value(MASKED_ADDRESS, "10.0.0.0/8"), None, "a text that Envoy sends");
    }

    #[test]
    fn expressions_are_suspicious_where_a_range_or_a_line_was_meant() {
        assert!(doubt_of_regex("10.0.0.0/8").is_some() && doubt_of_regex("^/x$\n").is_some());
        assert!([r"^10\.", "bot ", "^/api/[^/]+$"].into_iter().all(|regex| doubt_of_regex(regex).is_none()));
    }
}
