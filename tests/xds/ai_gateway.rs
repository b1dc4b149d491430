//! Quotas of Envoy AI Gateway: the resource that its control plane pushes for QuotaPolicies, and the calls that its filter
//! makes.
//!
//! The snapshot is what version 1.0.0 makes of a policy with a quota for each of two models of two backends, and of one
//! with a quota for all models of a backend. At a request the filter sends an entry for each backend that may serve it, of
//! one hit; at the end of the response one of the backend that did, with its tokens.

use super::{overlay::snapshot_of, *};

const DOMAIN: &str = "ai-gateway-quota";

/// Entries of a descriptor: the backend, the model, and what else distinguishes the quota.
type Entries<'a> = &'a [(&'a str, &'a str)];

const OPENAI: (&str, &str) = ("backend_name", "llm/openai");
const AZURE: (&str, &str) = ("backend_name", "llm/azure");
const SMALL: (&str, &str) = ("model_name_override", "small");
const LARGE: (&str, &str) = ("model_name_override", "large");
const DEFAULT: (&str, &str) = ("rule-2-match--1", "rule-2-match--1");

async fn charge(client: &mut Client, hits: u64, descriptors: &[Entries<'_>]) -> (Code, Vec<Code>) {
    let mut request = request(DOMAIN, descriptors);
    request.descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(hits));
    let answer = client.call(request).await.expect("an answer");
    (answer.overall_code(), answer.statuses.iter().map(|status| status.code()).collect())
}

#[tokio::test]
async fn quotas_of_ai_gateway_deny_when_those_of_every_backend_are_spent() {
    let (_plane, instance) = XdsInstance::with_rules(&snapshot_of("tests/xds/ai-gateway-snapshot.json"), &[]);
    let mut client = instance.client().await;

    // Ten tokens an hour for each backend.
    let both: [Entries<'_>; 2] = [&[OPENAI, SMALL], &[AZURE, SMALL]];
    assert_eq!(charge(&mut client, 1, &both).await, (Code::Ok, vec![Code::Ok, Code::Ok]));
    charge(&mut client, 30, &both[..1]).await;
    let spent = (Code::Ok, vec![Code::OverLimit, Code::Ok]);
    assert_eq!(charge(&mut client, 1, &both).await, spent, "the router may use the other backend");
    charge(&mut client, 30, &both[1..]).await;
    let denied = (Code::OverLimit, vec![Code::OverLimit, Code::OverLimit]);
    assert_eq!(charge(&mut client, 1, &both).await, denied);

    // A quota of its own for each tenant beside that of all.
    let of = |tenant| [OPENAI, LARGE, ("rule-0-x-tenant-match-0", tenant)];
    let all = [OPENAI, LARGE, DEFAULT];
    let (ann, bob) = (of("ann"), of("bob"));
    charge(&mut client, 20, &[&ann]).await;
    assert_eq!(charge(&mut client, 1, &[&ann, &all]).await, (Code::Ok, vec![Code::OverLimit, Code::Ok]));
    charge(&mut client, 100, &[&all]).await;
    assert_eq!(charge(&mut client, 1, &[&ann, &all]).await.0, Code::OverLimit);
    assert_eq!(charge(&mut client, 1, &[&bob, &all]).await, (Code::Ok, vec![Code::Ok, Code::OverLimit]));

    // A rule in shadow mode counts and denies nothing.
    let plan = ("rule-1-x-plan|free-match-0", "rule-1-x-plan|free-match-0");
    let shadow = [OPENAI, LARGE, plan, ("rule-1-x-tenant-match-1", "ann")];
    assert_eq!(charge(&mut client, 50, &[&shadow]).await.0, Code::Ok);

    // The quota of a backend is for the models without one.
    let other = [AZURE, ("model_name_override", "other")];
    assert_eq!(charge(&mut client, 1_000, &[&other]).await.0, Code::Ok);
    assert_eq!(charge(&mut client, 1, &[&other]).await.0, Code::OverLimit);
    let unlimited = [OPENAI, ("model_name_override", "other")];
    assert_eq!(charge(&mut client, 1_000, &[&unlimited]).await.0, Code::Ok);
}
