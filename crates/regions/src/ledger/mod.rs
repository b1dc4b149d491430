//! The record of one counter in one region: what it lent to each other region, and what it borrowed.
//!
//! Amounts of one region's loans are not added up: each loan replaces the earlier ones of its pair from its start on, so
//! that of several loans the largest counts. Thus a record has a few loans for each region, however many requests
//! there were.

mod account;
mod loan;
mod record;

use std::collections::BTreeMap;

pub use self::{
    account::{Account, MAX_BORROWED, MAX_LENT},
    loan::Loan,
    record::InvalidRecord,
};
use crate::{
    table::{MAX_REGIONS, RegionName},
    terms::Terms,
};

/// Record of a counter in one region.
///
/// A missing record is an empty one: the region has its base share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Number of the last loan request.
    pub last_id: u64,
    /// Time until which the region requests no loan, in microseconds: a request is in flight, or the last one brought too
    /// little.
    pub claim_until: u64,
    /// Loan requests in a row that brought nothing.
    pub misses: u32,
    /// Accounts with the other regions; at most one for each region.
    accounts: BTreeMap<RegionName, Account>,
}

impl Ledger {
    /// Effective limit of the region at `label`: its share, with what it borrowed, without what it lent.
    pub fn effective(&self, terms: &Terms, label: u64) -> u32 {
        let have = u64::from(terms.base).saturating_add(self.borrowed(label));
        u32::try_from(have.saturating_sub(self.lent(label))).unwrap_or(u32::MAX).min(terms.limit)
    }

    /// Last label up to which the effective limit stays as it is at `label`; `u64::MAX` without loans.
    pub fn good_until(&self, label: u64) -> u64 {
        let ends = |loan: &Loan| match loan {
            _ if loan.until < label => u64::MAX,
            _ if loan.from > label => loan.from.saturating_sub(1),
            _ => loan.until,
        };
        let loans = self.accounts.values().flat_map(|account| account.lent.iter().chain(&account.borrowed));
        loans.map(ends).min().unwrap_or(u64::MAX)
    }

    /// Last label before the region has to prolong a loan: about two seconds before its end; `u64::MAX` if nothing has to
    /// be prolonged.
    pub fn renew_after(&self, terms: &Terms, label: u64) -> u64 {
        let lead = terms.kind.renewal_lead();
        let loans = self.accounts.values().flat_map(|account| &account.borrowed);
        let active = loans.filter(|loan| lead > 0 && loan.at(label) > 0);
        active.map(|loan| loan.until.saturating_sub(lead)).min().unwrap_or(u64::MAX)
    }

    /// Whether a loan request is not answered by all regions.
    pub fn has_outstanding_request(&self) -> bool {
        self.accounts.values().any(|account| account.outstanding != 0)
    }

    /// Amount borrowed from all regions at `label`.
    pub fn borrowed(&self, label: u64) -> u64 {
        self.accounts.values().map(|account| u64::from(account.borrowed_at(label))).sum()
    }

    /// Amount booked for all regions at `label`.
    pub fn lent(&self, label: u64) -> u64 {
        self.accounts.values().map(|account| u64::from(account.lent_at(label))).sum()
    }

    /// The accounts, in the order of the regions' names.
    pub fn accounts(&self) -> impl Iterator<Item = (&RegionName, &Account)> {
        self.accounts.iter()
    }

    /// The account with a region.
    pub fn account(&self, region: &RegionName) -> Option<&Account> {
        self.accounts.get(region)
    }

    /// Last label at which any loan counts, at the lender or, with its tail, at the borrower; 0 without loans. Store
    /// records live at least as long.
    pub fn ends_at(&self, terms: &Terms) -> u64 {
        let tail = terms.kind.tail();
        let ends = self.accounts.values().flat_map(|account| {
            let lent = account.lent.iter().map(|loan| loan.until);
            lent.chain(account.borrowed.iter().map(move |loan| loan.until.saturating_add(tail)))
        });
        ends.max().unwrap_or(0)
    }

    /// The account with a region, opened if there is room.
    pub(crate) fn open(&mut self, region: &RegionName) -> Option<&mut Account> {
        if self.accounts.len() >= MAX_REGIONS && !self.accounts.contains_key(region) {
            // Regions that were dropped from the table leave their places.
            self.accounts.retain(|_, account| !account.is_idle());
            if self.accounts.len() >= MAX_REGIONS {
                return None;
            }
        }
        Some(self.accounts.entry(region.clone()).or_default())
    }

    /// The account with a region, if there is one.
    pub(crate) fn account_mut(&mut self, region: &RegionName) -> Option<&mut Account> {
        self.accounts.get_mut(region)
    }

    /// All accounts.
    pub(crate) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.accounts.values_mut()
    }

    /// Replaces the account with a region.
    pub(crate) fn insert(&mut self, region: RegionName, account: Account) {
        self.accounts.insert(region, account);
    }
}
