//! A variable of envoyproxy/ratelimit, and its effect on tollgate.

use std::fmt;

use tollgate_flags::{Problem, boolean, duration};

use self::Mapping::{Always, DetailOf, Flag, NoEffect, PartOf, Refused, Switch};
use self::ValueType::{Boolean, Decimal, Duration, Number, Text};
use super::Inputs;

/// A variable of envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Default in envoyproxy/ratelimit; empty if there is no default.
    pub default: &'static str,
    /// Syntax of the value.
    pub value_type: ValueType,
    /// Effect on tollgate.
    pub mapping: Mapping,
}

/// Syntax of a variable's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Boolean, in the forms that Go's `strconv.ParseBool` accepts.
    Boolean,
    /// Duration, in the syntax of Go.
    Duration,
    /// Whole number.
    Number,
    /// Decimal number.
    Decimal,
    /// Text. The case of keywords is ignored.
    Text,
}

/// Effect of a variable on tollgate.
#[derive(Clone, Copy, Debug)]
pub enum Mapping {
    /// Value of this flag.
    Flag(&'static str),
    /// Part of the value of this flag, or its value in another syntax, which the function returns.
    PartOf(&'static str, FlagValue),
    /// Switch for other variables.
    Switch(&'static str),
    /// Behaviour that is always on.
    Always(&'static str),
    /// Without effect. A startup warning gives the reason, or the replacement.
    NoEffect(&'static str),
    /// Fails startup for this reason, unless the value is the default or the replacing flag is given.
    Refused {
        /// The replacing flag, without its dashes.
        unless: &'static str,
        /// Reason, and the remedy.
        reason: &'static str,
    },
    /// Detail of another variable, which is reported in its place.
    DetailOf(&'static str),
}

/// Function of a flag's value, if its variables set it, for the variable with a name.
pub(super) type FlagValue = fn(Inputs<'_>, &str) -> Option<Result<String, Problem>>;

pub(super) const fn part(flag: &'static str, value: FlagValue) -> Mapping {
    PartOf(flag, value)
}

impl Variable {
    /// The flag that the variable sets, in whole or in part, without its dashes.
    pub const fn flag(&self) -> Option<&'static str> {
        match self.mapping {
            Flag(flag) | PartOf(flag, _) => Some(flag),
            Switch(_) | Always(_) | NoEffect(_) | Refused { .. } | DetailOf(_) => None,
        }
    }

    /// Whether `value` is the default, in any of its spellings.
    ///
    /// # Errors
    /// The value does not parse.
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
        match self.value_type {
            Boolean => same(boolean, value, self.default),
            Duration => same(duration, value, self.default),
            Number => same(number, value, self.default),
            Decimal => same(decimal, value, self.default),
            Text => Ok(value.eq_ignore_ascii_case(self.default)),
        }
    }
}

/// Effect in the form of the documentation.
impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "`--{flag}`"),
            Self::PartOf(flag, _) => write!(f, "part of `--{flag}`"),
            Self::Switch(what) => f.write_str(what),
            Self::Always(what) => write!(f, "always on: {what}"),
            Self::NoEffect(reason) => write!(f, "no effect: {reason}"),
            Self::Refused { unless, reason } => write!(f, "refused unless `--{unless}` is given: {reason}"),
            Self::DetailOf(other) => write!(f, "see `{other}`"),
        }
    }
}
