//! Rewrites metric names, with tags from parts of the names: the mogrifiers of envoyproxy/ratelimit.

use std::str::FromStr;

use regex_automata::meta::{Builder, Config, Regex};

/// Memory limit of a compiled expression, and of its matching cache.
const MAX_REGEX_BYTES: usize = 1 << 20;

/// A pattern for metric names, the new name, and the tags.
#[derive(Clone, Debug)]
pub struct Rewrite {
    pattern: Regex,
    name: Template,
    tags: Vec<(String, Template)>,
    /// The text it was parsed from.
    source: Box<str>,
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Rewrite {}

/// A text with placeholders `$1`, `$2`, … for the groups of a match, and `$0` for the whole match.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
}

/// Reason why a text is not a rewrite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// Too few or too many parts.
    #[error("expected PATTERN NAME [TAG:VALUE,…], with \\x20 for a space in the pattern")]
    Parts,
    /// An invalid pattern.
    #[error("the pattern is invalid; expected a regular expression of at most 1 MiB")]
    Pattern,
    /// An invalid name.
    #[error("expected a name without : and |")]
    Name,
    /// Invalid tags.
    #[error("expected tags as TAG:VALUE,…")]
    Tags,
    /// A missing group.
    #[error("the pattern has no group ${0}; expected one that it has")]
    Group(usize),
}

impl FromStr for Rewrite {
    type Err = RewriteError;

    fn from_str(text: &str) -> Result<Self, RewriteError> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let (pattern, name, tags) = match *parts {
            [pattern, name] => (pattern, name, ""),
            [pattern, name, tags] => (pattern, name, tags),
            _ => return Err(RewriteError::Parts),
        };
        let config =
            Config::new().nfa_size_limit(Some(MAX_REGEX_BYTES)).hybrid_cache_capacity(MAX_REGEX_BYTES);
        let pattern = Builder::new().configure(config).build(pattern).map_err(|_| RewriteError::Pattern)?;
        if name.contains([':', '|']) {
            return Err(RewriteError::Name);
        }
        let tag = |text: &str| match text.split_once(':') {
            Some((key, value)) if !key.is_empty() && !key.contains('|') && !value.is_empty() => {
                Ok((key.to_owned(), Template::new(value)))
            }
            _ => Err(RewriteError::Tags),
        };
        let tags: Vec<_> =
            tags.split(',').filter(|tag| !tag.is_empty()).map(tag).collect::<Result<_, _>>()?;
        let source = parts.join(" ").into();
        let rewrite = Self { pattern, name: Template::new(name), tags, source };
        let templates = [&rewrite.name].into_iter().chain(rewrite.tags.iter().map(|(_, value)| value));
        let groups = rewrite.pattern.group_info().all_group_len();
        match templates.filter_map(Template::last_group).max() {
            Some(last) if last >= groups => Err(RewriteError::Group(last)),
            Some(_) | None => Ok(rewrite),
        }
    }
}

impl Rewrite {
    /// The new name of a metric, and its tags that are not empty. `None` if the pattern does not match, or the new name would
    /// be empty.
    pub fn apply(&self, name: &str) -> Option<(String, Vec<(String, String)>)> {
        let mut groups = self.pattern.create_captures();
        self.pattern.captures(name, &mut groups);
        if !groups.is_match() {
            return None;
        }
        let group = |at| groups.get_group(at).and_then(|span| name.get(span.range())).unwrap_or_default();
        let tags = self.tags.iter().map(|(key, value)| (key.clone(), value.fill(&group)));
        let tags = tags.filter(|(_, value)| !value.is_empty()).collect();
        Some((self.name.fill(&group), tags)).filter(|(name, _)| !name.is_empty())
    }
}

impl Template {
    fn new(text: &str) -> Self {
        let mut parts = text.split('$');
        let mut pieces = vec![Piece::Text(parts.next().unwrap_or_default().to_owned())];
        for part in parts {
            let ends = part.find(|character: char| !character.is_ascii_digit()).unwrap_or(part.len());
            let (digits, rest) = part.split_at_checked(ends).unwrap_or_default();
            match digits.parse() {
                Ok(group) => pieces.extend([Piece::Group(group), Piece::Text(rest.to_owned())]),
                Err(_) => pieces.push(Piece::Text(format!("${part}"))),
            }
        }
        Self(pieces)
    }

    fn last_group(&self) -> Option<usize> {
        let groups = self.0.iter().filter_map(|piece| match piece {
            Piece::Group(group) => Some(*group),
            Piece::Text(_) => None,
        });
        groups.max()
    }

    fn fill<'a>(&'a self, group: &impl Fn(usize) -> &'a str) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Group(at) => group(*at),
        });
        pieces.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(text: &str) -> Rewrite {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn names_and_tags_are_filled_from_groups() {
        let per_rule = rewrite(
            r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$ ratelimit.service.rate_limit.$3 domain:$1,descriptor:$2",
        );
        let (name, tags) =
            per_rule.apply("ratelimit.service.rate_limit.edge.a_b.c.total_hits").expect("matched");
        assert_eq!(name, "ratelimit.service.rate_limit.total_hits");
        let tag = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(tags, [tag("domain", "edge"), tag("descriptor", "a_b.c")]);
        assert!(per_rule.apply("ratelimit.service.config_load_success").is_none());
    }

    #[test]
    fn group_zero_is_the_whole_match_and_other_dollars_are_literal() {
        let named = |text: &str, name: &str| rewrite(text).apply(name).map(|(name, _)| name);
        assert_eq!(named("b(x)?c p.$0.$1$x.$", "abcd").as_deref(), Some("p.bc.$x.$"));
        assert_eq!(named("b(x)?c $1$0", "abxcd").as_deref(), Some("xbxc"));
        assert_eq!(named("b(x)?c $1", "abcd"), None, "it has to be called something");
        assert_eq!(rewrite("b(x)?c n k:$1,l:m").apply("bc").map(|(_, tags)| tags.len()), Some(1));
    }

    #[test]
    fn an_invalid_rewrite_is_refused() {
        for (text, error) in [
            ("", RewriteError::Parts),
            ("pattern", RewriteError::Parts),
            ("a b c d", RewriteError::Parts),
            ("( name", RewriteError::Pattern),
            ("(a{1000}){1000} name", RewriteError::Pattern),
            ("a na:me", RewriteError::Name),
            ("a na|me", RewriteError::Name),
            ("a name tag", RewriteError::Tags),
            ("a name tag:", RewriteError::Tags),
            ("a name :value", RewriteError::Tags),
            ("a name k|c:value", RewriteError::Tags),
            ("(a) $2", RewriteError::Group(2)),
            ("(a) name tag:$3", RewriteError::Group(3)),
        ] {
            assert_eq!(text.parse::<Rewrite>().map(|_| ()), Err(error), "{text}");
        }
    }
}
