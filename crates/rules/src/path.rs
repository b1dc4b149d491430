//! Paths of rules as text: segments joined by `.`, so that no two sequences of segments have one text.
//!
//! A segment is a key, or key and value joined by `_`. A backslash precedes
//!
//! - a backslash,
//! - a `.` within a segment, unless a digit follows it, which keeps addresses and numbers readable,
//! - a digit or an `@` that begins a segment other than the first one, and
//! - a `(` that begins the first one: paths such as `(other)` are not those of rules.
//!
//! One of several limits of a descriptor has a last segment of its own: `@` and the limit's label.

use std::borrow::Cow;

const ESCAPE: char = '\\';

/// Begin of the segment of one of several limits.
const LIMIT: char = '@';

/// Joins key and value by `_`; returns the key alone if the value is empty.
pub(crate) fn join(key: &str, value: &str) -> Box<str> {
    match value {
        "" => key.into(),
        value => format!("{key}_{value}").into(),
    }
}

/// The path of segments.
pub(crate) fn of<'s>(segments: impl Iterator<Item = Cow<'s, str>>) -> String {
    let mut path = String::new();
    for (at, segment) in segments.enumerate() {
        if at > 0 {
            path.push('.');
        }
        push(&mut path, &segment, at == 0);
    }
    path
}

/// Adds the segment of one of several limits of the descriptor at `path`.
pub(crate) fn push_limit(path: &mut String, label: &str) {
    path.push('.');
    path.push(LIMIT);
    push_rest(path, label);
}

fn push(path: &mut String, segment: &str, is_first: bool) {
    let is_special = |first: char| match is_first {
        true => first == '(',
        false => first.is_ascii_digit() || first == LIMIT,
    };
    if segment.starts_with(is_special) {
        path.push(ESCAPE);
    }
    push_rest(path, segment);
}

fn push_rest(path: &mut String, segment: &str) {
    let mut rest = segment;
    while let Some(at) = rest.find(['.', ESCAPE]) {
        let (before, special) = rest.split_at(at);
        path.push_str(before);
        let (special, behind) = special.split_at(1);
        if special != "." || !behind.starts_with(|next: char| next.is_ascii_digit()) {
            path.push(ESCAPE);
        }
        path.push_str(special);
        rest = behind;
    }
    path.push_str(rest);
}

/// The path without escapes, as envoyproxy/ratelimit has it. Several rules may have one.
pub fn unescaped(path: &str) -> Cow<'_, str> {
    if !path.contains(ESCAPE) {
        return Cow::Borrowed(path);
    }
    let mut plain = String::with_capacity(path.len());
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(segments: &[&str]) -> String {
        of(segments.iter().map(|segment| Cow::Borrowed(*segment)))
    }

    #[test]
    fn ordinary_paths_are_joined_by_dots() {
        assert_eq!(path(&["tenant_acme", "path_/v1.2/login"]), "tenant_acme.path_/v1.2/login");
        assert_eq!(path(&["remote_address_10.0.0.0/8", "api_key"]), "remote_address_10.0.0.0/8.api_key");
        assert_eq!(path(&["404", "key_(a)"]), "404.key_(a)");
    }

    #[test]
    fn dots_within_segments_do_not_separate_them() {
        assert_eq!(path(&["a.b"]), r"a\.b");
        assert_eq!(path(&["a", "b"]), "a.b");
        assert_eq!(path(&["a", "1"]), r"a.\1");
        assert_eq!(path(&["a.1"]), "a.1");
        assert_eq!(path(&["a.", r"\"]), r"a\..\\");
        assert_eq!(path(&["(request)"]), r"\(request)");
        assert_eq!(path(&["@a", "@b"]), r"@a.\@b");
    }

    proptest! {
        #[test]
        fn paths_are_injective_and_unescaped_ones_are_as_joined(
            one in prop::collection::vec(r"[a1.@\\(]{1,4}", 1..4),
            other in prop::collection::vec(r"[a1.@\\(]{1,4}", 1..4),
            labels in prop::collection::vec(prop::option::of(r"[a1.@\\(]{1,4}"), 2),
        ) {
            let text = |segments: &[String]| of(segments.iter().map(|segment| Cow::Borrowed(&**segment)));
            let limit = |segments: &[String], label: &Option<String>| {
                let mut path = text(segments);
                label.iter().for_each(|label| push_limit(&mut path, label));
                path
            };
            let is_same = one == other && labels[0] == labels[1];
            prop_assert_eq!(limit(&one, &labels[0]) == limit(&other, &labels[1]), is_same);
            let path = text(&one);
            prop_assert_eq!(unescaped(&path), one.join("."));
        }
    }
}
