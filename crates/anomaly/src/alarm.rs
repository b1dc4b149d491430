//! Begin and end of an anomaly.

/// Minutes in a row outside the band after which an anomaly begins.
pub(crate) const BEGIN_MINUTES: u32 = 3;
/// Minutes in a row well inside the band after which an anomaly ends.
const END_MINUTES: u32 = 10;
/// Minutes after which a lasting anomaly is the new normal.
const ACCEPT_MINUTES: u64 = 24 * 60;

/// State of one kind of anomaly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    outside: u32,
    inside: u32,
    active: Option<Active>,
}

/// An anomaly that lasts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Active {
    /// Minute since 1970.
    pub(crate) since: u64,
    /// Sums since then.
    pub(crate) observed: f64,
    pub(crate) expected: f64,
}

/// Change of the state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Begun,
    Ended(Active),
    /// Accepted as normal because of its age.
    Accepted(Active),
}

/// Position of a minute relative to the band.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) is_outside: bool,
    /// Whether it is well inside, on this side.
    pub(crate) is_inside: bool,
}

impl Alarm {
    pub(crate) const fn active(&self) -> Option<&Active> {
        self.active.as_ref()
    }

    /// Continues an anomaly that another instance found.
    pub(crate) fn resume(&mut self, since: u64) {
        self.active.get_or_insert(Active { since, ..Active::default() });
    }

    /// Takes a minute into account, with the means of what was observed and expected.
    pub(crate) fn update(
        &mut self,
        minute: u64,
        position: Position,
        observed: f64,
        expected: f64,
    ) -> Option<Change> {
        self.outside = if position.is_outside { self.outside.saturating_add(1) } else { 0 };
        self.inside = if position.is_inside { self.inside.saturating_add(1) } else { 0 };
        let Some(active) = &mut self.active else {
            let begins = self.outside >= BEGIN_MINUTES;
            self.active = begins.then_some(Active { since: minute, observed, expected });
            return begins.then_some(Change::Begun);
        };
        active.observed += observed;
        active.expected += expected;
        let ended = *active;
        if self.inside >= END_MINUTES {
            *self = Self::default();
            Some(Change::Ended(ended))
        } else if minute.saturating_sub(ended.since) >= ACCEPT_MINUTES {
            *self = Self::default();
            Some(Change::Accepted(ended))
        } else {
            None
        }
    }

    /// Begins or ends it at once.
    pub(crate) fn set(&mut self, minute: u64, is_active: bool) -> Option<Change> {
        match (self.active, is_active) {
            (None, true) => {
                self.active = Some(Active { since: minute, ..Active::default() });
                Some(Change::Begun)
            }
            (Some(active), false) => {
                *self = Self::default();
                Some(Change::Ended(active))
            }
            _ => None,
        }
    }
}
