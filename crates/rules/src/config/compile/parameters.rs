//! Parameters of limits, common to `rate_limit` and `defaults`.

use std::{fmt, rc::Rc, time::Duration};

use tollgate_core::{
    SyncMode,
    algorithm::Algorithm,
    ban::BanMode,
    duration::parse_seconds,
    quota::{Unit, Window},
};

use crate::{
    MAX_RETRY_AFTER_SPREAD, OnShareExhausted, OnStoreError, Scope,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
        vocabulary::nearest,
        yaml::Position,
    },
};

/// Algorithm with the position where it is stated.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenAlgorithm {
    pub(super) algorithm: Algorithm,
    pub(super) at: Position,
}

/// Window of a limit, if it states a valid one.
type WindowField = Field<Window>;

/// Reads parameters of one file, and reports its problems.
pub(super) struct Reporter<'a> {
    pub(super) file: &'a str,
    pub(super) problems: &'a mut Problems,
}

impl Reporter<'_> {
    pub(super) fn error(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.error(self.file, at, path, message);
    }

    pub(super) fn warning(&mut self, at: Position, path: &Path<'_>, message: impl fmt::Display) {
        self.problems.warning(self.file, at, path, message);
    }

    pub(super) fn algorithm(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<ChosenAlgorithm> {
        let named = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        let Stated { at, value } = self.one_of(field, &named, "an algorithm", &path.key("algorithm"))?;
        Some(ChosenAlgorithm { algorithm: value, at })
    }

    /// Reads `sync`; `None` if it is absent or invalid.
    pub(super) fn sync(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Stated<SyncMode>> {
        let named = SyncMode::ALL.map(|sync| (sync.name(), sync));
        self.one_of(field, &named, "a sync mode", &path.key("sync"))
    }

    /// Reads `on_store_error`; `None` if it is absent or invalid.
    pub(super) fn on_store_error(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<OnStoreError>> {
        let named = OnStoreError::ALL.map(|policy| (policy.name(), policy));
        self.one_of(field, &named, "an on_store_error policy", &path.key("on_store_error"))
    }

    /// Reads `scope`; `None` if it is absent or invalid.
    pub(super) fn scope(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Stated<Scope>> {
        let named = Scope::ALL.map(|scope| (scope.name(), scope));
        self.one_of(field, &named, "a scope", &path.key("scope"))
    }

    /// Reads `on_share_exhausted`; `None` if it is absent or invalid.
    pub(super) fn on_share_exhausted(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<OnShareExhausted>> {
        let named = OnShareExhausted::ALL.map(|policy| (policy.name(), policy));
        self.one_of(field, &named, "a decision", &path.key("on_share_exhausted"))
    }

    /// Reads the `mode` of bans; `None` if it is absent or invalid.
    pub(super) fn ban_mode(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<BanMode> {
        let named = BanMode::ALL.map(|mode| (mode.name(), mode));
        self.one_of(field, &named, "a mode of bans", &path.key("mode")).map(|mode| mode.value)
    }

    /// Reads `retry_after_spread`, in whole seconds; `None` if it is absent or invalid.
    pub(super) fn retry_after_spread(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<Duration>> {
        let stated = field.stated()?;
        let seconds = parse_seconds(&stated.value).map(|seconds| Duration::from_secs(seconds.into()));
        let message = match seconds {
            Ok(value) if value <= MAX_RETRY_AFTER_SPREAD => return Some(Stated { at: stated.at, value }),
            Ok(_) => format!("`{}` is out of range; expected 0 seconds to 24 hours", stated.value),
            Err(expected) => format!("`{}` is not a duration; {expected}", excerpt(&stated.value)),
        };
        self.problems.error(self.file, stated.at, path.key("retry_after_spread"), message);
        None
    }

    /// Reads one of the named values; `None` if it is absent or invalid.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        field: &Field<Rc<str>>,
        named: &[(&'static str, T)],
        kind: &str,
        path: &Path<'_>,
    ) -> Option<Stated<T>> {
        let Stated { at, value: word } = field.stated()?;
        if let Some((_, value)) = named.iter().find(|(name, _)| *name == &**word) {
            return Some(Stated { at: *at, value: *value });
        }
        let names: Vec<_> = named.iter().map(|(name, _)| *name).collect();
        self.problems.error(self.file, *at, path, unknown(kind, word, &names));
        None
    }

    /// Reads the window that `unit`, `unit_multiplier` and `window` state together. A multiplier alone applies to `default`.
    pub(super) fn window(
        &mut self,
        raw: &RawRateLimit,
        default: Option<Unit>,
        path: &Path<'_>,
    ) -> WindowField {
        match (&raw.window, &raw.unit, &raw.unit_multiplier) {
            (Field::Absent, Field::Absent, Field::Absent) => Field::Absent,
            (Field::Invalid, ..) | (_, Field::Invalid, _) | (.., Field::Invalid) => Field::Invalid,
            (Field::Stated(window), Field::Absent, Field::Absent) => self.window_seconds(window, path),
            (Field::Stated(window), ..) => {
                let message = "contradicts `unit` and `unit_multiplier`; expected only one of them";
                self.problems.error(self.file, window.at, path.key("window"), message);
                Field::Invalid
            }
            (Field::Absent, Field::Stated(unit), multiplier) => self.unit(unit, multiplier, path),
            (Field::Absent, Field::Absent, Field::Stated(multiplier)) => match default {
                Some(unit) => self.multiple(unit, multiplier, path),
                None => {
                    let message = "has no `unit`; expected one to multiply";
                    self.problems.error(self.file, multiplier.at, path.key("unit_multiplier"), message);
                    Field::Invalid
                }
            },
        }
    }

    fn window_seconds(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> WindowField {
        let seconds = parse_seconds(&stated.value).map_err(|error| error.to_string());
        let window =
            seconds.and_then(|seconds| Window::from_seconds(seconds).map_err(|error| error.to_string()));
        match window {
            Ok(value) => Field::Stated(Stated { at: stated.at, value }),
            Err(expected) => {
                let message = format!("`{}` is not a window; {expected}", stated.value);
                self.problems.error(self.file, stated.at, path.key("window"), message);
                Field::Invalid
            }
        }
    }

    fn unit(&mut self, stated: &Stated<Rc<str>>, multiplier: &Field<u32>, path: &Path<'_>) -> WindowField {
        let Ok(unit) = stated.value.parse::<Unit>() else {
            let message = unknown("a unit", &stated.value, &Unit::ALL.map(Unit::name));
            self.problems.error(self.file, stated.at, path.key("unit"), message);
            return Field::Invalid;
        };
        match multiplier.stated() {
            Some(multiplier) => self.multiple(unit, multiplier, path),
            None => Field::Stated(Stated { at: stated.at, value: Window::of(unit) }),
        }
    }

    fn multiple(&mut self, unit: Unit, multiplier: &Stated<u32>, path: &Path<'_>) -> WindowField {
        match Window::new(unit, multiplier.value) {
            Ok(value) => Field::Stated(Stated { at: multiplier.at, value }),
            Err(error) => {
                let message = format!("{} × {unit} is not a window; {error}", multiplier.value);
                self.problems.error(self.file, multiplier.at, path.key("unit_multiplier"), message);
                Field::Invalid
            }
        }
    }

    pub(super) fn no_limit(&mut self, at: Position, path: &Path<'_>) -> Option<u64> {
        let message = "has no `requests_per_unit`, so all requests are denied; state 0 if that is meant";
        self.problems.warning(self.file, at, path, message);
        Some(0)
    }

    pub(super) fn no_window(&mut self, at: Position, path: &Path<'_>) -> Option<Window> {
        let units = Unit::ALL.map(Unit::name).join(", ");
        let message = format!(
            "has no `unit` and no `window`; expected one of {units} as `unit`, or a `window` such as 30s"
        );
        self.problems.error(self.file, at, path, message);
        None
    }
}

/// Message for an unknown word.
pub(super) fn unknown(kind: &str, word: &str, known: &[&'static str]) -> String {
    let word = excerpt(word);
    match nearest(&word, known.iter().copied()) {
        Some(meant) => format!("`{word}` is not {kind}; did you mean `{meant}`?"),
        None => format!("`{word}` is not {kind}; expected one of {}", known.join(", ")),
    }
}
