//! Compilation of `load_shedding`.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use tollgate_core::duration::parse_micros;
use tollgate_shedding::SheddingPolicy;

use super::{Compiler, tree_level::MAX_SHEDDING_RULES};
use crate::config::problem::Path;
use crate::config::raw::{RawDescriptor, RawShedding, Stated};
use crate::config::yaml::{Position, excerpt};
use crate::{Rule, Segment, Shedding, UTILIZATION_KEY, Value};

/// Key of a request's priority where none is stated.
const DEFAULT_PRIORITY_KEY: &str = "priority";

/// Range of `half_life`. Reports arrive late and are read twice a second, so nothing shorter is stable.
const HALF_LIVES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Range of `stale_after`.
const STALE_TIMES: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(600);

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
    let open = segments.iter().find(|segment| segment.value == Value::Open);
    let message = if raw.is_limited() {
        let key = if raw.rate_limit.is_present() { "rate_limit" } else { "rate_limits" };
        format!("contradicts `{key}`; expected a descriptor of its own, which the request carries too")
    } else if compiler.budget.charge_shedding().is_none() {
        format!(
            "is one of too many; expected at most {MAX_SHEDDING_RULES} in all domains, each for a service"
        )
    } else if let Some(segment) = open {
        let key = excerpt(&segment.key);
        format!(
            "the key `{key}` has no value, and all of its values would share one utilization; expected a `value` for \
             each service"
        )
    } else {
        return Some(());
    };
    compiler.reporter.refuse(at, own_path, message)
}

fn rule_of(compiler: &Compiler<'_>, raw: &RawDescriptor, segments: &[Segment], shedding: Shedding) -> Rule {
    Rule {
        shedding: Some(Box::new(shedding)),
        shadow_mode: raw.shadow_mode.or_default(),
        segments: segments.into(),
        origin: ((**compiler.reporter.file).into(), raw.at.line()),
        ..Rule::default()
    }
}

fn policy(
    compiler: &mut Compiler<'_>,
    Stated { at, value: raw }: &Stated<RawShedding>,
    path: &Path<'_>,
) -> Option<SheddingPolicy> {
    let target = match raw.target.valid() {
        None => None,
        Some(None) => {
            let message = "has no `target`; expected the utilization to aim at, such as 80%";
            compiler.reporter.refuse(*at, path, message)
        }
        Some(Some(Stated { value: target, .. })) if (0.05..=MAX_TARGET).contains(target) => Some(*target),
        Some(Some(stated)) => {
            compiler.reporter.refuse(stated.at, &path.key("target"), "is out of range; expected 5% to 95%")
        }
    };
    let floor = raw.floor.read_or(SheddingPolicy::DEFAULT_FLOOR, |Stated { at, value: floor }| {
        if (0.001..=1.0).contains(floor) {
            return Some(*floor);
        }
        let message = "is out of range; expected 0.1% to 100%: with nothing passing, nothing would report";
        compiler.reporter.refuse(*at, &path.key("floor"), message)
    });
    let reporter = &mut compiler.reporter;
    let half_life = raw.half_life.read_or(SheddingPolicy::DEFAULT_HALF_LIFE, |stated| {
        reporter.duration(stated, &path.key("half_life"), parse_micros, HALF_LIVES, "1s to 60s")
    });
    let stale_after = raw.stale_after.read_or(SheddingPolicy::DEFAULT_STALE_AFTER, |stated| {
        reporter.duration(stated, &path.key("stale_after"), parse_micros, STALE_TIMES, "2s to 600s")
    });
    Some(SheddingPolicy { target: target?, half_life: half_life?, floor: floor?, stale_after: stale_after? })
}

fn priority_key(compiler: &mut Compiler<'_>, raw: &RawShedding, path: &Path<'_>) -> Option<Box<str>> {
    raw.priority_key.read_or(DEFAULT_PRIORITY_KEY.into(), |stated| {
        if stated.value.is_empty() || *stated.value == *UTILIZATION_KEY {
            let message = "is not a key for priorities; expected e.g. `priority`, and not `utilization`";
            return compiler.reporter.refuse(stated.at, &path.key("priority_key"), message);
        }
        Some((*stated.value).into())
    })
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
        compiler.reporter.warning(at, &path.key(key), "has no effect beside `load_shedding`");
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
        compiler.reporter.warning(raw.at, &list.item(raw.index), message);
    }
}
