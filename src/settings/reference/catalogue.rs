//! Every variable of envoyproxy/ratelimit, and what becomes of it.

mod answers;
mod memcache;
mod ports;
mod process;
mod redis;
mod rules;
mod second_redis;
mod statsd;
mod traces;
mod xds;

use std::fmt;

use crate::settings::value::{boolean, duration};

/// A variable of envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is there when nobody says otherwise; empty for nothing.
    pub default: &'static str,
    /// How its value is written.
    pub form: Form,
    /// What becomes of it.
    pub fate: Fate,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As Go reads booleans.
    Boolean,
    /// As Go reads durations.
    Duration,
    /// A whole number.
    Number,
    /// A number.
    Decimal,
    /// Any text; in words, case does not matter.
    Text,
}

/// What becomes of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its value is the value of a flag.
    Same(&'static str),
    /// Its value has a part in the value of a flag, or is written otherwise there.
    Part(&'static str),
    /// It says whether others count.
    Switch(&'static str),
    /// What it can ask for is done, always.
    Always(&'static str),
    /// It is told at the start that it does nothing, and why, or what is there instead.
    NoEffect(&'static str),
    /// It stops the start, for this reason, unless it has its default or the flag is given that replaces it.
    Refused {
        /// The flag, without its dashes.
        unless: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// It says more about another variable, which is told in its place.
    Of(&'static str),
}

/// Every variable, in the order of the tables.
pub fn all() -> impl Iterator<Item = &'static Variable> {
    let tables: [&[Variable]; 10] = [
        &ports::VARIABLES,
        &process::VARIABLES,
        &rules::VARIABLES,
        &xds::VARIABLES,
        &redis::VARIABLES,
        &second_redis::VARIABLES,
        &memcache::VARIABLES,
        &answers::VARIABLES,
        &statsd::VARIABLES,
        &traces::VARIABLES,
    ];
    tables.into_iter().flatten()
}

/// Whether a variable of that name has a value that is not its default there.
pub(super) fn is_changed(name: &str, value: Option<&str>) -> bool {
    let is_default = |value| all().any(|known| known.name == name && known.is_default(value) == Ok(true));
    value.is_some_and(|value| !is_default(value))
}

impl Variable {
    const fn new(name: &'static str, default: &'static str, form: Form, fate: Fate) -> Self {
        Self { name, default, form, fate }
    }

    /// The flag that it has to do with, without its dashes.
    pub const fn flag(&self) -> Option<&'static str> {
        match self.fate {
            Fate::Same(flag) | Fate::Part(flag) => Some(flag),
            Fate::Switch(_) | Fate::Always(_) | Fate::NoEffect(_) | Fate::Refused { .. } | Fate::Of(_) => {
                None
            }
        }
    }

    /// Whether a value says what is so anyway.
    ///
    /// # Errors
    /// What is wrong with the value's form.
    pub fn is_default(&self, value: &str) -> Result<bool, String> {
        fn same<T: PartialEq>(
            read: impl Fn(&str) -> Result<T, String>,
            value: &str,
            default: &str,
        ) -> Result<bool, String> {
            let value = read(value)?;
            Ok(read(default).is_ok_and(|default| default == value))
        }
        let number = |text: &str| text.parse::<i64>().map_err(|_| "expected a whole number".to_owned());
        let decimal = |text: &str| text.parse::<f64>().map_err(|_| "expected a number".to_owned());
        match self.form {
            Form::Boolean => same(boolean, value, self.default),
            Form::Duration => same(duration, value, self.default),
            Form::Number => same(number, value, self.default),
            Form::Decimal => same(decimal, value, self.default),
            Form::Text => Ok(value.eq_ignore_ascii_case(self.default)),
        }
    }
}

/// What becomes of it, for people.
impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(flag) => write!(f, "`--{flag}`"),
            Self::Part(flag) => write!(f, "part of `--{flag}`"),
            Self::Switch(what) => f.write_str(what),
            Self::Always(what) => write!(f, "always so: {what}"),
            Self::NoEffect(reason) => write!(f, "no effect: {reason}"),
            Self::Refused { unless, reason } => write!(f, "refused unless `--{unless}` is given: {reason}"),
            Self::Of(other) => write!(f, "as `{other}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_variable_stands_there_once_and_its_default_is_its_default() {
        let mut seen = BTreeSet::new();
        for variable in all() {
            assert!(seen.insert(variable.name), "{} twice", variable.name);
            if !variable.default.is_empty() {
                assert_eq!(variable.is_default(variable.default), Ok(true), "{}", variable.name);
            }
            if let Fate::Of(other) = variable.fate {
                assert!(all().any(|known| known.name == other), "{other}");
            }
        }
    }

    #[test]
    fn a_default_is_known_in_every_form_of_it() {
        let of = |name, value| all().find(|known| known.name == name).expect("known").is_default(value);
        assert_eq!(of("REDIS_TIMEOUT", "10000ms"), Ok(true));
        assert_eq!(of("REDIS_PERSECOND", "F"), Ok(true));
        assert_eq!(of("REDIS_POOL_SIZE", "010"), Ok(true));
        assert_eq!(of("REDIS_POOL_ON_EMPTY_BEHAVIOR", "wait"), Ok(true));
        assert_eq!(of("REDIS_TIMEOUT", "1s"), Ok(false));
        assert!(of("REDIS_TIMEOUT", "10").is_err_and(|error| error.contains("duration")));
        assert!(of("REDIS_POOL_SIZE", "ten").is_err_and(|error| error.contains("number")));
    }
}
