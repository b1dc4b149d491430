//! `POST /try`: what a request would meet, under the rules in force or others, charging nothing.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};

use super::{
    answer::{self, Answer},
    body::Body,
    draft::{self, DraftFiles},
    explained::{ExplainedView, Listing},
    heavy::Lane,
    parts::Api,
    reason,
    request::{Pairs, several},
    wait,
};
use crate::{
    control::ListEntry,
    descriptor::{Descriptor, Hits},
    http::access::Caller,
    limiter::{
        Asks, Counters, Modes,
        explain::{Explained, Explanation, explain},
    },
    rules::{List, Overrides, Rules},
};

/// Why it is not known what a limit with a `min_interval` says.
const TOO_SOON: &str = "there is room, but the hit passes only if the last one was min_interval ago or more, and a look does not tell when that was";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Try {
    domain: String,
    descriptors: Vec<Pairs>,
    files: Option<DraftFiles>,
}

/// What a request would meet.
#[derive(Debug, Serialize)]
struct Tried {
    /// Unknown where the store does not say.
    is_over_limit: Option<bool>,
    descriptors: Vec<ExplainedView>,
    text: String,
    /// Why something is unknown, if something is.
    problem: Option<String>,
}

/// What a request meets in the rules and the lists, before the counters are asked.
struct Met {
    descriptors: Vec<(Pairs, Option<Explained>)>,
    text: String,
    asks: Option<Asks>,
    /// Of the lists' entries what is enforced.
    listed: Vec<Option<ListEntry>>,
}

/// Tells what a request would meet.
pub(super) async fn run(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Try>,
) -> Answer {
    several(&asked.descriptors)?;
    let lane = Lane::Look(&caller);
    let Try { domain, descriptors, files } = asked;
    let drafted = match files {
        Some(DraftFiles(files)) => {
            let options = api.parts.options;
            let load = move || draft::load_valid(&files, options).map(|loaded| Arc::new(loaded.rules));
            Some(api.turns.load(lane, load).await??)
        }
        None => None,
    };
    let overrides = api.parts.rules.overrides();
    let (parts, lists) = (Arc::clone(&api), Arc::clone(&overrides));
    let meet = move || {
        let rules = drafted.or_else(|| parts.parts.rules.load()).unwrap_or_default();
        met(&rules, &parts.parts.counters, &lists, &domain, descriptors)
    };
    let met = api.turns.look(lane, meet).await?;
    answer::json(&api.tried(met, &overrides).await)
}

/// Takes long where values are long and expressions are many.
fn met(rules: &Rules, counters: &Counters, overrides: &Overrides, domain: &str, asked: Vec<Pairs>) -> Met {
    let descriptors: Vec<Descriptor<'_>> = asked.iter().map(|pairs| pairs.descriptor(Hits::Peek)).collect();
    let explanation = explain(rules, domain, &descriptors);
    let text = explanation.to_string();
    let asks = rules.domain(domain).map(|domain| counters.asks(domain, &descriptors));
    let now_ms = reason::now_ms();
    let listed = descriptors.iter().map(|descriptor| {
        let allowing = || overrides.allowing(domain, &descriptor.entries, now_ms);
        allowing().or_else(|| overrides.denying(domain, &descriptor.entries, now_ms))
    });
    let listed = listed.map(|found| Some(stub(found?, domain))).collect();
    let explained: Vec<Option<Explained>> = match explanation {
        Explanation::NoDomain { .. } => asked.iter().map(|_| None).collect(),
        Explanation::Domain { descriptors, .. } => descriptors.into_iter().map(Some).collect(),
    };
    drop(descriptors);
    Met { descriptors: asked.into_iter().zip(explained).collect(), text, asks, listed }
}

impl Api {
    async fn tried(&self, met: Met, overrides: &Overrides) -> Tried {
        let Met { descriptors, text, asks, listed } = met;
        let seen = match &asks {
            Some(asks) => self.parts.counters.ask(asks).await,
            None => descriptors.iter().map(|_| None).collect(),
        };
        let listed = self.listed(listed).await;
        let unknown = seen.iter().find_map(|seen| Some(seen.as_ref()?.as_ref().err()?.to_string()));
        let views = descriptors.into_iter().zip(seen).zip(listed);
        let views: Vec<ExplainedView> = views
            .map(|(((pairs, explained), seen), listed)| {
                ExplainedView::new(pairs, explained, seen, listed, overrides)
            })
            .collect();
        let too_soon = || views.iter().any(ExplainedView::may_be_too_soon).then(|| TOO_SOON.to_owned());
        let problem = unknown.or_else(too_soon);
        let is_over_limit = is_over_limit(&views, self.parts.counters.modes());
        Tried { is_over_limit, descriptors: views, text, problem }
    }

    /// The same entries of lists, with who added them and why: that is not part of what is enforced.
    async fn listed(&self, found: Vec<Option<ListEntry>>) -> Vec<Option<ListEntry>> {
        if found.iter().all(Option::is_none) {
            return found;
        }
        let runtime = wait::read(self.parts.control.runtime()).await.unwrap_or_default();
        let whole = |stub: ListEntry| match runtime.entries.iter().find(|entry| entry.id == stub.id) {
            Some(entry) => entry.clone(),
            None => stub,
        };
        found.into_iter().map(|found| found.map(whole)).collect()
    }
}

/// What is known of an entry by what is enforced.
fn stub(listing: &Listing, domain: &str) -> ListEntry {
    ListEntry {
        id: listing.id().to_owned(),
        list: listing.list(),
        domain: domain.to_owned(),
        descriptor: Vec::new(),
        reason: String::new(),
        author: String::new(),
        created_at_ms: 0,
        expires_at_ms: listing.expires_at_ms(),
    }
}

/// Whether a request is over its limit of which each descriptor meets that, if that is known.
fn is_over_limit(views: &[ExplainedView], modes: Modes) -> Option<bool> {
    let is_listed = |list: List| views.iter().any(|view| view.list() == Some(list));
    if modes.shadow || is_listed(List::Allow) {
        return Some(false);
    }
    let (mut is_over, mut is_unknown) = (is_listed(List::Deny), false);
    let (mut quotas, mut exhausted) = (0_usize, 0_usize);
    for view in views {
        let is_quota = modes.quota || view.is_quota();
        quotas = quotas.saturating_add(usize::from(is_quota));
        match view.denies() {
            Some(false) => {}
            Some(true) if is_quota => exhausted = exhausted.saturating_add(1),
            Some(true) => is_over = true,
            None => is_unknown = true,
        }
    }
    match is_over || (quotas > 0 && quotas == exhausted) {
        true => Some(true),
        false => (!is_unknown).then_some(false),
    }
}
