//! Decisions on limits with `scope: primary`: by one region for all of them.
//!
//! - [`Primacy`]: which region it is, and the change of it.
//! - [`router`]: the store that has the primary region decide its counters.
//! - [`client`]: sends calls to the primary region.
//! - [`breaker`]: pauses them while it does not reply.
//! - [`server`]: decides the calls of other regions.
//! - [`wire`]: the messages.
//!
//! A call is sent once. Without a reply in time, the rule's `on_store_error` decides.
//!
//! An instance that starts has the last table alone. So the region's store has a record of the primary region: the
//! generation of the last table that an instance of the region had, the primary region by it, and whether it was confirmed
//! that no other region decides: `7 us-east confirmed`, or `pending`. Further words are ignored.

mod breaker;
mod client;
mod router;
mod server;
#[cfg(test)]
mod tests;
mod wire;

use tollgate_rules::RegionTable;

pub(super) use self::client::{MAX_CALLS, send_all};
pub(super) use self::router::{PrimaryCall, PrimaryRole};
pub(crate) use self::router::{PrimaryCalls, PrimaryQueue, PrimaryRouter};
pub(super) use self::server::PrimaryServer;

/// Role of the own region.
#[derive(Debug, Default)]
pub(super) struct Primacy {
    /// Whether others may still call a former primary region, so that the own one does not decide.
    pub(super) is_pending: bool,
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recorded<'r> {
    generation: u64,
    primary: &'r str,
    is_confirmed: bool,
}

impl<'r> Recorded<'r> {
    /// Reads a record; `None` for `""`, and for one of a later version of this program.
    fn read(record: &'r str) -> Option<Self> {
        let mut words = record.split(' ');
        let (generation, primary) = (words.next()?.parse().ok()?, words.next()?);
        let is_confirmed = match words.next()? {
            "confirmed" => true,
            "pending" => false,
            _ => return None,
        };
        Some(Self { generation, primary, is_confirmed })
    }
}

impl Primacy {
    /// The role of an instance that starts, before it takes over the record of its region: there is no table before the
    /// first generation. `has_record` is whether there will be a record.
    pub(super) fn start(own: &str, table: &RegionTable, has_record: bool) -> Self {
        let is_pending = has_record && table.primary() == Some(own) && table.generation() > 1;
        Self { is_pending }
    }

    /// Takes over the record of the region, `""` for none: before decisions, and then regularly. Returns the one that has
    /// to replace it.
    ///
    /// The own region decides at once if it was confirmed by the active table, or by one that no other can have followed.
    /// An instance with an earlier table than the record's does not decide while another region may.
    pub(super) fn take_over(&mut self, own: &str, table: &RegionTable, record: &str) -> Option<String> {
        let (known, generation) = (Recorded::read(record), table.generation());
        let is_later = |known: &Recorded<'_>| known.generation > generation;
        if let Some(known) = known
            && table.primary() == Some(own)
        {
            let is_own = known.primary == own && known.is_confirmed;
            let is_last = is_later(&known) || known.generation.saturating_add(1) >= generation;
            if is_own && is_last {
                self.is_pending = false;
            } else if is_later(&known) {
                self.is_pending = true;
            }
        }
        let is_readable = known.is_some() || record.is_empty();
        if !is_readable || known.as_ref().is_some_and(is_later) {
            return None;
        }
        let primary = table.primary()?;
        let state = if self.is_pending { "pending" } else { "confirmed" };
        let text = format!("{generation} {primary} {state}");
        (text != record).then_some(text)
    }

    /// Records the change from one table to another. A former primary region decides nothing more once it has the new
    /// table; the new one decides when all regions have it, so that at no time two regions decide. A table between the two
    /// that this instance has not read may have named another region, which may decide by it.
    pub(super) fn change(&mut self, own: &str, former: &RegionTable, next: &RegionTable) {
        let is_other = |primary: &str| primary != own;
        let is_next = former.generation().saturating_add(1) >= next.generation();
        let is_new = !is_next || former.primary().is_some_and(is_other);
        self.is_pending = next.primary() == Some(own) && (self.is_pending || is_new);
    }

    /// Role of the region `own` by its active table.
    pub(super) fn role(&self, own: &str, table: &RegionTable) -> PrimaryRole {
        match table.primary() {
            None => PrimaryRole::Absent,
            Some(primary) if primary != own => PrimaryRole::Other,
            Some(_) if self.is_pending => PrimaryRole::Pending,
            Some(_) => PrimaryRole::Own,
        }
    }
}
