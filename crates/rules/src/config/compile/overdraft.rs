//! Overdrafts: `overdraft`, `max_debt` and `carry`, and limits that are likely charged after the response without them.

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Policy},
    quota::Quota,
};

use super::{descriptor::Compiler, parameters::Reporter};
use crate::{
    Limit, Rule,
    config::{
        problem::Path,
        raw::{Field, RawCarry, RawRateLimit, Stated},
        yaml::Position,
    },
};

/// Words in names, keys and values of limits of what is counted after the response.
const POST_PAID_WORDS: [&str; 8] =
    ["tokens", "cost", "costs", "spend", "spent", "usage", "credits", "budget"];

/// Overdraft of a limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overdraft {
    pub(super) is_stated: bool,
    pub(super) max_debt: Option<u32>,
    pub(super) carry: Carry,
    /// Positions of the keys in `defaults` that apply.
    pub(super) default_at: DefaultPositions,
}

/// Positions of keys in `defaults`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DefaultPositions {
    pub(super) overdraft: Option<Position>,
    pub(super) carry: Option<Position>,
}

/// Hits that count in the next windows, or raise them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carry {
    pub(super) debt: bool,
    pub(super) unused_percent: u8,
}

/// The keys in `defaults`, for the limits whose algorithms have them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OverdraftDefaults {
    overdraft: bool,
    pub(super) max_debt: Option<Stated<u32>>,
    carry: Carry,
    at: DefaultPositions,
}

impl Carry {
    const fn of(raw: RawCarry) -> Self {
        Self { debt: raw.debt, unused_percent: raw.unused }
    }
}

impl OverdraftDefaults {
    /// The values of a rule, as defaults of an override of it.
    pub(super) fn of_rule(rule: &Rule, quota: Quota, policy: &Policy) -> Self {
        // A debt as large as the limit is the default, which follows the limit.
        let debt = policy
            .max_debt()
            .and_then(|debt| u32::try_from(debt).ok())
            .filter(|debt| u64::from(*debt) != quota.limit);
        let is_window = policy.algorithm() == Algorithm::FixedWindow;
        Self {
            overdraft: rule.overdraft,
            max_debt: debt.map(|value| Stated { at: Position::WHOLE, value }),
            carry: Carry {
                debt: rule.overdraft && is_window && policy.max_debt().is_some(),
                unused_percent: policy.unused_percent(),
            },
            at: DefaultPositions::default(),
        }
    }
}

/// Reads the keys in `defaults`.
pub(super) fn read_defaults(
    reporter: &mut Reporter<'_>,
    raw: &RawRateLimit,
    path: &Path<'_>,
) -> OverdraftDefaults {
    OverdraftDefaults {
        overdraft: raw.overdraft.or_default(),
        max_debt: raw.max_debt.stated().and_then(|debt| read_max_debt(reporter, debt, path)),
        carry: Carry::of(raw.carry.or_default()),
        at: DefaultPositions {
            overdraft: raw.overdraft.stated().map(|stated| stated.at),
            carry: raw.carry.stated().map(|stated| stated.at),
        },
    }
}

/// Reads the overdraft of a limit: its own keys, else the defaults. `None` if one is invalid.
pub(super) fn read(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    defaults: &OverdraftDefaults,
    path: &Path<'_>,
) -> Option<Overdraft> {
    let is_possible = !chosen.holds_permits();
    let is_stated = match &raw.overdraft {
        Field::Invalid => return None,
        Field::Stated(Stated { at, value: true }) if !is_possible => {
            let message = "a concurrency limit has no overdraft, since a permit is free again after its request; \
                           expected false";
            reporter.error(*at, &path.key("overdraft"), message);
            return None;
        }
        Field::Stated(stated) => stated.value,
        Field::Absent => defaults.overdraft && is_possible,
    };
    if is_stated && let Some(interval) = raw.min_interval.stated() {
        let message = "has no effect beside `overdraft: true`, with which every charge counts";
        reporter.warning(interval.at, &path.key("min_interval"), message);
    }
    let carry = read_carry(reporter, chosen, raw, is_stated, path)?;
    let is_window = chosen == Algorithm::FixedWindow;
    let default_at = DefaultPositions {
        overdraft: defaults.at.overdraft.filter(|_| !raw.overdraft.is_present()),
        carry: defaults.at.carry.filter(|_| carry.is_none()),
    };
    let carry = carry.unwrap_or(Carry {
        debt: defaults.carry.debt && is_stated && is_window,
        unused_percent: if is_window { defaults.carry.unused_percent } else { 0 },
    });
    let has_debt = is_stated && (carry.debt || chosen == Algorithm::TokenBucket);
    let max_debt = match &raw.max_debt {
        Field::Invalid => return None,
        Field::Absent => defaults.max_debt.filter(|_| has_debt),
        Field::Stated(stated) if has_debt => Some(read_max_debt(reporter, stated, path)?),
        Field::Stated(stated) => {
            let message = "has no effect here; expected `overdraft: true` with `algorithm: token_bucket`, or with \
                           `carry: true`";
            reporter.error(stated.at, &path.key("max_debt"), message);
            return None;
        }
    };
    Some(Overdraft { is_stated, max_debt: max_debt.map(|debt| debt.value), carry, default_at })
}

/// Reads `carry`: the stated value; `None` if it is invalid.
fn read_carry(
    reporter: &mut Reporter<'_>,
    chosen: Algorithm,
    raw: &RawRateLimit,
    is_overdraft: bool,
    path: &Path<'_>,
) -> Option<Option<Carry>> {
    let Stated { at, value } = match &raw.carry {
        Field::Invalid => return None,
        Field::Absent => return Some(None),
        Field::Stated(stated) => stated,
    };
    let carry = Carry::of(*value);
    let message = match carry {
        Carry { debt: false, unused_percent: 0 } => return Some(Some(carry)),
        _ if chosen != Algorithm::FixedWindow => {
            format!("is not a key of {}; expected `algorithm: fixed_window`", chosen.name())
        }
        Carry { debt: true, .. } if !is_overdraft => {
            "has no effect without an overdraft; expected `overdraft: true`".to_owned()
        }
        _ => return Some(Some(carry)),
    };
    reporter.error(*at, &path.key("carry"), message);
    None
}

fn read_max_debt(reporter: &mut Reporter<'_>, stated: &Stated<u32>, path: &Path<'_>) -> Option<Stated<u32>> {
    if stated.value == 0 {
        let message = "is 0, so no charge counts beyond the limit; expected at least 1";
        reporter.error(stated.at, &path.key("max_debt"), message);
    }
    Some(*stated).filter(|debt| debt.value > 0)
}

/// Synchronization of a limit that may have an overdraft, each charge of which is sent to the store.
pub(super) fn sync_beside(
    compiler: &mut Compiler<'_>,
    is_overdraft: bool,
    raw: &RawRateLimit,
    sync: Option<SyncMode>,
    path: &Path<'_>,
) -> Option<SyncMode> {
    if !is_overdraft {
        // The store counts every hit of a limit that carries unused ones.
        return if raw.carry.stated().is_some_and(|carry| carry.value.unused > 0) {
            sync.map(|_| SyncMode::Strict)
        } else {
            sync
        };
    }
    if let (Some(sync @ (SyncMode::Leased | SyncMode::Auto)), Some(stated)) = (sync, raw.sync.stated()) {
        let message = match sync {
            SyncMode::Auto => {
                "works as `strict` beside `overdraft: true`, with which the store counts every charge"
            }
            _ => "has no effect beside `overdraft: true`, with which the store counts every charge",
        };
        compiler.warning(stated.at, &path.key("sync"), message);
    }
    sync.map(|_| SyncMode::Strict)
}

/// Warns of a limit that is likely charged after the response, and has no overdraft.
pub(super) fn warn_of_lost_charges(
    compiler: &mut Compiler<'_>,
    rule: &Rule,
    raw: &RawRateLimit,
    at: Position,
    path: &Path<'_>,
) {
    let has_choice = raw.overdraft.is_present() || compiler.defaults.states_overdraft;
    let takes_leases = rule.algorithm().is_none_or(Algorithm::takes_leases);
    if has_choice || takes_leases || rule.limit == Limit::Unlimited {
        return;
    }
    let own = rule.segments.last().map(|segment| &*segment.stated);
    let words =
        own.into_iter().chain([&*rule.name]).flat_map(|text| text.split(|c: char| !c.is_alphanumeric()));
    let known = |word: &str| POST_PAID_WORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word));
    if let Some(word) = words.filter_map(known).next() {
        let message = format!(
            "counts `{word}`, which may be charged after the response: a charge above what remains is then dropped; \
             expected `overdraft: true`, or `overdraft: false` if requests are charged beforehand"
        );
        compiler.warning(at, path, message);
    }
}
