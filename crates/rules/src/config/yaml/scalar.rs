//! Meaning of scalars: the rules of YAML 1.1 as in Go's yaml.v2, which envoyproxy/ratelimit uses.

/// Meaning of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::config) enum Meaning {
    /// `~`, `null` or an empty text.
    Null,
    /// `yes`, `no`, `on`, `off`, `true`, `false`, `y` or `n`.
    Bool(bool),
    /// An integer.
    Integer(i128),
    /// Any other number, including integers that exceed 64 bits.
    Float(f64),
    /// The text itself.
    Text,
}

/// Returns the meaning of a plain scalar.
pub(super) fn meaning_of(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Meaning::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Meaning::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Meaning::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return Meaning::Text;
    }
    let digits: String = text.chars().filter(|character| *character != '_').collect();
    integer(&digits).or_else(|| float(&digits)).unwrap_or(Meaning::Text)
}

/// Parses an integer of 64 bits, signed or unsigned: decimal, `0x`, `0b`, `0o`, or octal by a leading 0.
fn integer(text: &str) -> Option<Meaning> {
    let (is_negative, rest) = match text.split_at_checked(1) {
        Some(("-", rest)) => (true, rest),
        Some(("+", rest)) => (false, rest),
        _ => (false, text),
    };
    let (radix, digits) = match rest.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (16, digits),
        Some(("0b" | "0B", digits)) => (2, digits),
        Some(("0o" | "0O", digits)) => (8, digits),
        _ if rest.len() > 1 && rest.starts_with('0') => (8, rest),
        _ => (10, rest),
    };
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        // The parser below would accept a second sign.
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    let number = if is_negative { number.checked_neg()? } else { number };
    let is_in_range = number >= i128::from(i64::MIN) && number <= i128::from(u64::MAX);
    is_in_range.then_some(Meaning::Integer(number))
}

/// Parses numbers such as `12.`, `.5` and `1.5e-3`, but not `infinity` and other texts that Rust's parser accepts.
fn float(text: &str) -> Option<Meaning> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    if !is_number || !is_exponent {
        return None;
    }
    // A number out of range is a text, such as the abbreviated commit `12e4567`.
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Meaning::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_yes_and_no_are_bools() {
        for word in ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"] {
            assert_eq!(meaning_of(word), Meaning::Bool(true), "{word}");
        }
        for word in ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"] {
            assert_eq!(meaning_of(word), Meaning::Bool(false), "{word}");
        }
        for word in ["yEs", "tRUE", "truee", "oN"] {
            assert_eq!(meaning_of(word), Meaning::Text, "{word}");
        }
    }

    #[test]
    fn null_has_five_notations() {
        for word in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(meaning_of(word), Meaning::Null, "{word}");
        }
        assert_eq!(meaning_of("nULL"), Meaning::Text);
    }

    #[test]
    fn integers_have_five_notations() {
        for (text, number) in [
            ("0", 0),
            ("-0", 0),
            ("+12", 12),
            ("1_000", 1_000),
            ("0x1F", 31),
            ("-0x1f", -31),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("18446744073709551615", u64::MAX.into()),
            ("-9223372036854775808", i64::MIN.into()),
        ] {
            assert_eq!(meaning_of(text), Meaning::Integer(number), "{text}");
        }
    }

    #[test]
    fn other_numbers_are_floats() {
        for (text, number) in [
            ("1.5", 1.5),
            ("-.5", -0.5),
            (".5", 0.5),
            ("12.", 12.0),
            ("1e3", 1_000.0),
            ("1.5E-1", 0.15),
            ("089", 89.0),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            (".inf", f64::INFINITY),
            ("-.INF", f64::NEG_INFINITY),
        ] {
            assert_eq!(meaning_of(text), Meaning::Float(number), "{text}");
        }
        assert!(matches!(meaning_of(".NaN"), Meaning::Float(number) if number.is_nan()));
    }

    #[test]
    fn texts_that_begin_like_a_number_are_texts() {
        for text in [
            "1.2.3.4",
            "10.0.0.0/8",
            "30s",
            "12:30",
            "2001-12-14",
            "-",
            "+",
            ".",
            "..",
            "--1",
            "+-1",
            "0x",
            "0xg",
            "1e",
            "1e+",
            "e3",
            "_1",
            "infinity",
            "-é",
            "١",
        ] {
            assert_eq!(meaning_of(text), Meaning::Text, "{text}");
        }
    }
}
