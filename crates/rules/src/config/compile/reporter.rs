//! Reports of problems of one file, and of one limit in it.

use std::{fmt, ops::RangeInclusive, rc::Rc, time::Duration};

use tollgate_core::algorithm::Policy;
use tollgate_core::duration::{DurationError, parse_seconds};

use crate::config::problem::{Path, Problems};
use crate::config::raw::{Field, RawDescriptor, RawRateLimit, Stated};
use crate::config::vocabulary::{Mapping as _, Word, nearest, words};
use crate::config::yaml::{Position, excerpt};
use crate::{Limit, MAX_RETRY_AFTER_SPREAD, Segment};

/// Reads parameters of one file, and reports its problems.
pub(super) struct Reporter<'a> {
    pub(super) file: &'a Rc<str>,
    pub(super) problems: &'a mut Problems,
}

impl Reporter<'_> {
    pub(super) fn error(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.error(self.file, at, path, message);
    }

    /// Reports an error, and returns `None`.
    pub(super) fn refuse<T>(
        &mut self,
        at: Position,
        path: &Path<'_>,
        message: impl fmt::Display,
    ) -> Option<T> {
        self.error(at, path, message);
        None
    }

    pub(super) fn warning(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.warning(self.file, at, path, message);
    }

    /// Reads `retry_after_spread`, in whole seconds; `None` if it is absent or invalid.
    pub(super) fn retry_after_spread(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<Duration>> {
        let stated = field.stated()?;
        let max = MAX_RETRY_AFTER_SPREAD.as_secs() as u32;
        let seconds = self.duration(
            stated,
            &path.key("retry_after_spread"),
            parse_seconds,
            0..=max,
            "0 seconds to 24 hours",
        )?;
        Some(Stated { at: stated.at, value: Duration::from_secs(seconds.into()) })
    }

    /// Reads a duration in a range, which `expected` describes; `None` if it is invalid.
    pub(super) fn duration<T: PartialOrd>(
        &mut self,
        stated: &Stated<Rc<str>>,
        path: &Path<'_>,
        parse: fn(&str) -> Result<T, DurationError>,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Option<T> {
        let text = excerpt(&stated.value);
        match parse(&stated.value) {
            Ok(duration) if range.contains(&duration) => Some(duration),
            Ok(_) => self.refuse(stated.at, path, format!("`{text}` is out of range; expected {expected}")),
            Err(error) => self.refuse(stated.at, path, format!("`{text}` is not a duration; {error}")),
        }
    }

    /// Reads a value that is a word; `None` if it is absent or invalid.
    pub(super) fn word<W: Word>(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Stated<W>> {
        let Stated { at, value: word } = field.stated()?;
        let value = W::named().into_iter().find(|(name, _)| *name == &**word).map(|(_, value)| value);
        if value.is_none() {
            self.error(*at, path, unknown::<W>(word));
        }
        value.map(|value| Stated { at: *at, value })
    }

    /// Reads a value that is a word, else the default; `None` if it is invalid.
    pub(super) fn word_or<W: Word>(
        &mut self,
        default: W,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<W> {
        if field.is_present() { self.word(field, path).map(|word| word.value) } else { Some(default) }
    }

    pub(super) fn no_limit(&mut self, at: Position, path: &Path<'_>) -> Option<u64> {
        let message = "has no `requests_per_unit`, so all requests are denied; state 0 if that is meant";
        self.problems.warning(self.file, at, path, message);
        Some(0)
    }
}

/// Message for an unknown word.
pub(super) fn unknown<W: Word>(word: &str) -> String {
    let (word, noun, known) = (excerpt(word), W::NOUN, words::<W>());
    match nearest(&word, known.iter().copied()) {
        Some(meant) => format!("`{word}` is not {noun}; did you mean `{meant}`?"),
        None => format!("`{word}` is not {noun}; expected one of {}", known.join(", ")),
    }
}

/// A limit as it is stated, with what its other keys depend on.
#[derive(Clone, Copy)]
pub(super) struct StatedLimit<'a> {
    pub(super) descriptor: &'a RawDescriptor,
    pub(super) segments: &'a [Segment],
    pub(super) raw: &'a Stated<RawRateLimit>,
    pub(super) path: &'a Path<'a>,
    /// The compiled limit; `None` if it is invalid, which was reported.
    pub(super) limit: Option<&'a Limit>,
    pub(super) is_overdraft: bool,
}

impl<'a> StatedLimit<'a> {
    /// The policy of a valid limit that is not unlimited. A key beside `unlimited` was reported.
    pub(super) fn policy(&self) -> Option<&'a Policy> {
        self.limit?.policy()
    }

    /// Reports an error of a key, at the key or at the limit without it, and returns `None`.
    pub(super) fn refuse<T>(
        &self,
        reporter: &mut Reporter<'_>,
        key: &str,
        message: impl fmt::Display,
    ) -> Option<T> {
        reporter.refuse(self.at(key), &self.path.key(key), message)
    }

    pub(super) fn warn(&self, reporter: &mut Reporter<'_>, key: &str, message: impl fmt::Display) {
        reporter.warning(self.at(key), &self.path.key(key), message);
    }

    fn at(&self, key: &str) -> Position {
        self.raw.value.at(key).unwrap_or(self.raw.at)
    }
}
