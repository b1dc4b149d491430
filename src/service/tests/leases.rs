//! Concurrency limits: who gets a lease, and what gives places back.

use prost_types::value::Kind;

use super::*;

const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
- {key: tenant, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- {key: watched, shadow_mode: true, rate_limit: {algorithm: concurrency, requests_per_unit: 1}}
- {key: team, value: 't*', share_threshold: true, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
- {key: once, rate_limit: {unit: hour, requests_per_unit: 1}}
";

const USER: (&str, &str) = ("user", "me");
const TENANT: (&str, &str) = ("tenant", "ours");

struct Leases(Asked);

impl Leases {
    fn with(modes: Modes) -> Self {
        let answers = Answers { dynamic_metadata: false, ..answers(HeaderStyle::Off) };
        Self(Asked::by(RULES, modes, answers))
    }

    fn plain() -> Self {
        Self::with(Modes::default())
    }

    /// Asks for one place each; gives the code and the lease's name.
    async fn take(&self, entries: &[(&str, &str)]) -> (wire::Code, Option<String>) {
        self.ask(entries.iter().map(|(key, value)| descriptor(key, value)).collect()).await
    }

    async fn ask(&self, descriptors: Vec<RateLimitDescriptor>) -> (wire::Code, Option<String>) {
        let answer = self.0.about(descriptors).await;
        (answer.overall_code(), lease_of(&answer))
    }

    /// Gives the places of a lease back.
    async fn release(&self, entries: &[(&str, &str)], lease: &str) -> RateLimitResponse {
        self.0.about(entries.iter().map(|(key, value)| releasing(key, value, lease)).collect()).await
    }

    /// How many places are free.
    async fn free(&self, (key, value): (&str, &str)) -> u32 {
        let look = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, value) };
        self.0.about(vec![look]).await.statuses[0].limit_remaining
    }
}

fn lease_of(answer: &RateLimitResponse) -> Option<String> {
    match answer.dynamic_metadata.as_ref()?.fields.get("lease")?.kind.as_ref()? {
        Kind::StringValue(lease) => Some(lease.clone()),
        other => panic!("a lease's name is a text: {other:?}"),
    }
}

fn releasing(key: &str, value: &str, lease: &str) -> RateLimitDescriptor {
    let mut descriptor = descriptor(key, value);
    descriptor.entries.push(Entry { key: "lease".into(), value: lease.into() });
    descriptor
}

fn bringing(limit: u32, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit: limit, unit: 3, unit_multiplier: None };
    RateLimitDescriptor { limit: Some(limit), ..descriptor }
}

#[tokio::test]
async fn one_lease_holds_the_places_of_every_limit_of_a_request() {
    let asked = Leases::plain();
    let (code, lease) = asked.take(&[USER, TENANT]).await;
    let lease = lease.expect("a lease");
    assert_eq!((code, lease.len()), (Ok, 16));
    assert_eq!((asked.free(USER).await, asked.free(TENANT).await), (1, 4));
    let answer = asked.release(&[USER, TENANT], &lease).await;
    assert_eq!(codes(&answer), (Ok, vec![Ok, Ok]));
    assert_eq!(lease_of(&answer), None, "who gives back holds nothing");
    assert_eq!((asked.free(USER).await, asked.free(TENANT).await), (2, 5));
}

#[tokio::test]
async fn a_request_that_is_denied_holds_nothing_and_has_no_lease() {
    let asked = Leases::plain();
    asked.take(&[("once", "x")]).await;
    assert_eq!(asked.take(&[USER, ("once", "x")]).await, (OverLimit, None));
    assert_eq!(asked.free(USER).await, 2);
    asked.take(&[USER]).await;
    asked.take(&[USER]).await;
    assert_eq!(asked.take(&[TENANT, USER]).await, (OverLimit, None));
    assert_eq!((asked.free(USER).await, asked.free(TENANT).await), (0, 5));
    let denied = asked.0.about(vec![descriptor(USER.0, USER.1)]).await;
    assert_eq!(header(&denied, "Retry-After"), Some("1"));
}

#[tokio::test]
async fn only_the_lease_that_took_a_place_gives_it_back_and_only_once() {
    let asked = Leases::plain();
    let first = asked.take(&[USER]).await.1.expect("a lease");
    asked.take(&[USER]).await;
    for stranger in
        ["", "0", "no lease at all!", "0000000000000000", "00000000000000ff", &format!("{first} ")]
    {
        assert_eq!(codes(&asked.release(&[USER], stranger).await), (Ok, vec![Ok]), "{stranger}");
        assert_eq!(asked.free(USER).await, 0, "{stranger}");
    }
    assert_eq!(asked.release(&[("user", "other")], &first).await.overall_code(), Ok);
    for _ in 0..2 {
        assert_eq!(codes(&asked.release(&[USER], &first).await), (Ok, vec![Ok]));
        assert_eq!(asked.free(USER).await, 1);
    }
}

#[tokio::test]
async fn a_request_may_take_several_places_that_one_release_gives_back() {
    let asked = Leases::plain();
    let several = RateLimitDescriptor { hits_addend: Some(4), ..descriptor(TENANT.0, TENANT.1) };
    let (_, lease) = asked.ask(vec![several]).await;
    assert_eq!(asked.free(TENANT).await, 1);
    asked.release(&[TENANT], &lease.expect("a lease")).await;
    assert_eq!(asked.free(TENANT).await, 5);
}

#[tokio::test]
async fn a_limit_that_is_only_watched_gives_a_lease_while_there_are_places() {
    let asked = Leases::plain();
    let watched = ("watched", "x");
    let (code, lease) = asked.take(&[watched]).await;
    assert_eq!((code, lease.is_some(), asked.free(watched).await), (Ok, true, 0));
    assert_eq!(asked.take(&[watched]).await, (Ok, None));
    asked.release(&[watched], &lease.expect("a lease")).await;
    assert_eq!(asked.free(watched).await, 1);

    let asked = Leases::with(Modes { shadow: true, ..Modes::default() });
    for place in [true, true, false] {
        let (code, lease) = asked.take(&[USER]).await;
        assert_eq!((code, lease.is_some()), (Ok, place));
    }
}

#[tokio::test]
async fn a_limit_that_the_request_brings_along_says_how_many_places_there_are() {
    let asked = Leases::plain();
    let three = || vec![bringing(3, descriptor(USER.0, USER.1))];
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(asked.ask(three()).await.1.expect("a lease"));
    }
    assert_eq!(asked.ask(three()).await, (OverLimit, None));
    for lease in leases {
        asked.release(&[USER], &lease).await;
    }
    assert_eq!(asked.free(USER).await, 2);
}

#[tokio::test]
async fn places_that_values_share_are_given_back_whatever_limit_took_them() {
    let asked = Leases::plain();
    let team = ("team", "t1");
    let (code, lease) = asked.ask(vec![bringing(9, descriptor(team.0, team.1))]).await;
    assert_eq!((code, asked.free(("team", "t2")).await), (Ok, 1), "they are the rule's own places");
    asked.release(&[team], &lease.expect("a lease")).await;
    assert_eq!(asked.ask(vec![bringing(1, descriptor(team.0, team.1))]).await.0, Ok);
}

#[tokio::test]
async fn where_no_rule_gives_places_back_a_limit_that_is_brought_along_takes_none() {
    let rules = RULES.replace("domain: d", "domain: d\ndefaults: {algorithm: concurrency}");
    let rules = rules.replace("{unit: hour,", "{algorithm: fixed_window, unit: hour,");
    let asked = Asked::by(&rules, Modes::default(), answers(HeaderStyle::Off));
    let answer = asked.about(vec![bringing(3, descriptor("unknown", "x"))]).await;
    assert_eq!(lease_of(&answer), None);
    let limit = answer.statuses[0].current_limit.as_ref().expect("a limit");
    assert_eq!((limit.unit(), answer.statuses[0].limit_remaining), (Unit::Hour, 2));
}

#[tokio::test]
async fn an_answer_that_is_not_handed_over_holds_nothing() {
    let asked = Leases::plain();
    let descriptors = vec![descriptor(USER.0, USER.1), descriptor(TENANT.0, TENANT.1)];
    let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 };
    let answer =
        asked.0.service.answer(&request, Patience::UNKNOWN, &mut Span::off()).await.expect("an answer");
    assert_eq!((asked.free(USER).await, asked.free(TENANT).await), (1, 4));
    drop(answer);
    assert_eq!((asked.free(USER).await, asked.free(TENANT).await), (2, 5));
}
