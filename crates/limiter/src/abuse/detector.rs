//! Detector: adds the reports of all instances, and finds the keys that meet a rule.

use std::{mem, time::Duration};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use tollgate_core::descriptor::Entry;
use tollgate_rules::{AbuseMode, AbuseRule, AbuseTrigger, Domain, Lists, Rules};

use super::report::{InstanceReport, ReportedKey};
use crate::talkers::{OwnedEntry, key::KeyEntries};

/// Maximum number of keys that are watched for admitted requests.
pub(super) const MAX_WATCHED: usize = 1_024;
/// Maximum number of keys that are remembered without a report.
const MAX_REMEMBERED: usize = 16_384;
/// Time for which denials in a row are remembered without another one.
const RUN_MEMORY_MS: u64 = 600_000;
/// Denials in a row after which a key is watched, at most.
const MAX_UNWATCHED: u64 = 100;
/// Rounds until all instances watch a key: the next report publishes it, and theirs return it.
const WATCH_ROUNDS: u64 = 3;

/// A domain and the text of a key.
type KeyName = (Box<str>, Box<str>);

/// Name and trigger of an abuse rule.
type NamedTrigger = (Box<str>, AbuseTrigger);

/// State of the keys that were reported. Time is an argument, in milliseconds since any moment.
#[derive(Debug, Default)]
pub struct AbuseDetector {
    keys: HashMap<KeyName, KeyState, RandomState>,
    /// Names and triggers of the rules that the states are of, by domain.
    rules: HashMap<Box<str>, Vec<NamedTrigger>, RandomState>,
    /// Last report of each instance.
    sequences: HashMap<String, u64, RandomState>,
    round: u64,
    evaluated_ms: Option<u64>,
}

/// State of one key.
#[derive(Debug, Default)]
struct KeyState {
    /// For each rule of the domain.
    rules: Vec<RuleState>,
    /// When the key was last reported with a denied request.
    denied_ms: u64,
}

/// State of a key for one rule.
#[derive(Clone, Copy, Debug, Default)]
struct RuleState {
    /// Since when the key exceeds the rate.
    since_ms: Option<u64>,
    /// Denied requests since the last admitted one.
    run: u64,
    /// Round in which the key began to be watched.
    watched: Option<u64>,
}

/// Requests of one key on all instances.
#[derive(Clone, Copy, Debug, Default)]
struct FleetCounts {
    /// Denied requests in a thousand seconds.
    denied_rate: u64,
    /// Hits in a thousand seconds.
    hit_rate: u64,
    /// Denied requests in reports that were not seen before.
    denied: u64,
    is_admitted: bool,
}

/// A key that meets an abuse rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abuser {
    /// The domain.
    pub domain: String,
    /// The whole descriptor.
    pub descriptor: Vec<OwnedEntry>,
    /// Name of the rule.
    pub rule: String,
    /// Effect of the entry.
    pub mode: AbuseMode,
    /// Time for which a key is listed at first, at most, and after which one offence is forgiven.
    pub durations: [Duration; 3],
    /// The abuse, for people.
    pub evidence: String,
}

/// Reason why a key that meets a rule is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The allow list or the rule exempts it.
    Exempt,
    /// Its value is a range of addresses.
    Range,
}

/// Result of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected {
    /// The keys to list, one for each domain and descriptor.
    pub abusers: Vec<Abuser>,
    /// Domains and texts of the keys whose admitted requests all instances are to report.
    pub watched: Vec<(String, String)>,
    /// Keys that are not listed.
    pub refused: Vec<Refusal>,
}

impl AbuseDetector {
    /// Evaluates the latest reports at `now_ms`, and the lists at `wall_ms`, in milliseconds since 1970. After a gap of more
    /// than `max_gap_ms` since the last round, rates begin anew.
    pub fn evaluate(
        &mut self,
        now_ms: u64,
        wall_ms: u64,
        max_gap_ms: u64,
        reports: &[InstanceReport],
        (rules, lists): (&Rules, &Lists),
    ) -> Detected {
        self.round = self.round.saturating_add(1);
        let gap = self.evaluated_ms.replace(now_ms).map_or(0, |before| now_ms.saturating_sub(before));
        if gap > max_gap_ms {
            self.keys.clear();
        }
        self.forget_changed(rules);
        let counts = self.add_up(reports);
        // Rates must be exceeded in every round.
        for (name, state) in &mut self.keys {
            if !counts.contains_key(name) {
                state.rules.iter_mut().for_each(|rule| rule.since_ms = None);
            }
        }
        let mut detected = Detected::default();
        for (name, counts) in counts {
            let Some(domain) = rules.domain(&name.0).filter(|domain| !domain.abuse.is_empty()) else {
                continue;
            };
            self.evaluate_key(domain, &name, counts, (now_ms, wall_ms), lists, &mut detected);
        }
        self.forget(now_ms);
        detected.abusers.sort_unstable_by(|a, b| a.domain.cmp(&b.domain).then_with(|| a.rule.cmp(&b.rule)));
        detected.watched = self.watched();
        detected
    }

    /// Adds the reports up by key.
    fn add_up(&mut self, reports: &[InstanceReport]) -> HashMap<KeyName, FleetCounts, RandomState> {
        let mut counts: HashMap<KeyName, FleetCounts, RandomState> = HashMap::default();
        for InstanceReport { instance, report } in reports.iter().filter(|one| one.report.is_readable()) {
            let before = self.sequences.insert(instance.clone(), report.sequence);
            let is_new = before != Some(report.sequence);
            let rate = |count: u64| {
                count.saturating_mul(1_000_000).checked_div(report.interval_ms.max(1)).unwrap_or_default()
            };
            for ReportedKey(domain, text, denied, hits, is_admitted) in &report.keys {
                let sum = counts.entry((domain.as_str().into(), text.as_str().into())).or_default();
                sum.denied_rate = sum.denied_rate.saturating_add(rate(*denied));
                sum.hit_rate = sum.hit_rate.saturating_add(rate(*hits));
                if is_new {
                    sum.denied = sum.denied.saturating_add(*denied);
                    sum.is_admitted |= is_admitted;
                }
            }
        }
        self.sequences.retain(|instance, _| reports.iter().any(|one| one.instance == *instance));
        counts
    }

    fn evaluate_key(
        &mut self,
        domain: &Domain,
        name: &KeyName,
        counts: FleetCounts,
        (now_ms, wall_ms): (u64, u64),
        lists: &Lists,
        detected: &mut Detected,
    ) {
        let Some(descriptor) = KeyEntries::read(&name.1).whole() else { return };
        let entries: Vec<Entry<'_>> =
            descriptor.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect();
        let Some(rule) = domain.root.rule(&entries) else { return };
        let is_listed = lists.denying(&domain.name, &entries, wall_ms).is_some();
        let round = self.round;
        let state = self.keys.entry(name.clone()).or_default();
        state.rules.resize(domain.abuse.len(), RuleState::default());
        if counts.denied > 0 {
            state.denied_ms = now_ms;
        }
        if is_listed {
            state.end_runs();
        }
        let mut found: Option<Abuser> = None;
        for (abuse, state) in domain.abuse.iter().zip(&mut state.rules) {
            if is_listed || !abuse.is_of_one_client(rule, &entries) {
                continue;
            }
            let Some(evidence) = state.meets(abuse.trigger, counts, now_ms, round) else { continue };
            if let Some(refusal) = refusal(abuse, lists, &domain.name, &entries, wall_ms) {
                detected.refused.push(refusal);
                continue;
            }
            if found
                .as_ref()
                .is_some_and(|found| found.mode == AbuseMode::Enforce || found.mode == abuse.mode)
            {
                continue;
            }
            found = Some(Abuser {
                domain: domain.name.to_string(),
                descriptor: descriptor.clone(),
                rule: abuse.name.to_string(),
                mode: abuse.mode,
                durations: [abuse.duration, abuse.max_duration, abuse.forgive],
                evidence,
            });
        }
        detected.abusers.extend(found);
    }

    /// Drops the state of the keys of domains whose rules have changed: each begins anew.
    fn forget_changed(&mut self, rules: &Rules) {
        let with_abuse = rules.domains().filter(|domain| !domain.abuse.is_empty());
        let stated = with_abuse.map(|domain| {
            let triggers = domain.abuse.iter().map(|abuse| (abuse.name.clone(), abuse.trigger));
            (domain.name.clone(), triggers.collect())
        });
        let stated = stated.collect();
        if stated == self.rules {
            return;
        }
        let former = mem::replace(&mut self.rules, stated);
        self.keys.retain(|(domain, _), _| self.rules.get(domain) == former.get(domain));
    }

    /// Drops the state of keys that are no longer suspect.
    fn forget(&mut self, now_ms: u64) {
        self.keys.retain(|_, state| {
            let is_rate = state.rules.iter().any(|rule| rule.since_ms.is_some());
            let is_run = state.rules.iter().any(|rule| rule.run > 0 || rule.watched.is_some());
            is_rate || is_run && now_ms.saturating_sub(state.denied_ms) <= RUN_MEMORY_MS
        });
        if self.keys.len() > MAX_REMEMBERED {
            let mut times: Vec<u64> = self.keys.values().map(|state| state.denied_ms).collect();
            let excess = self.keys.len().saturating_sub(MAX_REMEMBERED);
            let oldest = *times.select_nth_unstable(excess).1;
            self.keys.retain(|_, state| state.denied_ms >= oldest);
        }
    }

    /// Returns the keys to watch. The runs of those that have no room begin anew, because instances may admit them unseen.
    fn watched(&mut self) -> Vec<(String, String)> {
        let all = self.keys.iter_mut().filter(|(_, state)| state.is_watched());
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| b.1.longest_run().cmp(&a.1.longest_run()).then_with(|| a.0.cmp(b.0)));
        for (_, state) in all.iter_mut().skip(MAX_WATCHED) {
            // A rule for which the key is not watched yet does not depend on it.
            state.rules.iter_mut().filter(|rule| rule.watched.is_some()).for_each(RuleState::end_run);
        }
        let watched = all.into_iter().take(MAX_WATCHED);
        watched.map(|((domain, text), _)| (domain.to_string(), text.to_string())).collect()
    }
}

impl KeyState {
    fn is_watched(&self) -> bool {
        self.rules.iter().any(|rule| rule.watched.is_some())
    }

    fn longest_run(&self) -> u64 {
        self.rules.iter().map(|rule| rule.run).max().unwrap_or_default()
    }

    fn end_runs(&mut self) {
        self.rules.iter_mut().for_each(RuleState::end_run);
    }
}

impl RuleState {
    const fn end_run(&mut self) {
        (self.run, self.watched) = (0, None);
    }

    /// The abuse for people, if the key meets the trigger, which then begins anew.
    fn meets(
        &mut self,
        trigger: AbuseTrigger,
        counts: FleetCounts,
        now_ms: u64,
        round: u64,
    ) -> Option<String> {
        let (is_over, period, what, rate) = match trigger {
            AbuseTrigger::DeniedPerSecond { rate, period } => {
                (exceeds(counts.denied_rate, rate), period, "denied", counts.denied_rate)
            }
            AbuseTrigger::HitsPerSecond { rate, period } => {
                (exceeds(counts.hit_rate, rate), period, "hits", counts.hit_rate)
            }
            AbuseTrigger::DeniedInARow { count } => return self.meets_run(u64::from(count), counts, round),
        };
        if !is_over {
            self.since_ms = None;
            return None;
        }
        let began = *self.since_ms.get_or_insert(now_ms);
        let lasted = now_ms.saturating_sub(began);
        if u128::from(lasted) < period.as_millis() {
            return None;
        }
        self.since_ms = Some(now_ms);
        Some(format!("{} {what}/s for {}s", rate / 1_000, lasted / 1_000))
    }

    fn meets_run(&mut self, count: u64, counts: FleetCounts, round: u64) -> Option<String> {
        if counts.is_admitted {
            (self.run, self.watched) = (0, None);
            return None;
        }
        self.run = self.run.saturating_add(counts.denied);
        match self.watched {
            None => {
                // Other instances may admit the key unseen until they watch it; denials count from then on.
                if self.run >= (count / 4).clamp(1, MAX_UNWATCHED) {
                    (self.run, self.watched) = (0, Some(round));
                }
                None
            }
            Some(begun) if round.saturating_sub(begun) < WATCH_ROUNDS => {
                self.run = 0;
                None
            }
            Some(_) if self.run >= count => {
                let run = self.run;
                (self.run, self.watched) = (0, None);
                Some(format!("{run} denied in a row"))
            }
            Some(_) => None,
        }
    }
}

/// Whether a rate in a thousand seconds reaches one in a second.
fn exceeds(rate: u64, threshold: u32) -> bool {
    rate >= u64::from(threshold).saturating_mul(1_000)
}

fn refusal(
    abuse: &AbuseRule,
    lists: &Lists,
    domain: &str,
    entries: &[Entry<'_>],
    wall_ms: u64,
) -> Option<Refusal> {
    if abuse.exempts(entries) || lists.allowing(domain, entries, wall_ms).is_some() {
        return Some(Refusal::Exempt);
    }
    abuse.is_of_range(entries).then_some(Refusal::Range)
}
