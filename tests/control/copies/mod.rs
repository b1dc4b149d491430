//! Copies of the rules, lists and switches that another region writes, from one Redis to another.

mod overrides;
mod rules;
mod steps;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tollgate::control::{
    Adopted, ControlError, OverridesHead, OverridesPage, ReadRules, Reading, RulesCopier, RulesIdentity,
};

use super::*;

/// The stores of a region that writes and of one that copies.
struct Pair {
    _redis: [Redis; 2],
    writing: Control,
    copying: Control,
}

impl Pair {
    fn start() -> Self {
        let redis = [Redis::start(), Redis::start()];
        let [writing, copying] = [0, 1].map(|region: usize| redis_control(&redis[region].url(), ""));
        copying.set_writing_region(Some("us-east"));
        Self { _redis: redis, writing, copying }
    }

    /// Compares once, and copies what differs.
    async fn copy(&self) -> Adopted {
        let claim = self.copying.claim_copy(Duration::ZERO).await.expect("a reply");
        let copy = self.writing.rules_after(&claim.has).await.expect("a copy");
        self.copying.adopt_copy("us-east", &claim, copy).await.expect("adopted")
    }

    async fn apply(&self, based_on: Option<u64>, text: &str) {
        self.writing.apply(draft(based_on, text)).await.expect("made");
    }

    async fn assert_same(&self) {
        let current = self.writing.current().await.expect("a reply");
        assert_eq!(self.copying.current().await, Ok(current));
        if let Some(number) = current {
            assert_eq!(self.copying.version(number).await, self.writing.version(number).await);
        }
        let [here, there] = [self.writing.runtime().await, self.copying.runtime().await];
        assert_eq!(here, there);
    }
}

/// A writing region that may be cut off.
#[derive(Clone, Debug)]
struct Peer {
    writing: Control,
    is_cut: Arc<AtomicBool>,
    /// Whether only the first page of overrides arrives.
    is_cut_midway: bool,
    /// Server that loses what it has gathered before the second page arrives, once.
    loses: Arc<Mutex<Option<String>>>,
}

impl Peer {
    fn new(writing: &Control) -> Self {
        let writing = writing.clone();
        Self { writing, is_cut: Arc::default(), is_cut_midway: false, loses: Arc::default() }
    }
}

/// Deletes what a server has gathered of a whole copy, after its first page.
fn lose(url: &str) {
    let client = redis::Client::open(url).expect("a valid URL");
    let mut connection = client.get_connection().expect("a connection");
    let mut source = cmd("HGET");
    let source = source.arg("{tollgate-rules}:head").arg("override_source");
    let source: String = source.query(&mut connection).expect("a source");
    let gathered = source.rsplit(':').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    assert!(gathered > 0, "each step names the one before: {source}");
    let names = ["copied-overrides", "copied-override-revisions", "copied-override-ends"];
    let keys = names.map(|name| format!("{{tollgate-rules}}:{name}"));
    cmd("DEL").arg(&keys).exec(&mut connection).expect("deleted");
}

impl ReadRules for Peer {
    fn writing_region(&self) -> Option<String> {
        Some("us-east".to_owned())
    }

    fn read<'r>(&'r self, region: &'r str, known: &'r RulesIdentity) -> Reading<'r> {
        assert_eq!(region, "us-east");
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        Box::pin(async move {
            if is_cut {
                return Err("unreachable".to_owned());
            }
            self.writing.rules_after(known).await.map_err(|error| error.to_string())
        })
    }

    fn read_overrides<'r>(
        &'r self,
        _: &'r str,
        known: &'r OverridesHead,
        is_continued: bool,
    ) -> Reading<'r, OverridesPage> {
        Box::pin(async move {
            if is_continued && self.is_cut_midway {
                return Err("cut off midway".to_owned());
            }
            if is_continued && let Some(url) = self.loses.lock().take() {
                lose(&url);
            }
            self.writing.overrides_after(known, is_continued).await.map_err(|error| error.to_string())
        })
    }
}
