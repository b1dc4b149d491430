//! Parameters of limits, which `rate_limit` and `defaults` state alike.

use std::rc::Rc;

use crate::{
    OnStoreError,
    config::{
        problem::{Path, Problems},
        raw::{Field, RawRateLimit, Stated},
        reader::excerpt,
        vocabulary::nearest,
        yaml::Position,
    },
};
use tollgate_core::{
    SyncMode,
    algorithm::Algorithm,
    duration::parse_seconds,
    quota::{Unit, Window},
};

/// An algorithm and where it was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) algorithm: Algorithm,
    pub(super) at: Position,
}

/// A length of time that is stated, or not, or wrongly so, which was reported.
type Length = Field<Window>;

/// Reads what limits and defaults have in common.
pub(super) struct Reporter<'a> {
    pub(super) file: &'a str,
    pub(super) problems: &'a mut Problems,
}

impl Reporter<'_> {
    pub(super) fn algorithm(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Chosen> {
        let named = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
        let Stated { at, value } = self.one_of(field, &named, "algorithm", &path.key("algorithm"))?;
        Some(Chosen { algorithm: value, at })
    }

    /// Whether counters may be leased, unless what is stated is wrong.
    pub(super) fn sync(&mut self, field: &Field<Rc<str>>, path: &Path<'_>) -> Option<Stated<SyncMode>> {
        let named = SyncMode::ALL.map(|sync| (sync.name(), sync));
        self.one_of(field, &named, "way to sync", &path.key("sync"))
    }

    /// What happens while the store does not decide, unless what is stated is wrong.
    pub(super) fn on_store_error(
        &mut self,
        field: &Field<Rc<str>>,
        path: &Path<'_>,
    ) -> Option<Stated<OnStoreError>> {
        let named = OnStoreError::ALL.map(|way| (way.name(), way));
        self.one_of(field, &named, "way to meet an error of the store", &path.key("on_store_error"))
    }

    /// What a word stands for that should be one of those named.
    fn one_of<T: Copy>(
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

    /// The length of time that `unit`, `unit_multiplier` and `window` state together. A multiplier alone is
    /// one of `default`.
    pub(super) fn length(&mut self, raw: &RawRateLimit, default: Option<Unit>, path: &Path<'_>) -> Length {
        match (&raw.window, &raw.unit, &raw.unit_multiplier) {
            (Field::Absent, Field::Absent, Field::Absent) => Field::Absent,
            (Field::Wrong, ..) | (_, Field::Wrong, _) | (.., Field::Wrong) => Field::Wrong,
            (Field::Stated(window), Field::Absent, Field::Absent) => self.window(window, path),
            (Field::Stated(window), ..) => {
                let message = "goes in place of `unit` and `unit_multiplier`; state one or the other";
                self.problems.error(self.file, window.at, path.key("window"), message);
                Field::Wrong
            }
            (Field::Absent, Field::Stated(unit), multiplier) => self.unit(unit, multiplier, path),
            (Field::Absent, Field::Absent, Field::Stated(multiplier)) => match default {
                Some(unit) => self.multiple(unit, multiplier, path),
                None => {
                    let message = "needs a `unit` that it multiplies";
                    self.problems.error(self.file, multiplier.at, path.key("unit_multiplier"), message);
                    Field::Wrong
                }
            },
        }
    }

    fn window(&mut self, stated: &Stated<Rc<str>>, path: &Path<'_>) -> Length {
        let seconds = parse_seconds(&stated.value).map_err(|error| error.to_string());
        let window =
            seconds.and_then(|seconds| Window::from_seconds(seconds).map_err(|error| error.to_string()));
        match window {
            Ok(value) => Field::Stated(Stated { at: stated.at, value }),
            Err(expected) => {
                let message = format!("`{}` is no window: {expected}", stated.value);
                self.problems.error(self.file, stated.at, path.key("window"), message);
                Field::Wrong
            }
        }
    }

    fn unit(&mut self, stated: &Stated<Rc<str>>, multiplier: &Field<u32>, path: &Path<'_>) -> Length {
        let Ok(unit) = stated.value.parse::<Unit>() else {
            let message = unknown("unit", &stated.value, &Unit::ALL.map(Unit::name));
            self.problems.error(self.file, stated.at, path.key("unit"), message);
            return Field::Wrong;
        };
        match multiplier.stated() {
            Some(multiplier) => self.multiple(unit, multiplier, path),
            None => Field::Stated(Stated { at: stated.at, value: Window::of(unit) }),
        }
    }

    fn multiple(&mut self, unit: Unit, multiplier: &Stated<u32>, path: &Path<'_>) -> Length {
        match Window::new(unit, multiplier.value) {
            Ok(value) => Field::Stated(Stated { at: multiplier.at, value }),
            Err(error) => {
                let message = format!("{} × {unit} is no window: {error}", multiplier.value);
                self.problems.error(self.file, multiplier.at, path.key("unit_multiplier"), message);
                Field::Wrong
            }
        }
    }

    pub(super) fn no_limit(&mut self, at: Position, path: &Path<'_>) -> Option<u32> {
        let message = "has no `requests_per_unit`, so that everything is denied; state 0 if that is meant";
        self.problems.warning(self.file, at, path, message);
        Some(0)
    }

    pub(super) fn no_window(&mut self, at: Position, path: &Path<'_>) -> Option<Window> {
        let units = Unit::ALL.map(Unit::name).join(", ");
        let message = format!("has no `unit` ({units}) and no `window` (such as 30s); state one of them");
        self.problems.error(self.file, at, path, message);
        None
    }
}

/// What is said of a word that is none of those that are known.
pub(super) fn unknown(kind: &str, word: &str, known: &[&'static str]) -> String {
    let word = excerpt(word);
    match nearest(&word, known.iter().copied()) {
        Some(meant) => format!("`{word}` is no {kind}; did you mean `{meant}`?"),
        None => format!("`{word}` is no {kind}; expected one of {}", known.join(", ")),
    }
}
