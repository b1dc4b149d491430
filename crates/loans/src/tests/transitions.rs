//! Single transitions, and messages of hostile or broken peers.

use proptest::prelude::*;

use crate::ledger::{Account, Ledger, Loan, MAX_BORROWED, MAX_LENT};
use crate::message::{Holding, LoanRequest, Reply};
use crate::policy::{Demand, conclude, may_request, must_renew, need, range, shortage, until_renewal};
use crate::protocol::{Ignored, Share, Taken, Usage, lend, request_loans, take};
use crate::table::RegionName;
use crate::terms::{LimitKind, Moment, Terms};

const NOW: u64 = 1_700_000_000_000_000;
const PERMITS: LimitKind = LimitKind::Concurrency { lease_ttl: 10_000_000 };

fn name(text: &str) -> RegionName {
    text.parse().expect("a name")
}

fn terms(kind: LimitKind) -> Terms {
    Terms { kind, limit: 300, base: 100 }
}

fn now(kind: LimitKind) -> Moment {
    let seconds = NOW / 1_000_000;
    Moment { label: kind.label_step().map_or(NOW, |step| seconds - seconds % step + step), micros: NOW }
}

fn plain_request(kind: LimitKind, want: u32) -> LoanRequest {
    LoanRequest { id: NOW, label: now(kind).label, hold: 0, want, have: Vec::new() }
}

/// The request of a borrower for this much of a peer's share.
fn ask(borrower: &mut Ledger, terms: &Terms, peer: &RegionName, want: u32) -> LoanRequest {
    let share = Share { peer: peer.clone(), hold: 0, want };
    let (requests, _) = request_loans(borrower, terms, now(terms.kind), Usage::default(), &[share]);
    requests[0].1.clone()
}

/// The reply to a request of `us`, of a lender that uses nothing.
fn lend_all(lender: &mut Ledger, terms: &Terms, request: &LoanRequest) -> Result<Reply, Ignored> {
    lend(lender, terms, now(terms.kind), Usage::default(), &name("us"), request).map(|lent| lent.reply)
}

/// Takes a peer's reply.
fn accept(ledger: &mut Ledger, terms: &Terms, peer: &RegionName, reply: &Reply) -> Result<Taken, Ignored> {
    take(ledger, terms, now(terms.kind), Usage::default(), peer, reply)
}

#[test]
fn loans_last_as_the_windows_require() {
    let spans = |kind: LimitKind| (kind.loan_span(), kind.tail(), kind.booking_span(), kind.renewal_lead());
    assert_eq!(spans(LimitKind::FixedWindow { window: 60 }), (0, 0, 0, 0));
    assert_eq!(spans(LimitKind::FixedWindow { window: 5 }), (5, 0, 5, 5));
    assert_eq!(spans(LimitKind::FixedWindow { window: 1 }), (5, 0, 5, 2));
    assert_eq!(spans(LimitKind::SlidingWindow { window: 60 }), (60, 60, 120, 60));
    assert_eq!(spans(LimitKind::SlidingWindow { window: 1 }), (5, 1, 6, 2));
    assert_eq!(spans(PERMITS), (5_000_000, 10_000_000, 15_500_000, 2_000_000));
    let bucket = LimitKind::TokenBucket { window: 1, capacity: 100_000 };
    assert_eq!(spans(bucket), (5_000_000, 0, 5_500_000, 2_000_000));
}

#[test]
fn a_booking_that_ends_at_a_time_ends_whatever_the_clock_of_the_borrower() {
    for kind in [PERMITS, LimitKind::TokenBucket { window: 1, capacity: 1_000_000 }] {
        for label in [0, NOW + 3_600_000_000, u64::MAX] {
            let (mut ledger, terms) = (Ledger::default(), terms(kind));
            let request = LoanRequest { label, ..plain_request(kind, 60) };
            assert_eq!(lend_all(&mut ledger, &terms, &request).map(|reply| reply.amount), Ok(60));
            assert_eq!(ledger.ends_at(&terms), NOW + kind.booking_span(), "{kind:?}, {label}");
        }
    }
}

#[test]
fn a_loan_moves_from_the_lender_to_the_borrower_and_back() {
    let (eu, us) = (name("eu"), name("us"));
    let terms = terms(PERMITS);
    let (mut lender, mut borrower) = (Ledger::default(), Ledger::default());
    let request = ask(&mut borrower, &terms, &eu, 60);
    let usage = Usage { used: 30, need: 50, full_at: 0, reserve: 0 };
    let lent = lend(&mut lender, &terms, now(PERMITS), usage, &us, &request).expect("answered");
    // It keeps what it needs, though less is in use.
    assert_eq!((lent.reply.amount, lent.reply.spare, lent.recall), (50, 0, 0));
    assert_eq!(lender.effective(&terms, NOW), 50);
    let taken = accept(&mut borrower, &terms, &eu, &lent.reply).expect("taken");
    assert_eq!((taken.gained, taken.is_expected), (50, true));
    assert_eq!(borrower.effective(&terms, NOW), 150);
    // A copy of the reply brings nothing.
    let copy = accept(&mut borrower, &terms, &eu, &lent.reply).expect("taken");
    assert_eq!((copy.gained, copy.is_expected), (0, false));

    // The lender requests a loan in turn: the borrower returns first, all but what it uses.
    let request = ask(&mut lender, &terms, &us, 80);
    let usage = Usage { used: 110, need: 110, full_at: 0, reserve: 0 };
    let returned = lend(&mut borrower, &terms, now(PERMITS), usage, &eu, &request).expect("answered");
    assert_eq!((returned.reply.amount, borrower.effective(&terms, NOW)), (0, 110));
    accept(&mut lender, &terms, &us, &returned.reply).expect("taken");
    assert_eq!(lender.effective(&terms, NOW), 90);
    assert_eq!(lender.lent(NOW), borrower.borrowed(NOW));
}

#[test]
fn a_lost_reply_is_made_good_by_the_next_request() {
    let terms = terms(PERMITS);
    let (mut lender, mut borrower) = (Ledger::default(), Ledger::default());
    for _ in 0..50 {
        let request = ask(&mut borrower, &terms, &name("eu"), 60);
        lend_all(&mut lender, &terms, &request).expect("answered");
        assert_eq!(lender.lent(NOW), 60);
        assert!(lender.account(&name("us")).is_some_and(|account| account.lent.len() == 1));
    }
}

#[test]
fn absurd_requests_get_no_more_than_the_spare_share() {
    let us = name("us");
    for kind in [PERMITS, LimitKind::FixedWindow { window: 60 }, LimitKind::SlidingWindow { window: 1 }] {
        let terms = terms(kind);
        let mut lender = Ledger::default();
        let usage = Usage { used: 40, need: 40, full_at: 0, reserve: 0 };
        let greedy = LoanRequest {
            hold: u32::MAX,
            have: vec![Holding { id: NOW - 1, amount: u32::MAX }],
            ..plain_request(kind, u32::MAX)
        };
        let lent = lend(&mut lender, &terms, now(kind), usage, &us, &greedy).expect("answered");
        assert_eq!((lent.reply.amount, lender.effective(&terms, now(kind).label)), (60, 40));
    }
}

#[test]
fn replayed_early_skewed_and_long_messages_change_nothing() {
    let kind = LimitKind::FixedWindow { window: 1 };
    let terms = terms(kind);
    let mut lender = Ledger::default();
    lend_all(&mut lender, &terms, &plain_request(kind, 10)).expect("answered");
    let before = lender.clone();
    let label = now(kind).label;
    let newer = LoanRequest { id: NOW + 1, ..plain_request(kind, 10) };
    for (message, reason) in [
        (plain_request(kind, 10), Ignored::Replayed),
        (LoanRequest { id: NOW - 5, ..newer.clone() }, Ignored::Replayed),
        (LoanRequest { id: NOW + 3_700_000_000, ..newer.clone() }, Ignored::Ahead),
        (LoanRequest { label: label + 6, ..newer.clone() }, Ignored::Skewed),
        (LoanRequest { label: label - 6, ..newer.clone() }, Ignored::Skewed),
        (LoanRequest { label: u64::MAX, ..newer.clone() }, Ignored::Skewed),
        (LoanRequest { have: vec![Holding { id: 1, amount: 1 }; MAX_BORROWED + 1], ..newer }, Ignored::Long),
    ] {
        assert_eq!(lend_all(&mut lender, &terms, &message), Err(reason));
        assert_eq!(lender, before);
    }
}

#[test]
fn forged_replies_bring_no_more_than_was_requested() {
    let eu = name("eu");
    let kind = LimitKind::FixedWindow { window: 1 };
    let terms = terms(kind);
    let mut borrower = Ledger::default();
    let label = now(kind).label;
    let forged = |id| Reply {
        id,
        label,
        from: label,
        amount: u32::MAX,
        added: u32::MAX,
        level: u64::MAX,
        have: Vec::new(),
        resolved: u64::MAX,
        spare: u32::MAX,
    };
    // Without a request, nothing.
    accept(&mut borrower, &terms, &eu, &forged(0)).expect("taken");
    accept(&mut borrower, &terms, &eu, &forged(NOW)).expect("taken");
    assert_eq!(borrower.effective(&terms, label), 100);
    let id = ask(&mut borrower, &terms, &eu, 10).id;
    let skewed = Reply { from: u64::MAX, ..forged(id) };
    assert_eq!(accept(&mut borrower, &terms, &eu, &skewed), Err(Ignored::Skewed));
    accept(&mut borrower, &terms, &eu, &forged(id)).expect("taken");
    assert_eq!(borrower.effective(&terms, label), 110);
}

#[test]
fn a_record_has_a_bounded_number_of_regions_and_loans() {
    let terms = terms(PERMITS);
    let mut lender = Ledger::default();
    let mut full = 0;
    for region in 0..40 {
        for step in 0..20 {
            // A peer that lists all loans, and so keeps all bookings.
            let peer = name(&format!("r{region}"));
            let lent = lender.account(&peer).into_iter().flat_map(|account| account.lent.iter().rev());
            let holding = |loan: &Loan| Holding { id: loan.id, amount: loan.amount };
            let have = lent.take(MAX_BORROWED).map(holding).collect();
            let request = LoanRequest { id: NOW + step, have, ..plain_request(PERMITS, 1) };
            let lent = lend(&mut lender, &terms, now(PERMITS), Usage::default(), &peer, &request);
            full += u32::from(lent.is_err());
        }
    }
    assert_eq!((lender.accounts.len(), full), (16, 24 * 20));
    assert!(lender.accounts.values().all(|account| account.lent.len() <= MAX_LENT));
    assert!(lender.fields().iter().map(|(field, value)| field.len() + value.len()).sum::<usize>() < 16 * 900);
}

fn any_loan() -> impl Strategy<Value = Loan> {
    let number = || 0..(1_u64 << 53);
    let loan = |(id, amount, from, until)| Loan { id, amount, from, until };
    (number(), any::<u32>(), number(), number()).prop_map(loan)
}

proptest! {
    #[test]
    fn a_record_reads_as_it_was_written(
        lent in prop::collection::vec(any_loan(), 0..=MAX_LENT),
        borrowed in prop::collection::vec(any_loan(), 0..=MAX_BORROWED),
        seen in 0..(1_u64 << 53),
        wanted: u32,
    ) {
        let mut ledger = Ledger::default();
        (ledger.last_id, ledger.claim_until, ledger.misses) = (seen, 7, 2);
        let account = Account { seen, outstanding: 3, sent_at: 4, wanted, spare: 5, lent, borrowed };
        ledger.accounts.insert(name("eu"), account);
        ledger.accounts.insert(name("us-2"), Account::default());
        let fields = ledger.fields();
        let read = Ledger::from_fields(fields.iter().map(|(field, value)| (field.as_str(), value.as_str())));
        prop_assert_eq!(read, Ok(ledger));
    }

    #[test]
    fn any_record_is_read_or_refused(field in ".{0,20}", value in "[0-9 ,;|x-]{0,60}") {
        _ = Ledger::from_fields([(field.as_str(), value.as_str()), ("#", value.as_str()), ("eu", value.as_str())]);
    }
}

#[test]
fn records_of_another_form_are_refused() {
    for (field, value) in [
        ("#", "1 2"),
        ("#", "1 2 3 4"),
        ("#", "1 2 -3"),
        ("#", "1 2 9007199254740992"),
        ("eu", "1 2 3 4 5||"),
        ("EU", "1 2 3 4 5||"),
        ("eu", "1 2 3 4 5|1,2,3|"),
        ("eu", "1 2 3 4 5|1,2,3,4;|"),
        ("eu", "1 2 3 4 5||1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1"),
    ] {
        let read = Ledger::from_fields([(field, value)]);
        assert_eq!(read.is_ok(), (field, value) == ("eu", "1 2 3 4 5||"), "{field} {value}");
    }
}

#[test]
fn demand_is_the_rate_of_two_seconds() {
    let mut demand = Demand::default();
    for millis in 0..10_000 {
        demand.add(NOW + millis * 1_000, 3);
    }
    assert!((5_900..=6_100).contains(&demand.rate(NOW + 10_000_000)), "{demand:?}");
    assert!((2_900..=3_050).contains(&demand.within(NOW + 10_000_000, 1_000_000)));
    assert_eq!(demand.rate(NOW + 14_000_000), 0);
    // A step back of the clock keeps the counts.
    assert_eq!(demand.rate(NOW - 1_000_000).min(6_000), 6_000);
}

#[test]
fn a_region_requests_a_loan_when_it_runs_short_and_a_lender_keeps_a_margin() {
    let kind = LimitKind::FixedWindow { window: 60 };
    let terms = Terms { kind, limit: 6_000, base: 2_000 };
    // Half the window is left.
    let now = Moment { label: NOW / 1_000_000 + 30, micros: NOW };
    let demand = Demand { period: (NOW / 2_000_000) as u32, count: 200, previous: 0 };
    assert_eq!(shortage(&terms, now, 2_000, 1_800, 0, &demand), None);
    assert_eq!(shortage(&terms, now, 2_000, 1_900, 0, &demand), Some(544));
    assert_eq!(range(&terms, now, 1_900, &demand).floor, 1_900 + 120 + 20);
    // 5 % of the share at the window's begin, half of that in its middle.
    assert_eq!(need(&terms, now, 700, &demand), 750);
    // A small share wants all, and keeps nothing.
    let small = Terms { kind, limit: 10, base: 3 };
    assert_eq!(shortage(&small, now, 3, 2, 0, &demand), None);
    assert_eq!(shortage(&small, now, 3, 3, 0, &demand), Some(7));
    assert_eq!(need(&small, now, 2, &demand), 2);
}

#[test]
fn loans_are_prolonged_shortly_before_their_end_even_in_a_pause() {
    let eu = name("eu");
    for (kind, until_due) in [
        (LimitKind::FixedWindow { window: 60 }, None),
        (LimitKind::FixedWindow { window: 1 }, Some(4_000_000)),
        (
            LimitKind::SlidingWindow { window: 60 },
            Some(now(LimitKind::SlidingWindow { window: 60 }).label * 1_000_000 - NOW),
        ),
        (PERMITS, Some(3_000_001)),
    ] {
        let terms = terms(kind);
        let mut ledger = Ledger::default();
        let request = ask(&mut ledger, &terms, &eu, 10);
        let reply = lend_all(&mut Ledger::default(), &terms, &request).expect("answered");
        accept(&mut ledger, &terms, &eu, &reply).expect("taken");
        conclude(&mut ledger, now(kind), 1_000, 0);
        assert!(!may_request(&ledger, now(kind)), "{kind:?} pauses");
        assert_eq!(until_renewal(&ledger, &terms, now(kind)), until_due, "{kind:?}");
        let Some(wait) = until_due else { continue };
        let later = |micros: u64| {
            let seconds = (NOW + micros) / 1_000_000;
            let label = kind.label_step().map_or(NOW + micros, |step| seconds - seconds % step + step);
            Moment { label, micros: NOW + micros }
        };
        assert!(!must_renew(&ledger, &terms, later(wait - 1)), "{kind:?} early");
        assert!(must_renew(&ledger, &terms, later(wait)), "{kind:?} due");
    }
}
