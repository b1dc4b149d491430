//! Events of a run, in the order in which they are due.

use crate::shares::TableState;

use crate::message::{LoanRequest, Reply};
use crate::tests::sim::{plan::Mishap, tables::File};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    Arrival,
    Release { region: usize, id: u64 },
    LoanRequest { from: usize, to: usize, state: TableState, request: LoanRequest },
    Reply { from: usize, to: usize, state: TableState, reply: Reply },
    Refusal { from: usize, to: usize, state: TableState, id: u64 },
    Announcement { from: usize, to: usize, state: TableState, instance: usize },
    Ping,
    Compare { region: usize },
    Restart,
    Partition,
    Snapshot { region: usize },
    ChangeTables,
    Write { region: usize, file: File },
    Load { region: usize, instance: usize },
    Timeout { region: usize, id: u64 },
    Mishap(Mishap),
}

#[derive(Debug)]
pub(super) struct Due(pub(super) u64, pub(super) u64, pub(super) Event);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
