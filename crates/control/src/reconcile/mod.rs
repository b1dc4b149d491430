//! Having take effect what is in the store.
//!
//! ```text
//! every second, or at once when told ──> beat: tells of this instance, learns what is current
//!                                          ├─ another version ──> rules: fetch, load, put in force
//!                                          └─ another generation ──> lists: fetch, compile, put in force
//! ```
//!
//! None of these waits for another. What fails is tried again with a later beat; until then, what was enforced before
//! stays, and lists and switches end when they say so. However much is changed, there is no beat within 100 ms of the
//! last one and no fetch of lists within 200 ms.

mod acl;
mod lists;
mod load;
mod heartbeat;
mod outage;
mod rules;

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use tokio::{
    select,
    sync::oneshot,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use tollgate_runtime::task_slot::TaskSlot;

use self::{acl::Forbidden, heartbeat::Me, lists::Lists, outage::Outage, rules::Versions};
pub use self::{heartbeat::ActiveDomains, rules::Rules};
use super::{
    Control, ControlError, RulesSource, RulesStatus,
    stored::{Enforced, Head},
};
use crate::metrics;
use tollgate_rules::OverrideTarget;

/// Between two beats, if nothing happens.
const ROUND: Duration = Duration::from_secs(1);
/// How long news are collected before they are looked after.
const GATHERING: Duration = Duration::from_millis(5);
/// Between two beats, whatever happens.
const SHORTEST: Duration = Duration::from_millis(100);

/// Follows the store; ends with this.
#[derive(Debug)]
pub struct Follower {
    _task: AbortOnDropHandle<Infallible>,
    /// Tells when there was a first look, whatever it found.
    looked: oneshot::Receiver<()>,
}

struct Following {
    control: Control,
    status: RulesStatus,
    me: Me,
    beating: TaskSlot<Result<Head, ControlError>>,
    /// Whether something happened since the beat that is under way began.
    has_news: bool,
    /// When the last beat began.
    beat_at: Option<Instant>,
    /// Where rules come from here.
    versions: Option<Versions>,
    lists: Lists,
    outage: Outage,
    forbidden: Forbidden,
    /// What hears of changes, once the store has answered.
    listener: Option<AbortOnDropHandle<Infallible>>,
    looked: Option<oneshot::Sender<()>>,
}

impl Follower {
    /// Begins on the current runtime. Without `rules`, they come from elsewhere, and only lists and switches are
    /// followed.
    pub fn begin(
        control: &Control,
        status: RulesStatus,
        snapshot: Arc<dyn OverrideTarget>,
        rules: Option<Rules>,
        active_domains: ActiveDomains,
    ) -> Self {
        let (tell, looked) = oneshot::channel();
        let following = Following {
            me: Me::new(control.instance(), active_domains),
            beating: TaskSlot::default(),
            has_news: false,
            beat_at: None,
            versions: rules.map(|rules| Versions::new(control.clone(), rules)),
            lists: Lists::new(control.clone(), status.clone(), snapshot),
            outage: Outage::default(),
            forbidden: Forbidden::default(),
            listener: None,
            looked: Some(tell),
            control: control.clone(),
            status,
        };
        Self { _task: AbortOnDropHandle::new(tokio::spawn(following.follow())), looked }
    }

    /// Waits until what there was at first is in force, or can't be.
    pub async fn looked(&mut self) {
        // An error means that it ended.
        let _ = (&mut self.looked).await;
    }
}

impl Following {
    async fn follow(mut self) -> Infallible {
        let mut rounds = interval(ROUND);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let news = Arc::clone(self.control.news());
        loop {
            let end = self.lists.end();
            select! {
                _ = rounds.tick() => if !self.forbidden.rests() {
                    self.beat();
                },
                () = news.notified() => self.beat(),
                head = self.beating.finished() => self.heard(head),
                done = Versions::finished(&mut self.versions) => self.loaded(done),
                is_news = self.lists.finished() => if is_news {
                    self.beat();
                },
                () = ended(end) => self.lists.compile(),
            }
        }
    }

    /// Has a beat begin, now or after the one that is under way.
    fn beat(&mut self) {
        if !self.beating.is_idle() {
            self.has_news = true;
            return;
        }
        self.has_news = false;
        let now = Instant::now();
        let soonest = self.beat_at.and_then(|at| at.checked_add(SHORTEST));
        let begin = soonest.max(now.checked_add(GATHERING)).unwrap_or(now);
        self.beat_at = Some(begin);
        let (control, instance) = (self.control.clone(), self.me.told(&self.status.now()));
        let enforced = Enforced {
            version: self.versions.as_ref().and_then(Versions::enforced),
            runtime_token: self.lists.token().to_owned(),
        };
        self.beating.start(async move {
            sleep_until(begin).await;
            control.beat(instance, enforced).await
        });
    }

    fn heard(&mut self, head: Option<Result<Head, ControlError>>) {
        match head {
            Some(Ok(head)) => {
                self.outage.end();
                self.forbidden.end();
                self.listen();
                let reach = self.outage.reach();
                self.lists.consider(&head, reach);
                if let Some(versions) = &mut self.versions {
                    versions.consider(&head, reach);
                }
                self.measure(&head);
            }
            Some(Err(error)) if self.forbidden.note(self.control.source(), &error) => self.outage.end(),
            Some(Err(error)) => self.outage.begin(&error),
            None => {}
        }
        self.tell();
        self.note_look();
        if self.has_news {
            self.beat();
        }
    }

    fn listen(&mut self) {
        let control = &self.control;
        self.listener.get_or_insert_with(|| {
            let control = control.clone();
            AbortOnDropHandle::new(tokio::spawn(async move { control.listen().await }))
        });
    }

    fn loaded(&mut self, done: Option<load::Outcome>) {
        let Some((versions, done)) = self.versions.as_mut().zip(done) else { return };
        if versions.note(done) {
            // There may be a newer one by now.
            self.beat();
        } else {
            self.note_look();
        }
        self.tell();
    }

    /// Notes that there is nothing more to do for now.
    fn note_look(&mut self) {
        let is_under_way = self.versions.as_ref().is_some_and(|versions| !versions.is_idle());
        if !is_under_way && let Some(looked) = self.looked.take() {
            // Nobody may wait any more.
            let _ = looked.send(());
        }
    }

    /// Tells what is amiss, where that is not told by whoever reads the rules from elsewhere.
    fn tell(&mut self) {
        if let Some(versions) = &self.versions {
            let problem = versions.problem().or(self.outage.problem()).map(ToOwned::to_owned);
            if self.status.now().problem != problem {
                self.status.update(|state| state.problem.clone_from(&problem));
            }
        }
    }

    fn measure(&self, head: &Head) {
        // In memory each instance numbers its own, which would look like a skew.
        if self.control.source() == RulesSource::Redis {
            metrics::latest_version(head.current.as_ref().map_or(0, |current| current.number));
        }
    }
}

/// Waits until then, if there is such a time.
async fn ended(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => pending().await,
    }
}
