//! Text format of a report.

use std::fmt;

use crate::{Report, RulesReport, Setting, Verdict};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Unchanged => writeln!(f, "{}: works unchanged", self.source)?,
            Verdict::ToBeChanged => writeln!(f, "{}: does not work unchanged; see the plan", self.source)?,
        }
        list(f, "\nUnknown values", &self.not_seen)?;
        list(f, "\nRefused", &self.problems)?;
        self.settings(f)?;
        self.variables(f)?;
        let notices: Vec<String> =
            self.notices.iter().filter(|notice| !self.has_variable_of(notice)).cloned().collect();
        list(f, "\nStartup warnings", &notices)?;
        match (&self.rules, &self.rules_not_seen) {
            (Some(rules), _) => rules.fmt(f)?,
            (None, Some(reason)) => writeln!(f, "\nRules\n  not read: {reason}")?,
            (None, None) => writeln!(f, "\nRules\n  not in a directory; see --rules")?,
        }
        writeln!(f, "\nPlan")?;
        for (at, step) in self.plan.iter().enumerate() {
            writeln!(f, "  {}. {step}", at.saturating_add(1))?;
        }
        Ok(())
    }
}

impl Report {
    /// Whether a notice is about a listed variable, which shows its text.
    fn has_variable_of(&self, notice: &str) -> bool {
        let about = notice.split(' ').next().unwrap_or_default();
        self.variables.iter().any(|variable| variable.name == about)
    }

    /// Writes the settings as flags and as variables.
    fn settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.problems.is_empty() {
            return Ok(());
        }
        if self.settings.is_empty() {
            return writeln!(f, "\nSettings\n  all at their defaults");
        }
        writeln!(f, "\nSettings, as flags")?;
        write!(f, "  tollgate")?;
        for Setting { flag, value, .. } in &self.settings {
            write!(f, " \\\n    {flag}={}", quoted(value))?;
        }
        writeln!(f, "\n\nSettings, as variables")?;
        for Setting { variable, value, .. } in &self.settings {
            match self.settings.iter().filter(|other| other.variable == *variable).count() {
                0 | 1 => writeln!(f, "  {variable}={value}")?,
                _ => writeln!(f, "  {variable}, one of several lines: {value}")?,
            }
        }
        for Setting { variable, from, .. } in self.settings.iter().filter(|setting| setting.is_secret) {
            let from = from.join(", ");
            writeln!(
                f,
                "  *** replaces a secret. Keep it in {from}, which tollgate reads too, or move it to {variable}."
            )?;
        }
        Ok(())
    }

    fn variables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            writeln!(f, "\nVariables")?;
        }
        let width = self.variables.iter().map(|variable| variable.name.len()).max().unwrap_or_default();
        for variable in &self.variables {
            writeln!(f, "  {:width$}  {variable}", variable.name)?;
        }
        let others: Vec<_> =
            [self.others.join(", ")].into_iter().filter(|others| !others.is_empty()).collect();
        list(f, "\nVariables of neither envoyproxy/ratelimit nor tollgate", &others)
    }
}

impl fmt::Display for RulesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, files, domains, rules, .. } = self;
        match self.problems.is_empty() {
            true => writeln!(f, "\nRules\n  {directory}: files {files}, domains {domains}, rules {rules}")?,
            false => writeln!(f, "\nRules\n  {directory}: files {files}; not valid")?,
        }
        self.problems.iter().try_for_each(|problem| writeln!(f, "  {problem}"))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  {warning}"))?;
        if !self.differences.is_empty() {
            writeln!(f, "\nDifferences with these rules")?;
        }
        for difference in &self.differences {
            writeln!(f, "  {}:", difference.text)?;
            difference.places.iter().take(MAX_PLACES).try_for_each(|place| writeln!(f, "    {place}"))?;
            if let Some(more @ 1..) = difference.places.len().checked_sub(MAX_PLACES) {
                writeln!(f, "    and {more} more")?;
            }
        }
        Ok(())
    }
}

/// Number of places in the text; JSON has all of them.
const MAX_PLACES: usize = 10;

fn list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}")?;
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}

/// Quotes a value for a shell.
fn quoted(value: &str) -> String {
    let is_printable = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,@%+=".contains(letter);
    match !value.is_empty() && value.chars().all(is_printable) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_shell_if_necessary() {
        for (value, word) in [
            ("redis://h:1/2", "redis://h:1/2"),
            ("[::]:8081", "'[::]:8081'"),
            ("", "''"),
            ("it's", "'it'\\''s'"),
            ("a b", "'a b'"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(value), word);
        }
    }
}
