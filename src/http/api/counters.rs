//! `POST /counters/…`: what a counter says, and giving hits back to it.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};

use super::{
    answer::{self, Answer},
    body::Body,
    error::ApiError,
    heavy::Lane,
    parts::Api,
    reason::Reason,
    request::Pairs,
    wait,
    whole::Whole,
};
use crate::{
    algorithm::Verdict,
    control::Action,
    descriptor::Hits,
    http::access::Caller,
    limiter::Asks,
    limiter::explain::{is_spaced, limit_text},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    domain: String,
    descriptor: Pairs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    domain: String,
    descriptor: Pairs,
    reason: Option<Reason>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refund {
    domain: String,
    descriptor: Pairs,
    hits: Whole,
    reason: Option<Reason>,
}

/// A counter, and whose it is.
#[derive(Debug, Serialize)]
struct CounterView {
    rule: String,
    limit: String,
    #[serde(flatten)]
    said: Said,
}

/// What a counter says.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Said {
    pub(super) used: u64,
    pub(super) remaining: u32,
    /// Unknown where hits have to keep a distance: a look does not tell when the last one was.
    pub(super) would_pass: Option<bool>,
    pub(super) reset_after_ms: u64,
}

impl Said {
    /// What a look says of a counter whose hits may have to keep a distance.
    pub(super) fn new(verdict: Verdict, is_spaced: bool) -> Self {
        // Of one hit, which a look is not.
        let has_room = verdict.admitted && verdict.remaining > 0;
        let is_known = !has_room || !is_spaced || verdict.used == 0;
        Self {
            used: verdict.used,
            remaining: verdict.remaining,
            would_pass: is_known.then_some(has_room),
            reset_after_ms: u64::try_from(verdict.reset_after.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// A counter that a descriptor meets by the rules in force, and what it is asked.
struct Met {
    rule: String,
    limit: String,
    is_spaced: bool,
    /// Whether its counter is that of a concurrency limit, whose places it would give back.
    gives_back: bool,
    asks: Asks,
}

/// Looks at a counter.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Read>,
) -> Answer {
    let met = api.met(Lane::Look(&caller), asked.domain, asked.descriptor, Hits::Peek).await?;
    api.ask_counter(met).await
}

/// Has a counter as good as unused.
pub(super) async fn reset(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Reset>,
) -> Answer {
    let subject = format!("{} {}", asked.domain, asked.descriptor.shown());
    let met = api.met(Lane::Change, asked.domain, asked.descriptor, Hits::reset()).await?;
    api.note(&caller, &met, Action::ResetCounter, subject, asked.reason).await?;
    api.ask_counter(met).await
}

/// Gives hits back to a counter.
pub(super) async fn refund(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Refund>,
) -> Answer {
    let Whole(hits) = asked.hits;
    if hits == 0 {
        return Err(ApiError::BadRequest("hits: expected 1 or more".to_owned()));
    }
    let subject = format!("{} {} by {hits}", asked.domain, asked.descriptor.shown());
    let met = api.met(Lane::Change, asked.domain, asked.descriptor, Hits::refund(hits)).await?;
    api.note(&caller, &met, Action::RefundCounter, subject, asked.reason).await?;
    api.ask_counter(met).await
}

fn no_counter() -> ApiError {
    ApiError::NotFound("no counter would be met: no rule with a limit matches".to_owned())
}

impl Api {
    /// The counter that a descriptor meets. Long values and many expressions take long, so that is found on another thread.
    async fn met(
        self: &Arc<Self>,
        lane: Lane<'_>,
        domain: String,
        pairs: Pairs,
        hits: Hits,
    ) -> Result<Met, ApiError> {
        let api = Arc::clone(self);
        let met = self.turns.look(lane, move || {
            let in_force = api.parts.rules.load()?;
            let domain = in_force.domain(&domain)?;
            let descriptor = pairs.descriptor(hits);
            let lease = domain.root.rule_of_lease(&descriptor.entries);
            let by_lease = lease.map(|(rule, _, _)| rule);
            let rule = by_lease.or_else(|| domain.root.rule(&descriptor.entries))?;
            rule.algorithm()?;
            Some(Met {
                rule: rule.path(),
                limit: limit_text(domain, rule),
                is_spaced: is_spaced(rule),
                gives_back: by_lease.is_some(),
                asks: api.parts.counters.asks(domain, &[descriptor]),
            })
        });
        met.await?.ok_or_else(no_counter)
    }

    /// Notes what is about to be done to a counter: nothing is changed that is not noted.
    async fn note(
        &self,
        caller: &Caller,
        met: &Met,
        action: Action,
        subject: String,
        reason: Option<Reason>,
    ) -> Result<(), ApiError> {
        if met.gives_back {
            let message = "descriptor: expected no lease: its places are given back by who holds it";
            return Err(ApiError::BadRequest(message.to_owned()));
        }
        let reason = reason.map(|Reason(words)| words).unwrap_or_default();
        let note = self.parts.control.note(&caller.name, action, &subject, &reason);
        Ok(wait::write(note).await?)
    }

    async fn ask_counter(&self, Met { rule, limit, is_spaced, gives_back, asks }: Met) -> Answer {
        let mut seen = self.parts.counters.ask(&asks).await;
        let verdict = seen.pop().flatten().ok_or_else(no_counter)??;
        let mut said = Said::new(verdict, is_spaced);
        if gives_back {
            said.would_pass = Some(true);
        }
        answer::json(&CounterView { rule, limit, said })
    }
}
