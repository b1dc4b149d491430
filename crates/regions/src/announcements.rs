//! Announcements of regions: which table each has, and which shares none of its instances exceeds.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_loans::shares::TableState;
use tollgate_proto::tollgate::region::v1::{Announcement, CounterLoanRequest, CounterReply};
use tollgate_rules::RegionEntry;
use tollgate_store::loans::regions::table::RegionName;
use tonic::transport::Channel;

use super::state::{Announced, OutgoingLoanRequest, SecondCount, State};
use super::{Regions, metrics};

/// Count of the messages or calls of a region in a second, and its maximum.
type BoundedCount = fn(&mut Announced) -> (&mut SecondCount, u32);

/// Messages of a region: some of each of its instances.
pub(super) const MESSAGES: BoundedCount = |known| (&mut known.messages, 2_000);

/// Calls of a region to this one, as the primary region.
const CALLS: BoundedCount = |known| (&mut known.calls, 10_000);

/// Loan requests of a region, and those to it; beyond, shares stay as they are.
pub(super) const LOAN_REQUESTS: BoundedCount = |known| (&mut known.loan_requests_received, 2_000);
pub(super) const OWN_LOAN_REQUESTS: BoundedCount = |known| (&mut known.loan_requests_sent, 2_000);

/// Difference of clocks above which it is not shown exactly.
const MAX_OFFSET: Duration = Duration::from_secs(24 * 60 * 60);

impl Regions {
    /// Regions with the same table that reply, and so lend.
    pub(super) fn lenders(&self) -> Vec<RegionName> {
        let state = self.state.lock();
        let lends = |region: &&RegionEntry| {
            let is_up = state.announced.get(&region.name).is_some_and(|known| known.is_up);
            let theirs = state.demarcation.state_of(&region.name);
            is_up && !region.is_lost && theirs.is_some_and(|theirs| state.demarcation.has_table(theirs))
        };
        state.table.regions().iter().filter(lends).filter_map(|region| region.name.parse().ok()).collect()
    }

    /// Whether a region has the same table.
    pub(super) fn has_same_table(&self, sender: &Announcement) -> bool {
        self.state.lock().demarcation.has_table(&table_state(sender))
    }

    /// Longest time of an exchange with a region that replies.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let state = self.state.lock();
        let up = state.announced.values().filter(|known| known.is_up);
        up.map(|known| known.round_trip).max().unwrap_or_default()
    }

    /// Sends a loan request with the next message to a region that replies. Without room for it, there is no reply.
    pub(super) fn request_loan(
        &self,
        region: &str,
        request: CounterLoanRequest,
    ) -> Option<oneshot::Receiver<CounterReply>> {
        let (reply, receiver) = oneshot::channel();
        let state = self.state.lock();
        let known = state.announced.get(region).filter(|known| known.is_up)?;
        known.loan_requests.as_ref()?.try_send(OutgoingLoanRequest { request, reply }).ok()?;
        Some(receiver)
    }

    /// Sends the loan requests for a region to this sender.
    pub(super) fn set_loan_requests(&self, region: &str, sender: mpsc::Sender<OutgoingLoanRequest>) {
        self.state.lock().announced.entry(region.into()).or_default().loan_requests = Some(sender);
    }

    /// The other regions of the active table.
    pub(super) fn others(&self) -> Vec<RegionEntry> {
        let state = self.state.lock();
        state.table.regions().iter().filter(|region| region.name != state.own).cloned().collect()
    }

    /// Another region of the active table.
    pub(super) fn other(&self, name: &str) -> Option<RegionEntry> {
        let state = self.state.lock();
        state.table.region(name).filter(|region| region.name != state.own).cloned()
    }

    /// Keeps the connection to a region, while there is one.
    pub(super) fn set_channel(&self, region: &str, channel: Option<Channel>) {
        let mut state = self.state.lock();
        match channel {
            Some(channel) => _ = state.channels.insert(region.into(), channel),
            None => _ = state.channels.remove(region),
        }
    }

    /// The connection to a region, or the reason for its absence.
    pub(super) fn channel(&self, region: &str) -> Result<Channel, String> {
        let state = self.state.lock();
        state.channels.get(region).cloned().ok_or_else(|| {
            let reason = state.announced.get(region).and_then(|known| known.error.clone());
            reason.unwrap_or_else(|| format!("not connected to region {region}"))
        })
    }

    /// Whether there may be a further one of a region within the second of `now`.
    pub(super) fn admits(&self, region: &str, count: BoundedCount, now: Instant) -> bool {
        let mut state = self.state.lock();
        let (count, max) = count(state.announced.entry(region.into()).or_default());
        count.admits(max, now)
    }

    /// Whether there may be a further call of a region to this one, as the primary region.
    pub(super) fn admits_call(&self, region: &str, now: Instant) -> bool {
        self.admits(region, CALLS, now)
    }

    /// The own announcement.
    pub(super) fn announcement(&self) -> Announcement {
        let state = self.state.lock();
        let TableState { generation, digest, lowered } = state.demarcation.state();
        let (region, clock_us) = (state.own.to_string(), Clock::System.now().as_micros());
        Announcement { region, generation, digest, lowered, clock_us }
    }

    /// Whether the own region has announced the generation.
    pub(super) fn has_announced(&self, generation: u64) -> bool {
        self.state.lock().demarcation.state().lowered >= generation
    }

    /// Announces a generation that all instances of the own region have.
    pub(super) fn announce(&self, generation: u64) {
        let mut state = self.state.lock();
        state.demarcation.lowered(generation);
        // There may be no other region to announce it.
        if state.settle_primary() {
            self.publish(&state);
        }
    }

    /// Records what another region announced.
    pub(super) fn announced(&self, sender: &Announcement) {
        let mut state = self.state.lock();
        let is_finished = state.announced(sender);
        if state.settle_primary() || is_finished {
            tracing::info!(generation = state.table.generation(), "region table announced by all regions");
            self.publish(&state);
        }
    }

    /// Records a reply to a message that was not sent before `sent_at`.
    pub(super) fn replied(&self, sender: &Announcement, sent_at: Timestamp, round_trip: Duration) {
        self.announced(sender);
        let half = u64::try_from(round_trip.as_micros() / 2).unwrap_or(u64::MAX);
        let own = sent_at.as_micros() + half;
        let bound = i64::try_from(MAX_OFFSET.as_micros()).unwrap_or(i64::MAX);
        let offset = i64::try_from(sender.clock_us.abs_diff(own)).unwrap_or(bound).min(bound);
        let offset = if sender.clock_us < own { -offset } else { offset };
        let mut state = self.state.lock();
        let known = state.announced.entry(sender.region.as_str().into()).or_default();
        let was_up = std::mem::replace(&mut known.is_up, true);
        (known.clock_offset_us, known.round_trip, known.error) = (offset, round_trip, None);
        drop(state);
        metrics::exchanged(&sender.region, offset, round_trip);
        if !was_up {
            tracing::info!(region = %sender.region, "region connected");
        }
    }

    /// Records that a region does not reply.
    pub(super) fn unreachable(&self, region: &str, error: String) {
        let mut state = self.state.lock();
        let known = state.announced.entry(region.into()).or_default();
        // Once for each outage.
        if known.is_up || known.error.is_none() {
            tracing::warn!(%region, %error, "region unreachable; shares apply without it");
        }
        (known.is_up, known.error) = (false, Some(error));
        drop(state);
        metrics::exchange_failed(region);
    }
}

impl State {
    /// Records an announcement of another region of the table. Returns whether it finished a change.
    fn announced(&mut self, sender: &Announcement) -> bool {
        let name = &*sender.region;
        let differed = self.demarcation.differs(name);
        let is_finished = self.demarcation.announced(name, table_state(sender), Clock::System.now());
        if !differed && self.demarcation.differs(name) {
            let generation = self.table.generation();
            tracing::error!(region = %name, generation, "region table differs at one generation");
        }
        self.announced.entry(name.into()).or_default().at = Some(Instant::now());
        is_finished
    }
}

/// State of the tables that a message announces.
const fn table_state(sender: &Announcement) -> TableState {
    TableState { generation: sender.generation, digest: sender.digest, lowered: sender.lowered }
}

#[cfg(test)]
mod tests {
    use tollgate_limiter::OwnShares;

    use super::*;
    use crate::tests::regions_of;
    use tollgate_fixtures::region_table;

    /// Regions that change from the first generation to the second.
    fn changing() -> Regions {
        let at = |generation: u32, weight: u32| {
            let table = region_table(generation, "", &[("us", weight), ("eu", 1), ("ap", 1)]);
            regions_of(&table, OwnShares::default())
        };
        let (regions, next) = (at(1, 1), at(2, 3).state.lock().table.clone());
        regions.state.lock().propose(next).expect("accepted");
        regions
    }

    fn of(regions: &Regions, region: &str, generation: u64, lowered: u64) -> Announcement {
        Announcement { region: region.to_owned(), generation, lowered, ..regions.announcement() }
    }

    #[test]
    fn a_change_is_finished_once_every_other_region_announced_it() {
        let regions = changing();
        regions.announced(&of(&regions, "eu", 2, 2));
        regions.announced(&of(&regions, "ap", 2, 1));
        assert_eq!(regions.state.lock().demarcation.waiting_for().collect::<Vec<_>>(), ["ap"]);
        assert_eq!(regions.view().unfinished_changes, 1, "some instances of a region have the former table");
        regions.announced(&of(&regions, "ap", 3, 3));
        assert_eq!(regions.view().unfinished_changes, 1, "a later table may have larger shares");
        regions.announced(&of(&regions, "ap", 2, 2));
        assert_eq!(regions.view().unfinished_changes, 0);
    }

    #[test]
    fn a_table_that_differs_at_one_generation_is_not_announced() {
        let regions = changing();
        regions.announced(&of(&regions, "eu", 2, 2));
        regions.announced(&Announcement { digest: 7, ..of(&regions, "ap", 2, 2) });
        assert_eq!(regions.view().unfinished_changes, 1);
        assert!(regions.view().regions.iter().any(|region| region.differs && region.name == "ap"));
    }

    #[test]
    fn an_absurd_clock_and_a_flood_have_no_effect() {
        let regions = changing();
        let replied = |clock_us, lowered| {
            let sender = Announcement { clock_us, ..of(&regions, "eu", 2, lowered) };
            regions.replied(&sender, Clock::System.now(), Duration::from_millis(2));
        };
        replied(u64::MAX, u64::MAX);
        let offset = |regions: &Regions| regions.state.lock().announced["eu"].clock_offset_us;
        assert_eq!(offset(&regions), 86_400_000_000);
        replied(0, 0);
        assert_eq!(offset(&regions), -86_400_000_000);
        assert_eq!(regions.view().unfinished_changes, 1);
        let admitted = (0..3_000).filter(|_| regions.admits("ap", MESSAGES, Instant::now())).count();
        assert!((2_000..3_000).contains(&admitted), "{admitted}");
    }

    #[test]
    fn the_own_generation_is_announced_only_while_it_is_active() {
        let regions = changing();
        regions.announce(1);
        assert_eq!(regions.announcement().lowered, 0);
        regions.announce(2);
        assert_eq!((regions.announcement().lowered, regions.has_announced(2)), (2, true));
    }

    #[test]
    fn a_region_that_requests_too_often_leaves_the_requests_of_another() {
        let (regions, now) = (changing(), Instant::now());
        let admitted = |region, count, now| (0..3_000).filter(|_| regions.admits(region, count, now)).count();
        for count in [LOAN_REQUESTS, OWN_LOAN_REQUESTS] {
            assert_eq!([admitted("eu", count, now), admitted("ap", count, now)], [2_000, 2_000]);
            assert_eq!(admitted("eu", count, now), 0);
            assert_eq!(admitted("eu", count, now + Duration::from_secs(1)), 2_000, "in another second");
        }
    }
}
