//! The record of one counter in one region: what it lent to each other region, and what it borrowed.
//!
//! Amounts of one region's loans are not added up: each loan replaces the earlier ones of its pair from its start on, so
//! that of several loans the largest counts. Thus a record has a few loans for each region, however many requests
//! there were.

use std::{collections::BTreeMap, str::FromStr};

use crate::table::{MAX_REGIONS, RegionName};
use crate::terms::Terms;

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
    pub(crate) accounts: BTreeMap<RegionName, Account>,
}

impl Ledger {
    /// Effective limit of the region at `label`: its share, with what it borrowed, without what it lent.
    pub fn effective(&self, terms: &Terms, label: u64) -> u32 {
        let have = u64::from(terms.base) + self.borrowed(label);
        u32::try_from(have.saturating_sub(self.lent(label))).unwrap_or(u32::MAX).min(terms.limit)
    }

    /// Last label up to which the effective limit stays as it is at `label`; `u64::MAX` without loans.
    pub fn good_until(&self, label: u64) -> u64 {
        let ends = |loan: &Loan| match loan {
            _ if loan.until < label => u64::MAX,
            _ if loan.from > label => loan.from - 1,
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
            self.accounts.retain(|_, account| !(account.lent.is_empty() && account.borrowed.is_empty()));
            if self.accounts.len() >= MAX_REGIONS {
                return None;
            }
        }
        Some(self.accounts.entry(region.clone()).or_default())
    }
}

/// Maximum number of loans of which a lender has bookings for one region.
pub const MAX_LENT: usize = 16;

/// Maximum number of loans that a borrower has from one region.
pub const MAX_BORROWED: usize = 8;

/// Account with another region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of the peer's last loan request that was answered; earlier ones are ignored.
    pub seen: u64,
    /// Number of the request to the peer that is not answered yet; 0 for none.
    pub outstanding: u64,
    /// Time before which that request was not sent, in microseconds.
    pub sent_at: u64,
    /// Amount that the request may bring at most.
    pub wanted: u32,
    /// Amount that the peer last reported as spare.
    pub spare: u32,
    /// Loans that the peer may have of this region; at most [`MAX_LENT`].
    pub lent: Vec<Loan>,
    /// Loans that this region has of the peer; at most [`MAX_BORROWED`].
    pub borrowed: Vec<Loan>,
}

impl Account {
    /// Amount booked for the peer at `label`.
    pub fn lent_at(&self, label: u64) -> u32 {
        amount_at(&self.lent, label)
    }

    /// Amount borrowed from the peer at `label`.
    pub fn borrowed_at(&self, label: u64) -> u32 {
        amount_at(&self.borrowed, label)
    }
}

/// An amount from one label to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Number of the request that led to it.
    pub id: u64,
    /// Amount in the limit's units; only falls.
    pub amount: u32,
    /// First label at which it counts. At the lender 0: a booking counts at once.
    pub from: u64,
    /// Last label at which it counts. At the lender this includes the tail.
    pub until: u64,
}

impl Loan {
    /// The amount at `label`.
    pub const fn at(&self, label: u64) -> u32 {
        if self.from <= label && label <= self.until { self.amount } else { 0 }
    }

    /// Whether `old` of the same pair no longer matters at `label`: this one is as large and lasts as long.
    pub(crate) const fn replaces(&self, old: &Self, label: u64) -> bool {
        self.from <= label && old.amount <= self.amount && old.until <= self.until
    }
}

/// Amount of several loans of a pair of regions at `label`: the largest.
fn amount_at(loans: &[Loan], label: u64) -> u32 {
    loans.iter().map(|loan| loan.at(label)).max().unwrap_or(0)
}

/// Name of the field that is not a region's; no region has it.
const HEAD: &str = "#";

/// Largest number that a Lua number represents with all smaller ones.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Error of a field that no version of this program wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{0}` of a loan record is not readable; expected numbers as this version writes them")]
pub struct InvalidRecord(String);

impl Ledger {
    /// Fields and values of the record, as a hash in a store has them; none for an empty one.
    ///
    /// Field `#` is `last_id claim_until misses`. The field of a region's name is
    /// `seen outstanding sent_at wanted spare|lent|borrowed`, where a list of loans is `id,amount,from,until;…`. All numbers
    /// are decimal and below 2^53.
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        if self.last_id > 0 || self.claim_until > 0 || self.misses > 0 {
            fields.push((HEAD.to_owned(), format!("{} {} {}", self.last_id, self.claim_until, self.misses)));
        }
        fields.extend(self.accounts.iter().map(|(region, account)| (region.to_string(), account.text())));
        fields
    }

    /// Reads the fields of a record.
    ///
    /// # Errors
    /// [`InvalidRecord`] for a field that [`Ledger::fields`] cannot have written.
    pub fn from_fields<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidRecord> {
        let mut ledger = Self::default();
        for (field, value) in fields {
            let invalid = || InvalidRecord(field.chars().take(64).collect());
            if field == HEAD {
                let [last_id, claim_until, misses] = numbers(value, ' ').ok_or_else(invalid)?;
                let misses = u32::try_from(misses).map_err(|_| invalid())?;
                ledger = Self { last_id, claim_until, misses, ..ledger };
                continue;
            }
            let region = RegionName::from_str(field).map_err(|_| invalid())?;
            ledger.accounts.insert(region, Account::parse(value).ok_or_else(invalid)?);
            if ledger.accounts.len() > MAX_REGIONS {
                return Err(invalid());
            }
        }
        Ok(ledger)
    }
}

impl Account {
    fn text(&self) -> String {
        let Self { seen, outstanding, sent_at, wanted, spare, lent, borrowed } = self;
        format!(
            "{seen} {outstanding} {sent_at} {wanted} {spare}|{}|{}",
            loans_text(lent),
            loans_text(borrowed)
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|');
        let [seen, outstanding, sent_at, wanted, spare] = numbers(parts.next()?, ' ')?;
        let lent = parse_loans(parts.next()?, MAX_LENT)?;
        let borrowed = parse_loans(parts.next()?, MAX_BORROWED)?;
        let (wanted, spare) = (u32::try_from(wanted).ok()?, u32::try_from(spare).ok()?);
        parts.next().is_none().then_some(Self { seen, outstanding, sent_at, wanted, spare, lent, borrowed })
    }
}

fn loans_text(loans: &[Loan]) -> String {
    let texts = loans.iter().map(|Loan { id, amount, from, until }| format!("{id},{amount},{from},{until}"));
    texts.collect::<Vec<_>>().join(";")
}

fn parse_loans(text: &str, max: usize) -> Option<Vec<Loan>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let loan = |text| {
        let [id, amount, from, until] = numbers(text, ',')?;
        Some(Loan { id, amount: u32::try_from(amount).ok()?, from, until })
    };
    let loans: Option<Vec<Loan>> = text.split(';').take(max + 1).map(loan).collect();
    loans.filter(|loans| loans.len() <= max)
}

/// Exactly `N` numbers.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for number in &mut numbers {
        let part = parts.next()?;
        let is_plain = part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|number| is_plain && *number <= MAX_NUMBER)?;
    }
    parts.next().is_none().then_some(numbers)
}
