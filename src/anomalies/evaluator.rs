//! Evaluation of the fleet's traffic, by the instance that holds the lease.

use tollgate_anomaly::{
    AnomalyEnd, AnomalyKind, Counts, Sensitivity, Series, Traffic, Transition, Watch, WatchEvent,
};
use tollgate_control::{
    Baselines, Control, ControlError, EventKind, EventPhase, MinuteTotals, OperatorEvent,
};
use tollgate_limiter::ActiveRules;

use super::{
    limits::Limits,
    metrics,
    names::{key_of, name_of},
    view::{AnomalyRecord, AnomalyView},
};

/// Baselines and anomalies of the fleet.
#[derive(Debug)]
pub(super) struct Evaluator {
    sensitivity: Sensitivity,
    watch: Watch,
    limits: Limits,
    view: AnomalyView,
    /// The hour in which baselines were last stored.
    stored_hour: Option<u64>,
}

impl Evaluator {
    /// Continues with what the store has.
    pub(super) async fn load(control: &Control, sensitivity: Sensitivity) -> Result<Self, ControlError> {
        let view = control.anomalies().await?;
        let baselines = control.baselines().await?;
        Ok(Self::new(sensitivity, view.as_deref(), &baselines))
    }

    fn new(sensitivity: Sensitivity, view: Option<&str>, baselines: &Baselines) -> Self {
        // What is unreadable, as that of another release, is learned again.
        let mut view: AnomalyView = view.and_then(|view| serde_json::from_str(view).ok()).unwrap_or_default();
        let series =
            baselines.iter().filter_map(|(name, record)| key_of(name).zip(Series::from_record(record)));
        let mut watch = Watch::new(series);
        for (key, anomaly) in view.active.iter().filter_map(AnomalyRecord::anomaly) {
            watch.resume(&key, &anomaly);
        }
        view.active.clear();
        Self { sensitivity, watch, limits: Limits::default(), view, stored_hour: None }
    }

    /// The first minute to evaluate until `minute`: the one after the last, of the oldest that the store has.
    pub(super) fn next(&self, minute: u64, max: u64) -> u64 {
        let oldest = minute.saturating_sub(max.saturating_sub(1));
        let evaluated = self.view.evaluated_at_ms / 60_000;
        self.watch
            .last()
            .map_or(evaluated, |last| last.saturating_add(1))
            .clamp(oldest, minute.saturating_add(1))
    }

    /// Evaluates a minute; `None` is a gap. Returns the events for operators.
    pub(super) fn evaluate(
        &mut self,
        minute: u64,
        traffic: Option<&Traffic>,
        rules: &ActiveRules,
    ) -> Vec<OperatorEvent> {
        self.watch.set_limits(self.limits.of(rules));
        self.watch.set_present(|key| self.limits.has(key));
        let events = self.watch.observe(minute, traffic, self.sensitivity);
        metrics::minute(traffic.is_some());
        self.view.add_ended(minute, &events);
        let status = self.watch.status();
        self.view.update(minute, traffic.is_some(), status, self.watch.active());
        metrics::series(status);
        metrics::active(self.watch.active().map(|(key, anomaly)| (key.clone(), anomaly.kind)).collect());
        for WatchEvent { transition, .. } in events.iter().filter(|event| event.transition.end.is_none()) {
            metrics::begun(transition.anomaly.kind);
        }
        events.iter().map(operator_event).collect()
    }

    pub(super) const fn view(&self) -> &AnomalyView {
        &self.view
    }

    /// Stores the view, and once an hour the baselines.
    pub(super) async fn store(&mut self, control: &Control) -> Result<(), ControlError> {
        let view =
            serde_json::to_string(&self.view).map_err(|error| ControlError::Malformed(error.to_string()))?;
        control.store_anomalies(view).await?;
        let hour = self.watch.last().map(|minute| minute / 60);
        let before = self.stored_hour.replace(hour.unwrap_or_default());
        if before.is_some() && before != self.stored_hour {
            let baselines: Baselines =
                self.watch.series().map(|(key, series)| (name_of(key), series.to_record())).collect();
            let dropped: Vec<String> = self.watch.take_dropped().iter().map(name_of).collect();
            control.store_baselines(&baselines, &dropped).await.inspect_err(|_| self.stored_hour = before)?;
        }
        Ok(())
    }
}

/// The traffic of a minute, unless an instance did not report it.
pub(super) fn traffic_of(totals: MinuteTotals) -> Option<Traffic> {
    if totals.reporters == 0 || totals.missing > 0 {
        return None;
    }
    let counts = totals.counts.into_iter();
    let counts = counts.filter_map(|(name, (hits, denied))| Some((key_of(&name)?, Counts { hits, denied })));
    Some(Traffic(counts.collect()))
}

/// An event for operators.
#[allow(clippy::float_arithmetic)] // Rounded for people.
fn operator_event(event: &WatchEvent) -> OperatorEvent {
    let WatchEvent { key, transition: Transition { anomaly, end } } = event;
    let is_share = anomaly.kind == AnomalyKind::DeniedShareHigh;
    let what = if key.rule.is_empty() { "domain" } else { "rule" };
    let [observed, low, high] = [anomaly.observed, anomaly.low, anomaly.high]
        .map(|value| if is_share { format!("{:.1} %", value * 100.0) } else { format!("{value:.0}") });
    let unit = if is_share { "denied hits" } else { "hits per minute" };
    let message = match (end, anomaly.kind) {
        (None, AnomalyKind::RateDrift) => {
            format!("The {what} has drifted to {observed} {unit} on average; {low} were expected.")
        }
        (None, _) => format!("The {what} has {observed} {unit}; usual are {low} to {high}."),
        (Some(AnomalyEnd::Ended), _) => format!("The {what} has a usual rate of {unit} again: {observed}."),
        (Some(AnomalyEnd::Removed), _) => format!("The {what} was removed."),
        (Some(AnomalyEnd::Accepted), _) => {
            format!("The {what} has had {observed} {unit} for a day, which are expected from now on.")
        }
    };
    OperatorEvent {
        kind: event_kind(anomaly.kind),
        phase: if end.is_none() { EventPhase::Began } else { EventPhase::Ended },
        domain: key.domain.to_string(),
        rule: (!key.rule.is_empty()).then(|| key.rule.to_string()),
        key: None,
        message,
        figures: figures(is_share, [anomaly.observed, anomaly.expected, anomaly.low, anomaly.high]),
    }
}

#[allow(clippy::float_arithmetic)] // Rounded for people.
fn figures(is_share: bool, values: [f64; 4]) -> Vec<(&'static str, u64)> {
    let (names, factor) = match is_share {
        true => (["observed_percent", "expected_percent", "low_percent", "high_percent"], 100.0),
        false => (["observed_per_minute", "expected_per_minute", "low_per_minute", "high_per_minute"], 1.0),
    };
    // Values are finite and not negative; a conversion saturates.
    names.into_iter().zip(values).map(|(name, value)| (name, (value * factor).round() as u64)).collect()
}

const fn event_kind(kind: AnomalyKind) -> EventKind {
    match kind {
        AnomalyKind::RateHigh => EventKind::RateHigh,
        AnomalyKind::RateLow => EventKind::RateLow,
        AnomalyKind::RateDrift => EventKind::RateDrift,
        AnomalyKind::DeniedShareHigh => EventKind::DeniedShareHigh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tollgate_anomaly::SeriesKey;
    use tollgate_rules::config::{Options, load_files};

    const DAY: u64 = 1_440;

    fn traffic(rules: &[(&str, u64, u64)]) -> Traffic {
        let key = |rule: &str| SeriesKey { domain: "edge".into(), rule: rule.into() };
        Traffic(
            rules
                .iter()
                .map(|(rule, hits, denied)| (key(rule), Counts { hits: *hits, denied: *denied }))
                .collect(),
        )
    }

    /// Evaluates the minutes, and returns the events with their kinds and phases.
    fn run(
        evaluator: &mut Evaluator,
        minutes: std::ops::Range<u64>,
        traffic: Option<&Traffic>,
    ) -> Vec<OperatorEvent> {
        let rules = rules(&["api_key", "path"]);
        minutes.flat_map(|minute| evaluator.evaluate(minute, traffic, &rules)).collect()
    }

    fn rules(keys: &[&str]) -> ActiveRules {
        let limit = "rate_limit: {unit: minute, requests_per_unit: 9}";
        let rules: String = keys.iter().map(|key| format!("- {{key: {key}, {limit}}}\n")).collect();
        let text = format!("domain: edge\ndescriptors:\n{rules}").into_bytes();
        let loaded = load_files([("rules.yaml".to_owned(), text)], Options::default()).expect("valid");
        let active = ActiveRules::default();
        active.replace(Arc::new(loaded.rules));
        active
    }

    fn kinds(events: &[OperatorEvent]) -> Vec<(&'static str, &'static str, Option<&str>)> {
        events.iter().map(|event| (event.kind.name(), event.phase.name(), event.rule.as_deref())).collect()
    }

    /// The evaluator of another instance, by what this one has stored.
    fn successor(evaluator: &Evaluator) -> Evaluator {
        let view = serde_json::to_string(evaluator.view()).expect("serialisable");
        let baselines = evaluator.watch.series().map(|(key, series)| (name_of(key), series.to_record()));
        Evaluator::new(Sensitivity::Medium, Some(&view), &baselines.collect())
    }

    #[test]
    fn an_anomaly_is_an_event_and_in_the_view_and_another_instance_continues_it() {
        let mut evaluator = Evaluator::new(Sensitivity::Medium, None, &Baselines::new());
        let usual = traffic(&[("", 1_500, 15), ("api_key", 1_000, 10), ("path", 500, 5)]);
        assert_eq!(run(&mut evaluator, 0..9 * DAY, Some(&usual)), []);
        assert_eq!((evaluator.view().learned, evaluator.view().active.len()), (3, 0));
        let unusual = traffic(&[("", 1_500, 15), ("api_key", 9_000, 10), ("path", 500, 400)]);
        let events = run(&mut evaluator, 9 * DAY..9 * DAY + 10, Some(&unusual));
        let expected =
            [("rate_high", "began", Some("api_key")), ("denied_share_high", "began", Some("path"))];
        assert_eq!(kinds(&events), expected);
        assert!(events[0].message.starts_with("The rule has "), "{}", events[0].message);
        assert!(events[0].figures.contains(&("expected_per_minute", 1_000)), "{:?}", events[0].figures);
        assert!(events[1].figures.contains(&("expected_percent", 1)), "{:?}", events[1].figures);

        let mut other = successor(&evaluator);
        assert_eq!(other.next(9 * DAY + 12, 8), 9 * DAY + 10, "the first that was not evaluated");
        assert_eq!(other.next(9 * DAY + 99, 8), 9 * DAY + 92, "older ones are lost");
        assert_eq!(run(&mut other, 9 * DAY + 10..9 * DAY + 60, Some(&unusual)), [], "nothing new");
        assert_eq!(other.view().active.len(), 2);
        assert_eq!(other.view().active[0].since_ms, evaluator.view().active[0].since_ms);
        let events = run(&mut other, 9 * DAY + 60..9 * DAY + 180, Some(&usual));
        assert_eq!(kinds(&events).iter().filter(|(_, phase, _)| *phase == "ended").count(), 2, "{events:?}");
        assert_eq!((other.view().active.len(), other.view().recent.len()), (0, 2));
        assert!(other.view().recent.iter().all(|record| record.ended_at_ms.is_some() && !record.is_accepted));
    }

    #[test]
    fn an_outage_of_the_store_is_no_drop() {
        let mut evaluator = Evaluator::new(Sensitivity::Medium, None, &Baselines::new());
        let usual = traffic(&[("", 1_000, 0)]);
        run(&mut evaluator, 0..9 * DAY, Some(&usual));
        assert_eq!(run(&mut evaluator, 9 * DAY..9 * DAY + 90, None), []);
        assert!(!evaluator.view().is_complete);
        assert_eq!(run(&mut evaluator, 9 * DAY + 90..9 * DAY + 300, Some(&usual)), []);
        let events = run(&mut evaluator, 9 * DAY + 300..9 * DAY + 310, Some(&traffic(&[])));
        assert_eq!(kinds(&events), [("rate_low", "began", None)]);
    }

    #[test]
    fn a_rule_that_is_removed_has_no_drop_and_ends_its_anomaly() {
        let mut evaluator = Evaluator::new(Sensitivity::Medium, None, &Baselines::new());
        let usual = traffic(&[("", 1_500, 15), ("api_key", 1_000, 10), ("path", 500, 5)]);
        run(&mut evaluator, 0..9 * DAY, Some(&usual));
        let unusual = traffic(&[("", 1_500, 15), ("api_key", 1_000, 10), ("path", 500, 400)]);
        let events = run(&mut evaluator, 9 * DAY..9 * DAY + 10, Some(&unusual));
        assert_eq!(kinds(&events), [("denied_share_high", "began", Some("path"))]);
        let (rest, others) = (traffic(&[("", 1_500, 15), ("api_key", 1_500, 15)]), rules(&["api_key"]));
        let later = 9 * DAY + 10..9 * DAY + 200;
        let events: Vec<_> =
            later.flat_map(|minute| evaluator.evaluate(minute, Some(&rest), &others)).collect();
        let of_path: Vec<_> = events.iter().filter(|event| event.rule.as_deref() == Some("path")).collect();
        assert_eq!(of_path.len(), 1, "{of_path:?}");
        assert_eq!((of_path[0].phase.name(), &*of_path[0].message), ("ended", "The rule was removed."));
        assert!(evaluator.view().active.iter().all(|active| active.rule.as_deref() != Some("path")));
    }

    #[test]
    fn a_minute_that_an_instance_did_not_report_is_a_gap() {
        let totals = |reporters, missing| MinuteTotals {
            reporters,
            missing,
            counts: [("4:edge:a".to_owned(), (5, 1)), ("broken".to_owned(), (1, 1))].into(),
        };
        assert_eq!(traffic_of(totals(3, 0)), Some(traffic(&[("a", 5, 1)])));
        assert_eq!(traffic_of(totals(2, 1)), None);
        assert_eq!(traffic_of(totals(0, 0)), None, "Redis was away");
    }

    #[test]
    fn what_is_unreadable_is_learned_again() {
        let broken = Baselines::from([("4:edge:a".to_owned(), vec![1, 2]), ("x".to_owned(), Vec::new())]);
        let evaluator = Evaluator::new(Sensitivity::Medium, Some("{\"active\":7}"), &broken);
        assert_eq!((evaluator.watch.series().len(), evaluator.view().evaluated_at_ms), (0, 0));
    }
}
