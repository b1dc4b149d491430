//! Compilation of `load_shedding`.

use std::{rc::Rc, sync::Arc, time::Duration};

use tollgate_core::{SyncMode, duration::parse_micros, shedding::SheddingPolicy};

use super::{budget::Budget, descriptor::Compiler};
use crate::{
    Derived, Limit, OnShareExhausted, Rollout, Rule, Scope, Segment, Shedding, UTILIZATION_KEY, Value,
    config::{
        problem::Path,
        raw::{Field, Ratio, RawDescriptor, RawShedding, Stated},
        reader::excerpt,
        yaml::Position,
    },
};

/// Key of a request's priority where none is stated.
const DEFAULT_PRIORITY_KEY: &str = "priority";

/// Range of `half_life`. Reports arrive late and are read twice a second, so nothing shorter is stable.
const HALF_LIVES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Range of `stale_after`.
const STALE_TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// Range of `target`: it must be possible to be above it.
const MAX_TARGET: f64 = 0.95;

/// Compiles a rule that sheds; `None` if it is invalid.
pub(super) fn rule(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    stated: &Stated<RawShedding>,
    segments: &[Segment],
    path: &Path<'_>,
) -> Option<Arc<Rule>> {
    compiler.charge_path(raw, segments, path)?;
    let own_path = path.key("load_shedding");
    let policy = policy(compiler, stated, &own_path);
    let priority_key = priority_key(compiler, &stated.value, &own_path);
    check_beside(compiler, raw, segments, path);
    warn_of_hidden_signals(compiler, &raw.descriptors, priority_key.as_deref(), path);
    check_place(compiler, raw, stated.at, segments, &own_path)?;
    let shedding = Shedding::new(policy?, priority_key?);
    Some(Arc::new(rule_of(compiler, raw, segments, shedding)))
}

/// Checks that the descriptor is one that may shed, and one of not too many.
fn check_place(
    compiler: &mut Compiler<'_>,
    raw: &RawDescriptor,
    at: Position,
    segments: &[Segment],
    own_path: &Path<'_>,
) -> Option<()> {
    if raw.is_limited() {
        let key = if raw.rate_limit.is_present() { "rate_limit" } else { "rate_limits" };
        let message =
            format!("contradicts `{key}`; expected a descriptor of its own, which the request carries too");
        compiler.error(at, own_path, message);
        return None;
    }
    if compiler.budget.charge_shedding().is_err() {
        let most = Budget::shedding_rules();
        let message =
            format!("is one of too many; expected at most {most} in all domains, each for a service");
        compiler.error(at, own_path, message);
        return None;
    }
    let open = segments.iter().find(|segment| segment.value == Value::Open);
    if let Some(segment) = open {
        let key = excerpt(&segment.key);
        let message = format!(
            "the key `{key}` has no value, and all of its values would share one utilization; expected a `value` for \
             each service"
        );
        compiler.error(at, own_path, message);
        return None;
    }
    Some(())
}

fn rule_of(compiler: &Compiler<'_>, raw: &RawDescriptor, segments: &[Segment], shedding: Shedding) -> Rule {
    Rule {
        limit: Limit::Unlimited,
        shedding: Some(Box::new(shedding)),
        sync: SyncMode::Strict,
        overdraft: false,
        on_store_error: None,
        degraded_limit: None,
        ban: None,
        notify: None,
        weights: None,
        scope: Scope::Regional,
        on_share_exhausted: OnShareExhausted::Deny,
        retry_after_spread: None,
        name: Box::default(),
        replaces: Box::default(),
        shadow_mode: raw.shadow_mode.or_default(),
        quota_mode: false,
        detailed_metric: false,
        metadata: None,
        segments: segments.into(),
        origin: ((**compiler.file).into(), raw.at.line()),
        rollout: Rollout::default(),
        stated: None,
        part: None,
        derived: Derived::default(),
    }
}

fn policy(
    compiler: &mut Compiler<'_>,
    Stated { at, value: raw }: &Stated<RawShedding>,
    path: &Path<'_>,
) -> Option<SheddingPolicy> {
    let target = match &raw.target {
        Field::Invalid => None,
        Field::Absent => {
            let message = "has no `target`; expected the utilization to aim at, such as 80%";
            compiler.error(*at, path, message);
            None
        }
        Field::Stated(Stated { value: Ratio(target), .. }) if (0.05..=MAX_TARGET).contains(target) => {
            Some(*target)
        }
        Field::Stated(stated) => {
            compiler.error(stated.at, &path.key("target"), "is out of range; expected 5% to 95%");
            None
        }
    };
    let floor = match &raw.floor {
        Field::Invalid => None,
        Field::Absent => Some(SheddingPolicy::DEFAULT_FLOOR),
        Field::Stated(Stated { value: Ratio(floor), .. }) if (0.001..=1.0).contains(floor) => Some(*floor),
        Field::Stated(stated) => {
            let message =
                "is out of range; expected 0.1% to 100%: with nothing passing, nothing would report";
            compiler.error(stated.at, &path.key("floor"), message);
            None
        }
    };
    let half_life = (&raw.half_life, SheddingPolicy::DEFAULT_HALF_LIFE, HALF_LIVES);
    let half_life = duration(compiler, half_life, &path.key("half_life"));
    let stale_after = (&raw.stale_after, SheddingPolicy::DEFAULT_STALE_AFTER, STALE_TIMES);
    let stale_after = duration(compiler, stale_after, &path.key("stale_after"));
    Some(SheddingPolicy { target: target?, half_life: half_life?, floor: floor?, stale_after: stale_after? })
}

/// Reads a duration between the least and the greatest one, else the default. `None` if it is invalid.
fn duration(
    compiler: &mut Compiler<'_>,
    (field, default, (least, greatest)): (&Field<Rc<str>>, Duration, (Duration, Duration)),
    path: &Path<'_>,
) -> Option<Duration> {
    let stated = match field {
        Field::Invalid => return None,
        Field::Absent => return Some(default),
        Field::Stated(stated) => stated,
    };
    let message = match parse_micros(&stated.value) {
        Ok(duration) if (least..=greatest).contains(&duration) => return Some(duration),
        Ok(_) => format!("`{}` is out of range; expected {least:?} to {greatest:?}", stated.value),
        Err(expected) => format!("`{}` is not a duration; {expected}", excerpt(&stated.value)),
    };
    compiler.error(stated.at, path, message);
    None
}

fn priority_key(compiler: &mut Compiler<'_>, raw: &RawShedding, path: &Path<'_>) -> Option<Box<str>> {
    let stated = match &raw.priority_key {
        Field::Invalid => return None,
        Field::Absent => return Some(DEFAULT_PRIORITY_KEY.into()),
        Field::Stated(stated) => stated,
    };
    if stated.value.is_empty() || *stated.value == *UTILIZATION_KEY {
        let message = "is not a key for priorities; expected e.g. `priority`, and not `utilization`";
        compiler.error(stated.at, &path.key("priority_key"), message);
        return None;
    }
    Some((*stated.value).into())
}

/// Warns of keys of the descriptor that have no effect on shedding.
fn check_beside(compiler: &mut Compiler<'_>, raw: &RawDescriptor, segments: &[Segment], path: &Path<'_>) {
    let flags = [
        ("quota_mode", &raw.quota_mode),
        ("detailed_metric", &raw.detailed_metric),
        ("share_threshold", &raw.share_threshold),
    ];
    // A pattern's values share one utilization anyway.
    let is_pattern = segments.last().is_some_and(|segment| segment.value == Value::Shared);
    let flags = flags.into_iter().filter(|(key, _)| *key != "share_threshold" || !is_pattern);
    let stated = flags.filter_map(|(key, flag)| Some((key, flag.stated().filter(|flag| flag.value)?.at)));
    let metadata = raw.metadata.stated().map(|metadata| ("metadata", metadata.at));
    for (key, at) in stated.chain(metadata) {
        compiler.warning(at, &path.key(key), "has no effect beside `load_shedding`");
    }
}

/// Warns of limits below that match descriptors with a priority or a report, which the rule then does not see.
fn warn_of_hidden_signals(
    compiler: &mut Compiler<'_>,
    below: &[Box<RawDescriptor>],
    priority_key: Option<&str>,
    path: &Path<'_>,
) {
    let list = path.key("descriptors");
    let is_signal = |key: &str| key == UTILIZATION_KEY || Some(key) == priority_key;
    for raw in below.iter().filter(|raw| raw.is_limited() && is_signal(raw.key.text())) {
        let message = "matches descriptors that the `load_shedding` above needs, so that it does not see them; rename \
                       the key";
        compiler.warning(raw.at, &list.item(raw.index), message);
    }
}
