//! `GET /versions/{n}/diff` and `POST /diff`: differences between sets of files, and between the rules in them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use similar::{Algorithm, TextDiff};
use tollgate_control::Files;
use tollgate_core::algorithm::Charging;
use tollgate_rules::{Domain, Rule, Rules, Weights, config::Options, limit_text};

use super::Api;
use super::extract::{Integer, JsonBody, PathParam, QueryParams, VersionSelector};
use super::limits::{self, ApiPermit, Lane};
use super::response::{self, ApiResult};
use super::versions::{self, DraftFiles, RuleFiles};
use crate::caller::Caller;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffQuery {
    against: Option<VersionSelector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DraftDiffRequest {
    files: DraftFiles,
    against: Option<Integer>,
}

/// Differences between two sets of files.
#[derive(Debug, Serialize, Deserialize)]
pub struct DiffResponse {
    from: Option<u64>,
    to: Option<u64>,
    pub files: Vec<FilePatch>,
    pub rules: Vec<RuleChange>,
    /// Reason that the rules are not compared, if they are not.
    pub problem: Option<String>,
}

/// Whether something was added, removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Removed,
    Changed,
}

impl Change {
    /// The change of something that existed before, after, or both.
    const fn of(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, _) => Self::Added,
            (true, false) => Self::Removed,
            (true, true) => Self::Changed,
        }
    }
}

/// Compares a version with another one, by default the one that it is based on.
pub(super) async fn versions(
    api: Api,
    caller: Caller,
    PathParam(to): PathParam<VersionSelector>,
    QueryParams(query): QueryParams<DiffQuery>,
) -> ApiResult {
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let to = versions::read(&api, lane, to).await?;
    let based_on = to.version.as_ref().and_then(|version| version.based_on);
    let from = match query.against.or(based_on.map(VersionSelector::Number)) {
        Some(from) => versions::read(&api, lane, from).await?,
        // The first version is based on nothing.
        None => RuleFiles { version: None, files: Files::new() },
    };
    respond(&api, lane, from, to, permit).await
}

/// Compares files of the request with a version, by default the current one.
pub(super) async fn draft(api: Api, caller: Caller, body: JsonBody<DraftDiffRequest>) -> ApiResult {
    let JsonBody(request, _permit) = body;
    let permit = api.limits.large_response().await?;
    let lane = Lane::Read(&caller);
    let against =
        request.against.map_or(VersionSelector::Current, |Integer(number)| VersionSelector::Number(number));
    let from = versions::read(&api, lane, against).await?;
    let to = RuleFiles { version: None, files: request.files.0 };
    respond(&api, lane, from, to, permit).await
}

async fn respond(api: &Api, lane: Lane<'_>, from: RuleFiles, to: RuleFiles, permit: ApiPermit) -> ApiResult {
    let options = api.parts.options;
    let text = api.limits.load(lane, move || response::to_vec(&compare(&from, &to, options))).await??;
    Ok(limits::large_text(text, permit))
}

fn compare(from: &RuleFiles, to: &RuleFiles, options: Options) -> DiffResponse {
    let patches = patches(&from.files, &to.files);
    let load = |files: &Files| versions::load(files, options).map(|loaded| loaded.rules);
    let compared = load(&from.files).and_then(|from| Ok(changes(&from, &load(&to.files)?)));
    let (rules, problem) = match compared {
        Ok(rules) => (rules, None),
        Err(invalid) => (Vec::new(), Some(invalid.report)),
    };
    DiffResponse { from: from.number(), to: to.number(), files: patches, rules, problem }
}

/// Time limit for finding the shortest patches of all files; after it, longer ones are accepted.
const SHORTEST_PATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// Context lines around a change.
const CONTEXT_LINES: usize = 3;

/// The difference of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePatch {
    pub name: String,
    pub change: Change,
    /// The difference, in the format of `diff -u`.
    pub patch: String,
}

/// Patches of the files that differ, sorted by name. Slow for large files.
fn patches(from: &Files, to: &Files) -> Vec<FilePatch> {
    let mut names: Vec<&String> = from.keys().chain(to.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differs = names.into_iter().filter(|name| from.get(*name) != to.get(*name));
    let deadline = Instant::now().checked_add(SHORTEST_PATCH_TIMEOUT);
    differs.map(|name| patch(name, from.get(name), to.get(name), deadline)).collect()
}

fn patch(name: &str, from: Option<&String>, to: Option<&String>, deadline: Option<Instant>) -> FilePatch {
    let side = |side: &str, text: Option<&String>| match text {
        Some(_) => format!("{side}/{name}"),
        None => "/dev/null".to_owned(),
    };
    let (before, after) = (from.map_or("", String::as_str), to.map_or("", String::as_str));
    let mut config = TextDiff::configure();
    config.algorithm(Algorithm::Myers);
    if let Some(deadline) = deadline {
        config.deadline(deadline);
    }
    let diff = config.diff_lines(before, after);
    let patch = diff
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&side("a", from), &side("b", to))
        .to_string();
    FilePatch { name: name.to_owned(), change: Change::of(from.is_some(), to.is_some()), patch }
}

/// Maximum number of values with a changed weight that are shown.
const MAX_SHOWN_VALUES: usize = 8;

/// The difference of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    pub domain: String,
    pub rule: String,
    pub change: Change,
    /// Text of its limit before.
    pub before: Option<String>,
    /// Text of its limit after.
    pub after: Option<String>,
}

/// Texts of limits, by domain and path.
type LimitTexts<'r> = BTreeMap<(String, String), LimitText<'r>>;

/// Text of a limit, and the weights that it may not list all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LimitText<'r> {
    shown: String,
    weights: Vec<&'r Weights>,
}

/// The rules whose limits differ, sorted by domain and path.
fn changes(from: &Rules, to: &Rules) -> Vec<RuleChange> {
    let (mut before, mut after) = (limit_texts(from), limit_texts(to));
    let mut names: Vec<(String, String)> = before.keys().chain(after.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    let changes = names.into_iter().filter_map(|name| {
        let (before, after) = (before.remove(&name), after.remove(&name));
        let change = Change::of(before.is_some(), after.is_some());
        let (domain, rule) = name;
        if before == after {
            return None;
        }
        let hidden =
            before.as_ref().zip(after.as_ref()).and_then(|(before, after)| hidden_change(before, after));
        let [before, mut after] = [before, after].map(|limit| limit.map(|limit| limit.shown));
        if let (Some(after), Some(hidden)) = (&mut after, hidden) {
            after.push_str(&hidden);
        }
        Some(RuleChange { domain, rule, change, before, after })
    });
    changes.collect()
}

/// The values whose weights differ, where the texts list none of them.
fn hidden_change(before: &LimitText<'_>, after: &LimitText<'_>) -> Option<String> {
    if before.shown != after.shown {
        return None;
    }
    let weights = |limit: &LimitText<'_>| -> BTreeSet<(String, u32)> {
        let all = limit.weights.iter().flat_map(|weights| weights.sorted());
        all.map(|(value, weight)| (value.to_owned(), weight)).collect()
    };
    let (before, after) = (weights(before), weights(after));
    let changed: BTreeSet<_> = before.symmetric_difference(&after).map(|(value, _)| value).collect();
    let shown: Vec<_> = changed.iter().take(MAX_SHOWN_VALUES).map(|value| format!("{value:?}")).collect();
    let others = if changed.len() > shown.len() { " and others" } else { "" };
    (!shown.is_empty()).then(|| format!(", changed weights of {}{others}", shown.join(", ")))
}

fn limit_texts(rules: &Rules) -> LimitTexts<'_> {
    let mut texts = LimitTexts::new();
    for (domain, rule) in rules.rules_of_domains() {
        let limit = texts.entry((domain.name.to_string(), rule.path())).or_default();
        if !limit.shown.is_empty() {
            // Two nodes of the tree may have the same path.
            limit.shown.push_str("; ");
        }
        limit.shown.push_str(&text(domain, rule));
        limit.weights.extend(rule.weights.as_deref());
    }
    texts
}

/// The limit of a rule with all its options, as text.
fn text(domain: &Domain, rule: &Rule) -> String {
    let mut text = limit_text(domain, rule);
    let mut add = |part: &str, value: &str| {
        text.push_str(", ");
        text.push_str(part);
        text.push_str(value);
    };
    if domain.charging == Charging::AllOrNone {
        add("atomic", "");
    }
    if !rule.name.is_empty() {
        add("name ", &rule.name);
    }
    if !rule.replaces.is_empty() {
        add("replaces ", &rule.replaces.join(" and "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::rules;

    fn some(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn each_file_that_differs_has_a_patch() {
        let from = some(&[("a.yaml", "1\n2\n"), ("deleted.yaml", "x\n"), ("same.yaml", "y")]);
        let to = some(&[("a.yaml", "1\n3\n"), ("new.yaml", "z\n"), ("same.yaml", "y")]);
        let patches = patches(&from, &to);
        let changes: Vec<_> = patches.iter().map(|patch| (&*patch.name, patch.change)).collect();
        assert_eq!(
            changes,
            [("a.yaml", Change::Changed), ("deleted.yaml", Change::Removed), ("new.yaml", Change::Added)]
        );
        assert_eq!(patches[0].patch, "--- a/a.yaml\n+++ b/a.yaml\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n");
        assert!(patches[1].patch.starts_with("--- a/deleted.yaml\n+++ /dev/null\n"));
        assert!(patches[2].patch.starts_with("--- /dev/null\n+++ b/new.yaml\n"));
    }

    #[test]
    fn files_with_nothing_in_common_are_compared_in_bounded_time() {
        let lines = |of: &str| (0..20_000).map(|at| format!("{of} {at}\n")).collect::<String>();
        let many = |of: &str| Files::from_iter((0..20).map(|at| (format!("{at}.yaml"), lines(of))));
        let started = Instant::now();
        let patches = patches(&many("old"), &many("new"));
        assert_eq!(patches.len(), 20);
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }

    #[test]
    fn rules_are_compared_by_the_texts_of_their_limits() {
        let rule = |key: &str, limit: &str| format!("- {{key: {key}, rate_limit: {{{limit}}}}}\n");
        let same = rule("same", "unit: second, requests_per_unit: 1");
        let bucket = "unit: minute, requests_per_unit: 5, algorithm: token_bucket, burst: ";
        let before = format!(
            "domain: d\ndescriptors:\n{same}{}{}",
            rule("deleted", "unlimited: true"),
            rule("plan", &format!("{bucket}5"))
        );
        let after = format!(
            "domain: d\ndescriptors:\n{same}{}{}{}",
            rule("new", "unit: hour, requests_per_unit: 2, retry_after_spread: 1m"),
            rule("plan", &format!("{bucket}9")),
            rule("window", "unit: hour, requests_per_unit: 2, overdraft: true, carry: true")
        );
        let found: Vec<_> = changes(&rules(&before), &rules(&after))
            .into_iter()
            .map(|found| (found.rule, found.change, found.before, found.after))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        let bucket = "5 per minute, token_bucket";
        assert_eq!(
            found,
            [
                ("deleted".to_owned(), Change::Removed, text("unlimited"), None),
                (
                    "new".to_owned(),
                    Change::Added,
                    None,
                    text("2 per hour, fixed_window, retry_after_spread 60s")
                ),
                ("plan".to_owned(), Change::Changed, text(bucket), text(&format!("{bucket}, burst 9"))),
                (
                    "window".to_owned(),
                    Change::Added,
                    None,
                    text("2 per hour, fixed_window, overdraft, carry, max_debt 2")
                ),
            ]
        );
    }

    #[test]
    fn changed_weights_are_a_change_however_many_there_are() {
        let rule = |weights: &str| {
            let limit = "rate_limit: {unit: day, requests_per_unit: 5}";
            rules(&format!("domain: d\ndescriptors:\n- {{key: model, weight: {{{weights}}}, {limit}}}\n"))
        };
        let texts = |from: &str, to: &str| {
            let found = changes(&rule(from), &rule(to)).pop();
            found.map(|change| (change.before.unwrap_or_default(), change.after.unwrap_or_default()))
        };
        let text = |weights: &str| format!("5 per day, fixed_window, weight {{{weights}}}");
        assert_eq!(texts("large: 3, '*': 1", "large: 3, '*': 1"), None);
        let expected = (text("large 3, others 1"), text("large 30, small 0, others 2"));
        assert_eq!(texts("large: 3, '*': 1", "small: 0, large: 30, '*': 2"), Some(expected));
        let many = |weight: usize| {
            (0..9).map(|value| format!("v{value}: {}, ", value.min(weight))).collect::<String>() + "'*': 1"
        };
        let same = text("9 values, others 1");
        let changed = format!("{same}, changed weights of \"v6\", \"v7\", \"v8\"");
        assert_eq!(texts(&many(5), &many(6)), Some((same, changed)));
    }
}
