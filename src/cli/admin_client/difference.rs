//! Text form of a difference between files and rules.

use super::text::{escape, escape_line};
use crate::http::admin::api::diff::{Change, DiffResponse, RuleChange};

impl Change {
    const fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }
}

impl DiffResponse {
    /// Whether the files are equal.
    pub(super) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Patches of the files, and the changed rules.
    pub(super) fn to_text(&self) -> String {
        if self.is_empty() {
            return "no difference\n".to_owned();
        }
        let patches: String = self.files.iter().map(|file| with_line_feed(escape(&file.patch))).collect();
        format!("{patches}\n{}", self.summary())
    }

    /// Names of the changed files and rules.
    pub(super) fn summary(&self) -> String {
        let files =
            self.files.iter().map(|file| format!("{} {}\n", file.change.sign(), escape_line(&file.name)));
        let rules = self.rules.iter().map(RuleChange::to_text);
        let problem = self
            .problem
            .iter()
            .map(|report| with_line_feed(format!("the rules are not compared:\n{}", escape(report))));
        files.chain(rules).chain(problem).collect()
    }
}

impl RuleChange {
    fn to_text(&self) -> String {
        let limit = |text: &Option<String>| escape_line(text.as_deref().unwrap_or("no limit"));
        let limits = match self.change {
            Change::Added => limit(&self.after),
            Change::Removed => limit(&self.before),
            Change::Changed => format!("{} -> {}", limit(&self.before), limit(&self.after)),
        };
        format!(
            "{} rule {}.{}: {limits}\n",
            self.change.sign(),
            escape_line(&self.domain),
            escape_line(&self.rule)
        )
    }
}

/// The text with a final line feed.
fn with_line_feed(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_difference_is_printed_as_patches_and_then_rules() {
        let response = json!({
            "from": 1, "to": null, "problem": null,
            "files": [{"name": "edge.yaml", "change": "changed", "patch": "-a\n+b"}],
            "rules": [
                {"domain": "edge", "rule": "path", "change": "changed", "before": "5 per minute", "after": "6 per minute"},
                {"domain": "edge", "rule": "user", "change": "removed", "before": "unlimited", "after": null},
            ],
        });
        let difference: DiffResponse = serde_json::from_value(response).expect("a difference");
        let expected = "-a\n+b\n\n~ edge.yaml\n~ rule edge.path: 5 per minute -> 6 per minute\n- rule edge.user: unlimited\n";
        assert_eq!(difference.to_text(), expected);
        let none: DiffResponse =
            serde_json::from_value(json!({"files": [], "rules": []})).expect("a difference");
        assert_eq!(none.to_text(), "no difference\n");
    }
}
