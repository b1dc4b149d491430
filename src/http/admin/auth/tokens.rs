//! Tokens of the admin port, reloaded when their file changes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tollgate_runtime::{bounded_file, redact};

use super::{roles::Caller, token_file::TokenTable};

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Interval between two reads of the file.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The tokens of a file, shared by clones. Only their digests are kept.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<ArcSwap<TokenTable>>);

/// The token file is unreadable or invalid. The error contains nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--admin-token-file: {path}: {reason}")]
pub struct TokenError {
    path: String,
    reason: String,
}

impl Tokens {
    /// Reads the file. The returned future reloads it on changes and never completes.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn load(path: PathBuf) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TokenError> {
        let tokens = Self(Arc::new(ArcSwap::from_pointee(read(&path)?)));
        Ok((tokens.clone(), tokens.watch(path)))
    }

    /// The caller with this token.
    pub(super) fn caller(&self, token: &[u8]) -> Option<Caller> {
        self.0.load().caller(token).cloned()
    }

    async fn watch(self, path: PathBuf) {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polled = Polled::of(TokenTable::clone(&self.0.load()));
        loop {
            polls.tick().await;
            let file = path.clone();
            // The file may be on a hung mount, which must not block accepting connections.
            if let Ok(found) = spawn_blocking(move || read(&file)).await {
                self.update(found, &mut polled);
            }
        }
    }

    /// Activates the tokens found in the file if they are valid and changed, and the poll before found the same.
    fn update(&self, found: Result<TokenTable, TokenError>, polled: &mut Polled) {
        let is_settled = polled.last == found;
        polled.last.clone_from(&found);
        if !is_settled || found == polled.handled {
            return;
        }
        match &found {
            Ok(table) => {
                self.0.store(Arc::new(table.clone()));
                tracing::info!("admin tokens reloaded");
            }
            Err(error) => tracing::error!(%error, "invalid admin tokens; keeping the active ones"),
        }
        polled.handled = found;
    }
}

/// Contents of the file, as polls found them.
struct Polled {
    /// At the last poll. A file that changed since may still be written.
    last: Result<TokenTable, TokenError>,
    /// Last activated or reported.
    handled: Result<TokenTable, TokenError>,
}

impl Polled {
    fn of(active: TokenTable) -> Self {
        Self { last: Ok(active.clone()), handled: Ok(active) }
    }
}

fn read(path: &Path) -> Result<TokenTable, TokenError> {
    let error = |reason: String| TokenError { path: redact::path(path), reason };
    let text = bounded_file::read_up_to(path, MAX_FILE_BYTES).map_err(|cause| error(cause.to_string()))?;
    TokenTable::parse(&text).map_err(error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tokens_are_reloaded_and_kept_while_their_file_is_invalid() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, "too-short").expect("written");
        let error = Tokens::load(path.clone()).map(|_| ()).expect_err("refused").to_string();
        assert!(error.starts_with("--admin-token-file: ") && !error.contains("too-short"), "{error}");

        fs::write(&path, "first-0123456789\n").expect("written");
        let (tokens, _) = Tokens::load(path.clone()).expect("good");
        assert!(tokens.caller(b"first-0123456789").is_some());
        assert!(tokens.caller(b"first-012345678").is_none() && tokens.caller(b"").is_none());
        let mut polled = Polled::of(read(&path).expect("good"));
        for (text, holds) in [
            ("short", "first-0123456789"),
            ("second-0123456789", "second-0123456789"),
            ("ann viewer third-0123456789\n#", "third-0123456789"),
        ] {
            // The first half may be valid too.
            for text in [&text[..text.len() - 1], text] {
                fs::write(&path, text).expect("written");
                tokens.update(read(&path), &mut polled);
            }
            let last = text.as_bytes();
            assert!(tokens.caller(last).is_none(), "active though it may still be written");
            tokens.update(read(&path), &mut polled);
            assert!(tokens.caller(holds.as_bytes()).is_some(), "{text}");
        }
        assert!(tokens.caller(b"first-0123456789").is_none());
        assert!(tokens.caller(b"second-0123456789").is_none());

        fs::write(&path, vec![b'x'; (1 << 20) + 1]).expect("written");
        assert!(read(&path).is_err());
    }
}
