//! An explanation as text.

use std::fmt;

use tollgate_core::algorithm::Charging;

use super::{Explained, Explanation, MatchedCounter, MatchedRule, Step};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDomain { domain, known } => writeln!(
                f,
                "domain {domain} has no rules, so nothing is limited; those that have: {}",
                known.join(", ")
            ),
            Self::Domain { charging, counts_denied, descriptors } => {
                descriptors.iter().try_for_each(|explained| explained.fmt(f))?;
                match charging {
                    Charging::Independent => Ok(()),
                    Charging::AllOrNone if *counts_denied => {
                        writeln!(f, "a request is charged to all of its limits, or to those alone that deny")
                    }
                    Charging::AllOrNone => {
                        writeln!(f, "a request is charged to all of its limits, or to none if one denies")
                    }
                }
            }
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "descriptor {}", self.shown)?;
        self.steps.iter().try_for_each(|step| step.fmt(f))?;
        match &self.rule {
            Some(rule) => rule.fmt(f)?,
            None => writeln!(f, "  => no limit")?,
        }
        self.counter.iter().try_for_each(|counter| counter.fmt(f))?;
        for (rule, counter) in &self.beside {
            rule.fmt(f)?;
            counter.iter().try_for_each(|counter| counter.fmt(f))?;
        }
        match self.beside.is_empty() {
            true => Ok(()),
            false => writeln!(f, "     charged to all of these limits, or to none if one denies"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}={}", self.key, self.value)?;
        if let Some(taken) = &self.taken {
            writeln!(f, "    taken: {taken}")?;
        }
        for other in &self.passed_over {
            writeln!(f, "    passed over: {other}, which comes after")?;
        }
        self.note.iter().try_for_each(|note| writeln!(f, "    {note}"))
    }
}

impl fmt::Display for MatchedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  => rule {}.{} ({}:{})", self.domain, self.path, self.file, self.line)?;
        writeln!(f, "     limit    {}", self.limit)?;
        self.stated.iter().try_for_each(|stated| writeln!(f, "     stated   {stated}"))?;
        if let Some(applied) = &self.by_override {
            let whose = if applied.is_of_key { "key" } else { "rule" };
            writeln!(f, "     override {} of the {whose}, in place of {}", applied.id, applied.rule_limit)?;
        }
        if let Some(policy) = self.on_store_error {
            writeln!(f, "     on_store_error {policy}")?;
        }
        if let Some(other) = &self.replaced_by {
            writeln!(f, "     replaced by {}.{other}: not charged, and passes", self.domain)?;
        }
        Ok(())
    }
}

impl fmt::Display for MatchedCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "     counter  {} in {}", self.record, self.cell)?;
        writeln!(f, "     hash tag {}, slot {}", self.tag, self.slot)
    }
}
