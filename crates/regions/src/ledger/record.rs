//! Text form of a ledger: the fields of a hash in a store.
//!
//! Field `#` is `last_id claim_until misses`. The field of a region's name is
//! `seen outstanding sent_at wanted spare|lent|borrowed`, where a list of loans is `id,amount,from,until;…`. All numbers
//! are decimal and below 2^53.

use std::{fmt::Write, str::FromStr};

use super::{Account, Ledger, Loan, MAX_BORROWED, MAX_LENT};
use crate::table::{MAX_REGIONS, RegionName};

/// Name of the field that is not a region's; no region has it.
const HEAD: &str = "#";

/// Largest number that a Lua number represents with all smaller ones.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Error of a field that no version of this program wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{0}` of a loan record is not readable; expected numbers as this version writes them")]
pub struct InvalidRecord(String);

impl Ledger {
    /// Fields and values of the record; none for an empty one.
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        if self.last_id > 0 || self.claim_until > 0 || self.misses > 0 {
            fields.push((HEAD.to_owned(), format!("{} {} {}", self.last_id, self.claim_until, self.misses)));
        }
        fields.extend(self.accounts().map(|(region, account)| (region.to_string(), account.text())));
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
            ledger.insert(region, Account::parse(value).ok_or_else(invalid)?);
            if ledger.accounts().count() > MAX_REGIONS {
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
    let mut text = String::new();
    for Loan { id, amount, from, until } in loans {
        let separator = if text.is_empty() { "" } else { ";" };
        // Writing to a string does not fail.
        _ = write!(text, "{separator}{id},{amount},{from},{until}");
    }
    text
}

fn parse_loans(text: &str, max: usize) -> Option<Vec<Loan>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let loan = |text| {
        let [id, amount, from, until] = numbers(text, ',')?;
        Some(Loan { id, amount: u32::try_from(amount).ok()?, from, until })
    };
    let loans: Option<Vec<Loan>> = text.split(';').take(max.saturating_add(1)).map(loan).collect();
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
