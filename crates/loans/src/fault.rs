//! Deliberate faults: each takes one safeguard out of the protocol, so that tests can show that the simulator finds its
//! absence. Without tests, none can be injected and the checks cost nothing.

/// A safeguard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A lender answers a loan request again.
    ReplayedRequest,
    /// A borrower takes any reply.
    LateReply,
    /// A borrower counts a loan from the receipt of the reply.
    EndFromReceipt,
    /// A lender's booking ends with the loan, not with the hits under it.
    NoTail,
    /// A borrower no longer lists loans that have ended, though their hits count.
    FreedInTail,
    /// A lender lowers its booking for all windows when a loan is returned.
    ReturnWithoutLabel,
    /// A lender lowers its booking for all windows when a request does not list a loan.
    AbsentFreedAtOnce,
    /// A region lends by the effective limit from before it returned a loan.
    StaleEffective,
    /// A bucket is as full as before when its limit rises.
    TokensFromNothing,
    /// A loan of a bucket brings what hits take while it is made.
    LentBeforeHits,
    /// An instance starts with its file alone, without the record of its region's tables.
    #[cfg(test)]
    StartsAlone,
    /// A share is raised as soon as all regions have announced the table.
    #[cfg(test)]
    RaisedAtOnce,
}

#[cfg(not(test))]
pub(crate) const fn is_injected(_: Fault) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static INJECTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_injected(fault: Fault) -> bool {
    INJECTED.get() == Some(fault)
}

/// Injects a fault into this thread, or none.
#[cfg(test)]
pub(crate) fn inject(fault: Option<Fault>) {
    INJECTED.set(fault);
}
