//! One report of a utilization, in each form in which a service sends it.

/// Utilization of a service at one time, in 1/10,000; 10,000 is all of its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utilization(u16);

/// Error of a text that is no utilization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number from 0 to 1 such as `0.83`, `83%`, or an ORCA load report with a utilization")]
pub struct ReportError;

/// Metrics of an ORCA load report, the preferred one first, as gRPC's weighted round robin reads them (gRFC A58).
const ORCA_METRICS: [&str; 2] = ["application_utilization", "cpu_utilization"];

impl Utilization {
    /// The utilization at which all capacity is used.
    pub const FULL: Self = Self(10_000);

    /// Largest utilization; a service that reports more than its capacity counts as this.
    pub const MAX: Self = Self(20_000);

    /// Returns a utilization as a part of the capacity, at most [`Self::MAX`].
    ///
    /// # Errors
    /// [`ReportError`] for a negative number, or none.
    #[allow(clippy::float_arithmetic)] // A measurement, whose fourth digit does not matter.
    pub fn of_ratio(ratio: f64) -> Result<Self, ReportError> {
        match ratio >= 0.0 {
            // A cast saturates.
            true => Ok(Self((ratio * 10_000.0).round() as u16).min(Self::MAX)),
            false => Err(ReportError),
        }
    }

    /// Returns a utilization in hundredths, at most [`Self::MAX`].
    pub fn of_percent(percent: u64) -> Self {
        Self::of_units(percent.saturating_mul(100))
    }

    /// Returns a utilization in thousandths, at most [`Self::MAX`].
    pub fn of_per_mille(per_mille: u64) -> Self {
        Self::of_units(per_mille.saturating_mul(10))
    }

    fn of_units(units: u64) -> Self {
        u16::try_from(units).map_or(Self::MAX, Self).min(Self::MAX)
    }

    /// The utilization in 1/10,000, at most 20,000.
    pub const fn units(self) -> u16 {
        self.0
    }

    /// Reads the value of an entry that reports: the number itself, or the unit of the hits that came with it.
    ///
    /// Accepted are a number (`0.83`), a percentage (`83%`), a load report of ORCA as text or JSON, and `percent` and
    /// `per_mille`, with which `hits` is the number.
    ///
    /// # Errors
    /// [`ReportError`] for any other text.
    #[allow(clippy::float_arithmetic)]
    pub fn parse(value: &str, hits: u64) -> Result<Self, ReportError> {
        let value = value.trim();
        match value {
            "percent" => return Ok(Self::of_percent(hits)),
            "per_mille" => return Ok(Self::of_per_mille(hits)),
            _ => {}
        }
        match value.strip_suffix('%') {
            Some(percent) => Self::of_ratio(number(percent)? / 100.0),
            None => number(value).or_else(|_| orca(value)).and_then(Self::of_ratio),
        }
    }
}

/// Reads a decimal number; not `inf` or `nan`, nor one of many digits.
fn number(text: &str) -> Result<f64, ReportError> {
    const MAX_BYTES: usize = 32;
    let text = text.trim();
    let is_number =
        text.len() <= MAX_BYTES && text.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    text.parse().ok().filter(|number: &f64| is_number && number.is_finite()).ok_or(ReportError)
}

/// Reads the utilization of an ORCA load report: `TEXT cpu_utilization=0.3,…` or `JSON {"cpu_utilization": 0.3,…}`, with
/// or without the word before it. A metric that is 0 or absent is not reported.
fn orca(report: &str) -> Result<f64, ReportError> {
    const MAX_REPORT_BYTES: usize = 4_096;
    if report.len() > MAX_REPORT_BYTES {
        return Err(ReportError);
    }
    let reported = ORCA_METRICS.iter().map(|metric| value_of(report, metric));
    let mut reported = reported.filter_map(Result::ok).peekable();
    let first = reported.peek().copied().ok_or(ReportError)?;
    Ok(reported.find(|value| *value > 0.0).unwrap_or(first))
}

/// The number of a metric in a report: after its name as a whole word, quotes and one `:` or `=`.
fn value_of(report: &str, metric: &str) -> Result<f64, ReportError> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-');
    let after = report.match_indices(metric).find_map(|(at, _)| {
        let before = report.get(..at)?;
        let rest = report.get(at.saturating_add(metric.len())..)?;
        let rest = rest.strip_prefix('"').unwrap_or(rest).trim_start();
        let rest = rest.strip_prefix([':', '='])?;
        (!before.ends_with(is_name)).then(|| rest.trim_start())
    });
    let after = after.ok_or(ReportError)?;
    let end = after.find([',', '}', ' ', '\n']).unwrap_or(after.len());
    number(after.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(value: &str, hits: u64) -> Option<u16> {
        Utilization::parse(value, hits).ok().map(Utilization::units)
    }

    #[test]
    fn a_report_is_a_number_a_percentage_or_the_hits_in_a_unit() {
        for (value, hits, expected) in [
            ("0.83", 1, 8_300),
            (" .5 ", 1, 5_000),
            ("0", 1, 0),
            ("1", 1, 10_000),
            ("83%", 1, 8_300),
            ("99.9 %", 1, 9_990),
            ("percent", 83, 8_300),
            ("percent", 0, 0),
            ("per_mille", 835, 8_350),
            ("per_mille", u64::MAX, 20_000),
            ("7.5", 1, 20_000),
        ] {
            assert_eq!(units(value, hits), Some(expected), "{value}");
        }
        for wrong in ["", "-", "-0.5", "nan", "inf", "abc", "1e999999999999999999999999999999", "0.5.5", "%"]
        {
            assert_eq!(units(wrong, 7), None, "{wrong}");
        }
    }

    #[test]
    fn an_orca_report_has_the_applications_utilization_else_that_of_the_cpu() {
        for (report, expected) in [
            ("TEXT cpu_utilization=0.3,application_utilization=0.8", Some(8_000)),
            ("cpu_utilization=0.3", Some(3_000)),
            (r#"JSON {"cpu_utilization": 0.25, "mem_utilization": 0.9}"#, Some(2_500)),
            (r#"{"application_utilization":0,"cpu_utilization":0.5}"#, Some(5_000)),
            (r#"JSON {"application_utilization":0}"#, Some(0)),
            ("TEXT mem_utilization=0.3", None),
            ("TEXT named_metrics.my_cpu_utilization=0.3", None),
            ("TEXT named_metrics.cpu_utilization=0.3", None),
            ("TEXT cpu_utilization=x", None),
        ] {
            assert_eq!(units(report, 1), expected, "{report}");
        }
    }
}
