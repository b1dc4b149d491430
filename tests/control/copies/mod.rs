//! Copies of the rules and records that another region writes, from one Redis to another.

mod records;
mod rules;
mod steps;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tollgate::control::{ControlError, OverrideEntry, ReadRules, Reading, RecordsPage, RulesCopier};

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

    /// Compares versions once, and copies the current one if it differs; whether it did.
    async fn copy_version(&self) -> bool {
        let claim = self.copying.claim_copy(Duration::ZERO).await.expect("a reply");
        let copy = self.writing.rules_after(&claim.version).await.expect("a copy");
        self.copying.adopt_version("us-east", &claim, copy.version).await.expect("adopted")
    }

    /// Waits until the copying region has the records of the writing one.
    async fn same_records(&self) {
        until("the records are copied", async || are_same(&self.writing, &self.copying).await).await;
    }

    async fn apply(&self, based_on: Option<u64>, text: &str) {
        self.writing.apply(draft(based_on, text)).await.expect("made");
    }

    async fn assert_same_version(&self) {
        let current = self.writing.current().await.expect("a reply");
        assert_eq!(self.copying.current().await, Ok(current));
        if let Some(number) = current {
            assert_eq!(self.copying.version(number).await, self.writing.version(number).await);
        }
    }
}

/// A writing region that may be cut off.
#[derive(Clone, Debug)]
struct Peer {
    writing: Control,
    is_cut: Arc<AtomicBool>,
    /// Whether only the first page of records arrives.
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
    let source = source.arg(rules_key("book")).arg("source");
    let source: String = source.query(&mut connection).expect("a source");
    let gathered = source.rsplit(':').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    assert!(gathered > 0, "each step names the one before: {source}");
    let names = ["copied-records", "copied-record-revisions", "copied-record-ends"];
    cmd("DEL").arg(&names.map(rules_key)).exec(&mut connection).expect("deleted");
}

/// Starts to copy what `writing` has to `copying`.
fn start_copier(writing: &Control, copying: &Control) -> AbortOnDropHandle<std::convert::Infallible> {
    let peer = Peer::new(writing);
    let copier = RulesCopier::new(copying.clone(), RulesStatus::default(), Arc::new(peer));
    AbortOnDropHandle::new(tokio::spawn(copier.run()))
}

/// Whether two stores reply, and have the same records.
async fn are_same(one: &Control, other: &Control) -> bool {
    let [one, other] =
        [records_in(one).await, records_in(other).await].map(|found| found.map(|found| found.1));
    one.is_some() && one == other
}

impl ReadRules for Peer {
    fn writing_region(&self) -> Option<String> {
        Some("us-east".to_owned())
    }

    fn read<'r>(&'r self, region: &'r str, known_version: &'r str) -> Reading<'r> {
        assert_eq!(region, "us-east");
        let is_cut = self.is_cut.load(Ordering::Relaxed);
        Box::pin(async move {
            if is_cut {
                return Err("unreachable".to_owned());
            }
            self.writing.rules_after(known_version).await.map_err(|error| error.to_string())
        })
    }

    fn read_records<'r>(
        &'r self,
        _: &'r str,
        known: &'r RecordsHead,
        is_continued: bool,
    ) -> Reading<'r, RecordsPage> {
        Box::pin(async move {
            if is_continued && self.is_cut_midway {
                return Err("cut off midway".to_owned());
            }
            if is_continued && let Some(url) = self.loses.lock().take() {
                lose(&url);
            }
            self.writing.records_after(known, is_continued).await.map_err(|error| error.to_string())
        })
    }
}
