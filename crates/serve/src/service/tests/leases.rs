//! Concurrency limits: acquiring and releasing permits.

use prost_types::value::Kind;

use super::*;

pub(super) const RULES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
- {key: tenant, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- {key: shadow, shadow_mode: true, rate_limit: {algorithm: concurrency, requests_per_unit: 1}}
- {key: team, value: 't*', share_threshold: true, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
- {key: once, rate_limit: {unit: hour, requests_per_unit: 1}}
";

const USER: (&str, &str) = ("user", "me");
const TENANT: (&str, &str) = ("tenant", "ours");

struct Leases(TestService);

impl Leases {
    fn with(modes: Modes) -> Self {
        let options = ResponseOptions { dynamic_metadata: false, ..options(HeaderStyle::Off) };
        Self(TestService::with_rules(RULES, modes, options))
    }

    fn plain() -> Self {
        Self::with(Modes::default())
    }

    /// Acquires one permit for each entry; returns the code and the lease's id.
    async fn acquire(&self, entries: &[(&str, &str)]) -> (wire::Code, Option<String>) {
        self.call(entries.iter().map(|(key, value)| descriptor(key, value)).collect()).await
    }

    async fn call(&self, descriptors: Vec<RateLimitDescriptor>) -> (wire::Code, Option<String>) {
        let response = self.0.call(descriptors).await;
        (response.overall_code(), lease_of(&response))
    }

    /// Releases the permits of a lease.
    async fn release(&self, entries: &[(&str, &str)], lease: &str) -> RateLimitResponse {
        self.0.call(entries.iter().map(|(key, value)| releasing(key, value, lease)).collect()).await
    }

    /// Number of free permits.
    async fn free(&self, (key, value): (&str, &str)) -> u32 {
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, value) };
        self.0.call(vec![peek]).await.statuses[0].limit_remaining
    }
}

pub(super) fn lease_of(response: &RateLimitResponse) -> Option<String> {
    match response.dynamic_metadata.as_ref()?.fields.get("lease")?.kind.as_ref()? {
        Kind::StringValue(lease) => Some(lease.clone()),
        other => panic!("expected a lease id: {other:?}"),
    }
}

fn releasing(key: &str, value: &str, lease: &str) -> RateLimitDescriptor {
    let mut descriptor = descriptor(key, value);
    descriptor.entries.push(Entry { key: "lease".into(), value: lease.into() });
    descriptor
}

#[tokio::test]
async fn one_lease_holds_the_permits_of_every_limit_of_a_request() {
    let service = Leases::plain();
    let (code, lease) = service.acquire(&[USER, TENANT]).await;
    let lease = lease.expect("a lease");
    assert_eq!((code, lease.len()), (Ok, 16));
    assert_eq!((service.free(USER).await, service.free(TENANT).await), (1, 4));
    let response = service.release(&[USER, TENANT], &lease).await;
    assert_eq!(codes(&response), (Ok, vec![Ok, Ok]));
    assert_eq!(lease_of(&response), None, "a release gets no lease");
    assert_eq!((service.free(USER).await, service.free(TENANT).await), (2, 5));
}

#[tokio::test]
async fn a_request_that_is_denied_holds_nothing_and_has_no_lease() {
    let service = Leases::plain();
    service.acquire(&[("once", "x")]).await;
    assert_eq!(service.acquire(&[USER, ("once", "x")]).await, (OverLimit, None));
    assert_eq!(service.free(USER).await, 2);
    service.acquire(&[USER]).await;
    service.acquire(&[USER]).await;
    assert_eq!(service.acquire(&[TENANT, USER]).await, (OverLimit, None));
    assert_eq!((service.free(USER).await, service.free(TENANT).await), (0, 5));
    let denied = service.0.call(vec![descriptor(USER.0, USER.1)]).await;
    assert_eq!(header(&denied, "Retry-After"), Some("1"));
}

#[tokio::test]
async fn a_permit_is_released_only_by_its_lease_and_only_once() {
    let service = Leases::plain();
    let first = service.acquire(&[USER]).await.1.expect("a lease");
    service.acquire(&[USER]).await;
    for foreign in ["", "0", "no lease at all!", "0000000000000000", "00000000000000ff", &format!("{first} ")]
    {
        assert_eq!(codes(&service.release(&[USER], foreign).await), (Ok, vec![Ok]), "{foreign}");
        assert_eq!(service.free(USER).await, 0, "{foreign}");
    }
    assert_eq!(service.release(&[("user", "other")], &first).await.overall_code(), Ok);
    for _ in 0..2 {
        assert_eq!(codes(&service.release(&[USER], &first).await), (Ok, vec![Ok]));
        assert_eq!(service.free(USER).await, 1);
    }
}

#[tokio::test]
async fn one_release_returns_several_permits_of_a_request() {
    let service = Leases::plain();
    let several = RateLimitDescriptor { hits_addend: Some(4), ..descriptor(TENANT.0, TENANT.1) };
    let (_, lease) = service.call(vec![several]).await;
    assert_eq!(service.free(TENANT).await, 1);
    service.release(&[TENANT], &lease.expect("a lease")).await;
    assert_eq!(service.free(TENANT).await, 5);
}

#[tokio::test]
async fn a_limit_in_shadow_mode_grants_a_lease_while_permits_are_free() {
    let service = Leases::plain();
    let shadow = ("shadow", "x");
    let (code, lease) = service.acquire(&[shadow]).await;
    assert_eq!((code, lease.is_some(), service.free(shadow).await), (Ok, true, 0));
    assert_eq!(service.acquire(&[shadow]).await, (Ok, None));
    service.release(&[shadow], &lease.expect("a lease")).await;
    assert_eq!(service.free(shadow).await, 1);

    let service = Leases::with(Modes { shadow: true, ..Modes::default() });
    for granted in [true, true, false] {
        let (code, lease) = service.acquire(&[USER]).await;
        assert_eq!((code, lease.is_some()), (Ok, granted));
    }
}

#[tokio::test]
async fn a_limit_override_sets_the_number_of_permits() {
    let service = Leases::plain();
    let three = || vec![overriding(3, descriptor(USER.0, USER.1))];
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(service.call(three()).await.1.expect("a lease"));
    }
    assert_eq!(service.call(three()).await, (OverLimit, None));
    for lease in leases {
        service.release(&[USER], &lease).await;
    }
    assert_eq!(service.free(USER).await, 2);
}

#[tokio::test]
async fn shared_permits_are_released_whichever_limit_acquired_them() {
    let service = Leases::plain();
    let team = ("team", "t1");
    let (code, lease) = service.call(vec![overriding(9, descriptor(team.0, team.1))]).await;
    assert_eq!((code, service.free(("team", "t2")).await), (Ok, 1), "they are the permits of the rule");
    service.release(&[team], &lease.expect("a lease")).await;
    assert_eq!(service.call(vec![overriding(1, descriptor(team.0, team.1))]).await.0, Ok);
}

#[tokio::test]
async fn a_limit_override_without_a_concurrency_rule_acquires_no_permits() {
    let rules = RULES.replace("domain: d", "domain: d\ndefaults: {algorithm: concurrency}");
    let rules = rules.replace("{unit: hour,", "{algorithm: fixed_window, unit: hour,");
    let service = TestService::with_rules(&rules, Modes::default(), options(HeaderStyle::Off));
    let response = service.call(vec![overriding(3, descriptor("unknown", "x"))]).await;
    assert_eq!(lease_of(&response), None);
    let limit = response.statuses[0].current_limit.as_ref().expect("a limit");
    assert_eq!((limit.unit(), response.statuses[0].limit_remaining), (Unit::Hour, 2));
}

#[tokio::test]
async fn a_response_that_is_not_delivered_releases_its_permits() {
    let service = Leases::plain();
    let descriptors = vec![descriptor(USER.0, USER.1), descriptor(TENANT.0, TENANT.1)];
    let response = service.0.answer("d", descriptors).await;
    assert_eq!((service.free(USER).await, service.free(TENANT).await), (1, 4));
    drop(response);
    assert_eq!((service.free(USER).await, service.free(TENANT).await), (2, 5));
}
