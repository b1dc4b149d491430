//! `GET /versions/{n}/diff` and `POST /diff`: how files and rules differ.

use std::sync::Arc;

use axum::{Extension, extract::State};
use serde::{Deserialize, Serialize};

use super::{
    answer::{self, Answer},
    body::Body,
    compare::{self, RuleChange},
    current::Found,
    draft::{self, DraftFiles},
    heavy::{Lane, Turn},
    parts::Api,
    patch::{self, FilePatch},
    query::{Asked, Named, Which},
    whole::Whole,
};
use crate::{config::Options, control::Files, http::access::Caller, rules::Rules};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    against: Option<Which>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposed {
    files: DraftFiles,
    against: Option<Whole>,
}

/// How two sets of files differ, and what that makes of the rules.
#[derive(Debug, Serialize)]
struct Difference {
    from: Option<u64>,
    to: Option<u64>,
    files: Vec<FilePatch>,
    rules: Vec<RuleChange>,
    /// Why the rules are not compared, if they are not.
    problem: Option<String>,
}

/// How a version differs from another one, or from the one that it is based on.
pub(super) async fn versions(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Named(to): Named<Which>,
    Asked(asked): Asked<Against>,
) -> Answer {
    let turn = api.turns.answer().await?;
    let lane = Lane::Look(&caller);
    let to = api.files(lane, to).await?;
    let based_on = to.version.as_ref().and_then(|version| version.based_on);
    let from = match asked.against.or(based_on.map(Which::Number)) {
        Some(from) => api.files(lane, from).await?,
        // The first one is based on nothing.
        None => Found { version: None, files: Files::new() },
    };
    api.differ(lane, from, to, turn).await
}

/// How files that are no version differ from one.
pub(super) async fn draft(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Body(asked, _held): Body<Proposed>,
) -> Answer {
    let turn = api.turns.answer().await?;
    let lane = Lane::Look(&caller);
    let against = asked.against.map_or(Which::Current, |Whole(number)| Which::Number(number));
    let from = api.files(lane, against).await?;
    let to = Found { version: None, files: asked.files.0 };
    api.differ(lane, from, to, turn).await
}

impl Api {
    async fn differ(&self, lane: Lane<'_>, from: Found, to: Found, turn: Turn) -> Answer {
        let options = self.parts.options;
        let text = self.turns.load(lane, move || answer::text(&difference(&from, &to, options)));
        answer::large(text.await??, turn)
    }
}

fn difference(from: &Found, to: &Found, options: Options) -> Difference {
    let numbers = (from.number(), to.number());
    let files = patch::files(&from.files, &to.files);
    let compared = both(&from.files, &to.files, options).map(|(from, to)| compare::rules(&from, &to));
    let (rules, problem) = match compared {
        Ok(rules) => (rules, None),
        Err(report) => (Vec::new(), Some(report)),
    };
    Difference { from: numbers.0, to: numbers.1, files, rules, problem }
}

fn both(from: &Files, to: &Files, options: Options) -> Result<(Rules, Rules), String> {
    let load = |files: &Files| draft::load(files, options).map(|loaded| loaded.rules);
    let both = load(from).and_then(|from| Ok((from, load(to)?)));
    both.map_err(|invalid| invalid.report)
}
