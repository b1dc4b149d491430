//! Division of a loan request among the peers.

use super::SMALL_BASE;
use crate::{
    ledger::Ledger,
    protocol::Share,
    table::RegionName,
    terms::{Moment, Terms},
};

/// Divides a loan request: prolongs what each peer lent as far as the region still needs it, and splits `want` by what the
/// peers last reported as spare, but at least evenly. `target` is the effective limit that the region wants to have.
pub fn shares<'a>(
    ledger: &Ledger,
    terms: &Terms,
    now: Moment,
    target: u32,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Vec<Share> {
    let peers: Vec<&RegionName> = peers.collect();
    let count = u64::try_from(peers.len()).unwrap_or(u64::MAX).max(1);
    let want = u64::from(target.saturating_sub(ledger.effective(terms, now.label)));
    let own = u64::from(terms.base).saturating_sub(ledger.lent(now.label));
    let mut to_hold = u64::from(target).saturating_sub(own);
    let spare_of = |peer: &RegionName| ledger.account(peer).map_or(0, |account| u64::from(account.spare));
    let spare: u64 = peers.iter().map(|peer| spare_of(peer)).sum();
    let mut shares = Vec::with_capacity(peers.len());
    for peer in peers {
        let borrowed = ledger.account(peer).map_or(0, |account| u64::from(account.borrowed_at(now.label)));
        let hold = borrowed.min(to_hold);
        to_hold = to_hold.saturating_sub(hold);
        let part = want.saturating_mul(spare_of(peer)).checked_div(spare).unwrap_or(0);
        let part = if terms.base < SMALL_BASE { want } else { part.max(want.div_ceil(count)) };
        let bounded = |amount| u32::try_from(amount).unwrap_or(u32::MAX);
        if hold > 0 || part > 0 {
            shares.push(Share { peer: peer.clone(), hold: bounded(hold), want: bounded(part) });
        }
    }
    shares
}

/// The request that calls back up to `amount` of what this region has lent, to serve another region.
pub fn recall<'a>(
    ledger: &Ledger,
    now: Moment,
    amount: u32,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Vec<Share> {
    let share = |peer: &RegionName| {
        let account = ledger.account(peer)?;
        let want = account.lent_at(now.label).min(amount);
        (want > 0).then(|| Share { peer: peer.clone(), hold: account.borrowed_at(now.label), want })
    };
    peers.filter_map(share).collect()
}
