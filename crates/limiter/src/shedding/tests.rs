//! Decisions of rules that shed, beside limits, lists and switches.

use tollgate_shedding::{PassRates, SheddingGate, SheddingState};

use super::*;
use crate::test_prelude::*;

const RULES: &str = "
domain: d
descriptors:
- {key: service, value: shop, load_shedding: {target: 80%}}
- {key: service, value: shadow, shadow_mode: true, load_shedding: {target: 80%}}
- {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
";

struct Subject {
    limiter: Limiter,
    rules: Arc<ActiveRules>,
    clock: Clock,
}

impl Subject {
    fn new(modes: Modes) -> Self {
        let rules = active_rules(RULES, Options::default());
        let clock = Clock::manual(Timestamp::from_micros(1_000_000));
        let store = Store::new(MemoryStore::new(100, clock.clone()));
        let limiter = Limiter { clock: clock.clone(), ..Limiter::new(Arc::clone(&rules), store, modes) };
        Self { limiter, rules, clock }
    }

    fn gate(&self, service: &str) -> Arc<SheddingGate> {
        let rules = self.rules.load().expect("loaded");
        let root = &rules.domain("d").expect("stated").root;
        let rule = root.rule(&[Entry { key: "service", value: service }]).expect("stated");
        Arc::clone(rule.shedding.as_ref().expect("sheds").gate())
    }

    /// Lets the part `passed` of the requests of a service pass, all of which are of the priority `default`.
    fn let_pass(&self, service: &str, passed: f64) {
        let rates = PassRates::of(passed, [0.0, 0.0, 1.0, 0.0], 0.0);
        self.gate(service).set(SheddingState { rates, ..SheddingState::default() });
    }

    fn call(&self, descriptors: &[&[(&str, &str)]], check: impl FnOnce(&Decision<'_>)) {
        self.call_with(Hits::ONE, descriptors, check);
    }

    fn call_with(&self, hits: Hits, descriptors: &[&[(&str, &str)]], check: impl FnOnce(&Decision<'_>)) {
        let descriptors: Vec<_> = descriptors.iter().map(|entries| descriptor(entries, hits)).collect();
        let decided = decided(&self.limiter, "d", &descriptors, |decision, _| check(&decision));
        futures_util::FutureExt::now_or_never(decided).expect("at once");
    }

    fn code(&self, descriptors: &[&[(&str, &str)]]) -> Code {
        let mut code = None;
        self.call(descriptors, |decision| code = Some(decision.code));
        code.expect("called")
    }

    /// Hits left to the user, without using one.
    fn left(&self) -> u64 {
        let mut left = 0;
        self.call_with(Hits::Peek, &[&[("user", "ann")]], |decision| {
            left = decision.statuses[0].limited().expect("limited").verdict.remaining;
        });
        left
    }
}

const SHOP: &[(&str, &str)] = &[("service", "shop")];
const CRITICAL: &[(&str, &str)] = &[("service", "shop"), ("priority", "critical")];
const LOW: &[(&str, &str)] = &[("service", "shop"), ("priority", "low")];
const USER: &[(&str, &str)] = &[("user", "ann")];

#[test]
fn a_low_priority_is_shed_first_and_requests_without_one_are_default() {
    let subject = Subject::new(Modes::default());
    assert_eq!([SHOP, CRITICAL, LOW].map(|entries| subject.code(&[entries])), [Code::Ok; 3]);
    subject.let_pass("shop", 0.0);
    // Rates for requests that there are none of depend on the room for them.
    let rates = PassRates::of(0.5, [0.5, 0.0, 0.25, 0.25], 0.0);
    subject.gate("shop").set(SheddingState { rates, ..SheddingState::default() });
    assert_eq!(subject.code(&[CRITICAL]), Code::Ok);
    assert_eq!([SHOP, LOW].map(|entries| subject.code(&[entries])), [Code::OverLimit; 2]);
}

#[test]
fn a_request_that_is_shed_is_retried_in_seconds_and_charges_nothing_else() {
    let subject = Subject::new(Modes::default());
    subject.let_pass("shop", 0.0);
    subject.call(&[SHOP, USER], |decision| {
        assert_eq!(decision.code, Code::OverLimit);
        let retry_after = decision.retry_after().expect("denied");
        assert!((1..=5).contains(&retry_after.as_secs()), "{retry_after:?}");
        assert!(decision.statuses[0].denying_shed().is_some());
    });
    assert_eq!(subject.left(), 5);
    subject.let_pass("shop", 1.0);
    assert_eq!(subject.code(&[SHOP, USER]), Code::Ok);
    assert_eq!(subject.left(), 4);
}

#[test]
fn shadow_mode_of_the_rule_or_the_process_only_counts() {
    let subject = Subject::new(Modes::default());
    subject.let_pass("shadow", 0.0);
    assert_eq!(subject.code(&[&[("service", "shadow")], USER]), Code::Ok);
    assert_eq!((subject.left(), subject.gate("shadow").counts().shed), (4, [0, 0, 1, 0]));
    let shadow = Subject::new(Modes { shadow: true, ..Modes::default() });
    shadow.let_pass("shop", 0.0);
    assert_eq!(shadow.code(&[SHOP, USER]), Code::Ok);
    assert_eq!((shadow.left(), shadow.gate("shop").counts().shed), (4, [0, 0, 1, 0]));
}

#[test]
fn reports_are_taken_in_every_form_and_never_denied() {
    let subject = Subject::new(Modes::default());
    subject.let_pass("shop", 0.0);
    let report = |value: &'static str| [("service", "shop"), ("utilization", value)];
    for value in ["0.5", "70%", "TEXT cpu_utilization=0.9", "nonsense"] {
        assert_eq!(subject.code(&[&report(value)]), Code::Ok);
    }
    let reported = subject.gate("shop").take_reports().expect("reported");
    assert!((reported - 0.7).abs() < 1e-9, "{reported}");
    subject
        .call_with(Hits::charge(93), &[&report("percent")], |decision| assert_eq!(decision.code, Code::Ok));
    assert_eq!(subject.gate("shop").take_reports(), Some(0.93));
    assert_eq!(subject.gate("shop").counts().requested, [0; 4], "a report is no request");
}

#[test]
fn a_rule_that_is_switched_off_sheds_nothing_and_still_takes_reports() {
    let subject = Subject::new(Modes::default());
    subject.let_pass("shop", 0.0);
    subject.rules.set_lists(Arc::new(switched_off()));
    assert_eq!([SHOP, LOW].map(|entries| subject.code(&[entries])), [Code::Ok; 2]);
    subject.code(&[&[("service", "shop"), ("utilization", "0.5")]]);
    assert_eq!(subject.gate("shop").take_reports(), Some(0.5));
}

fn switched_off() -> Lists {
    let switch = ("d".into(), "service_shop".into(), SwitchMode::Off);
    Lists::new(1, [], [switch])
}

#[tokio::test(start_paused = true)]
async fn the_task_sets_the_rates_from_the_reports() {
    let subject = Subject::new(Modes::default());
    let task = tokio::spawn(subject.limiter.share_utilization());
    for tick in 0..80_u64 {
        for _ in 0..100 {
            subject.code(&[LOW]);
        }
        subject.code(&[&[("service", "shop"), ("utilization", "99%")]]);
        subject.clock.set(Timestamp::from_micros(1_000_000 + tick * 500_000));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let state = subject.gate("shop").state();
    assert!(state.utilization.is_some_and(|known| (known - 0.99).abs() < 0.01), "{state:?}");
    assert!(state.passed < 0.1 && !state.is_shared, "{state:?}");
    let page = crate::metrics::shown_shedding();
    assert!(page.iter().any(|rule| &*rule.path == "service_shop"));
    assert!(!task.is_finished());
    drop(subject);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(task.is_finished(), "it ends with the rules");
}
