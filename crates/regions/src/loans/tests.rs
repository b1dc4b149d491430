//! Answers of a lender to loan requests that a hostile region may send.

use tollgate_core::{RecordId, clock::Clock, descriptor::Entry};
use tollgate_fixtures::{NOW, active, counter, memory_store};
use tollgate_limiter::{OwnShares, Replicas};
use tollgate_proto::tollgate::region::v1::{CounterLoanRequest, counter_reply::Result as Outcome};
use tollgate_rules::Limit;
use tollgate_store::key::CellKey;
use tollgate_store::loans::regions::message::{Holding, LoanRequest};
use tollgate_store::loans::{ShareWatch, SharedCounter};

use super::{Borrower, Lender};
use crate::{loans, tests::regions};

const RULES: &str = "domain: d\ndescriptors:\n\
    - {key: k, rate_limit: {unit: day, requests_per_unit: 900, scope: global}}\n\
    - {key: r, rate_limit: {unit: day, requests_per_unit: 900}}\n";

/// A lender with a third of the limit, and the counters of `k=v` and of the regional `r=v`.
struct Bench {
    lender: Lender,
    shared: SharedCounter,
    regional: (CellKey, RecordId),
}

fn bench() -> Bench {
    let shares = OwnShares::default();
    let regions = regions("", &["ap", "eu", "us"], shares.clone());
    let rules = active(RULES);
    let loaded = rules.load().expect("loaded");
    let domain = loaded.domain("d").expect("stated");
    let rule = domain.root.rule(&[Entry { key: "k", value: "v" }]).expect("stated");
    let (Limit::Quota { quota, .. }, Some(policy)) = (&rule.limit, rule.policy()) else { panic!("limited") };
    let (cell, record) = counter(&rules, "k", "v");
    let shared = shares.counter(*quota, &policy, cell, record, &Clock::System).expect("shared");
    let regional = counter(&rules, "r", "v");
    let (store, watch) = (memory_store(), ShareWatch::default());
    let borrower = Borrower::new(regions, store, watch, Replicas::default());
    let lender = Lender::new(rules, borrower);
    Bench { lender, shared, regional }
}

fn request(id: u64, want: u32) -> LoanRequest {
    LoanRequest { id, label: NOW / 1_000_000 / 86_400 * 86_400 + 86_400, hold: 0, want, have: Vec::new() }
}

impl Bench {
    async fn answer(&self, peer: &str, message: &CounterLoanRequest) -> (Outcome, u32) {
        let reply = self.lender.answer(peer, message).await;
        (reply.result(), reply.amount)
    }
}

#[tokio::test]
async fn a_request_of_any_amount_brings_no_more_than_the_share_and_a_replayed_one_nothing() {
    let bench = bench();
    let message = loans::request_of(&bench.shared, &request(NOW, u32::MAX));
    let (result, amount) = bench.answer("eu", &message).await;
    assert_eq!(result, Outcome::Answered);
    // A lender keeps a twentieth for itself.
    assert!((200..=300).contains(&amount), "{amount}");
    assert_eq!(bench.answer("eu", &message).await, (Outcome::Ignored, 0));
    let earlier = loans::request_of(&bench.shared, &request(NOW - 1, 5));
    assert_eq!(bench.answer("eu", &earlier).await, (Outcome::Ignored, 0));
    let other = loans::request_of(&bench.shared, &request(NOW, u32::MAX));
    let (result, more) = bench.answer("ap", &other).await;
    assert_eq!(result, Outcome::Answered);
    assert!(amount + more <= 300, "{amount} and {more} of 300");
}

#[tokio::test]
async fn forged_and_malformed_requests_change_nothing() {
    let bench = bench();
    let good = loans::request_of(&bench.shared, &request(NOW, 5));
    let (cell, record) = &bench.regional;
    let far = LoanRequest { label: 7, ..request(NOW, 5) };
    let long = LoanRequest { have: (0..17).map(|id| Holding { id, amount: 1 }).collect(), ..request(NOW, 5) };
    for (message, expected) in [
        (CounterLoanRequest { terms: good.terms ^ 1, ..good.clone() }, Outcome::Rule),
        (CounterLoanRequest { cell: b"{e|k=v}".to_vec(), ..good.clone() }, Outcome::Rule),
        (CounterLoanRequest { cell: b"{tollgate-rules}head".to_vec(), ..good.clone() }, Outcome::Rule),
        (
            CounterLoanRequest {
                cell: cell.as_bytes().to_vec(),
                record: record.as_bytes().to_vec(),
                ..good.clone()
            },
            Outcome::Rule,
        ),
        (CounterLoanRequest { record: vec![1; 5], ..good.clone() }, Outcome::Ignored),
        (loans::request_of(&bench.shared, &request(u64::MAX, 5)), Outcome::Ignored),
        (loans::request_of(&bench.shared, &far), Outcome::Ignored),
        (loans::request_of(&bench.shared, &long), Outcome::Ignored),
    ] {
        assert_eq!(bench.answer("eu", &message).await, (expected, 0), "{message:?}");
    }
    assert_eq!(bench.answer("no region", &good).await.0, Outcome::Ignored);
    assert_eq!(bench.answer("eu", &good).await, (Outcome::Answered, 5), "the good one still counts");
}

#[tokio::test]
async fn requests_beyond_the_bound_are_not_answered() {
    let bench = bench();
    let mut answered = 0;
    for number in 0..3_000 {
        let message = loans::request_of(&bench.shared, &request(NOW + number, 0));
        answered += u32::from(bench.answer("eu", &message).await.0 != Outcome::Busy);
    }
    assert!(answered < 3_000, "all were answered");
}
