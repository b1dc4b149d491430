//! Whether a client takes its answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{select, sync::Notify, time::sleep};

/// Answers that wait on one connection before it costs others: each new call of it is looked at among all of these.
const MANY: usize = 128;

/// How long so many may wait while none is taken. Their callers have long given up.
const MANY_WAIT: Duration = Duration::from_secs(1);

/// The answers of one connection that wait for room in its client's windows. HTTP/2's probes and what guards the socket
/// do not see them: a client may answer every probe, and give no room for anything else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uptake(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    taken: AtomicUsize,
    /// Tells when many wait.
    many: Notify,
}

/// An answer that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Counts>);

impl Uptake {
    /// Counts an answer.
    pub(super) fn wait(&self) -> Waiting {
        if self.0.waiting.fetch_add(1, Ordering::Relaxed) == MANY {
            self.0.many.notify_one();
        }
        Waiting(Arc::clone(&self.0))
    }

    /// Ends once answers waited for `patience`, or up to twice as long, and none was taken; for a second or two, if many
    /// wait.
    pub(super) async fn stopped(&self, patience: Duration) {
        loop {
            let before = self.0.taken.load(Ordering::Relaxed);
            let waiting = self.0.waiting.load(Ordering::Relaxed);
            select! {
                () = sleep(if waiting > MANY { patience.min(MANY_WAIT) } else { patience }) => {}
                // From now on it is another time that counts.
                () = self.0.many.notified() => continue,
            }
            if waiting > 0 && before == self.0.taken.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn it_has_stopped_when_answers_wait_and_none_is_taken() {
        let uptake = Uptake::default();
        let mut waiting = Vec::new();
        let busy = async {
            // One of several is taken now and then.
            for _ in 0..20 {
                waiting.push(uptake.wait());
                waiting.push(uptake.wait());
                sleep(SHORT / 2).await;
                drop(waiting.remove(0));
            }
        };
        tokio::select! {
            () = uptake.stopped(SHORT * 50) => panic!("it goes on"),
            () = busy => {}
        }
        timeout(Duration::from_secs(20), uptake.stopped(SHORT)).await.expect("it has");
        let patient = uptake.stopped(Duration::from_secs(3_600));
        waiting.extend((0..=MANY).map(|_| uptake.wait()));
        timeout(Duration::from_secs(20), patient).await.expect("it has long before");
        waiting.clear();
        assert!(timeout(SHORT * 5, uptake.stopped(SHORT)).await.is_err(), "none waits");
    }
}
