//! The tokens that open the admin port.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use super::{caller::Caller, holders::Holders};
use crate::redact;

/// Bytes of the largest file.
const LARGEST: u64 = 1 << 20;

/// Between two looks at the file.
const EVERY: Duration = Duration::from_secs(2);

/// The tokens in a file. Clones share what they are now. Only their digests are kept.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<ArcSwap<Holders>>);

/// Why there are no tokens. Tells nothing of what is in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--admin-token-file: {path}: {reason}")]
pub struct TokenError {
    path: String,
    reason: String,
}

impl Tokens {
    /// Reads the file; what is returned besides follows its changes, and ends only by a panic.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense.
    pub fn load(path: PathBuf) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TokenError> {
        let tokens = Self(Arc::new(ArcSwap::from_pointee(read(&path)?)));
        Ok((tokens.clone(), tokens.follow(path)))
    }

    /// Who holds that token.
    pub(super) fn holder(&self, shown: &[u8]) -> Option<Caller> {
        self.0.load().holder(shown).cloned()
    }

    async fn follow(self, path: PathBuf) {
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Ok(Holders::clone(&self.0.load()));
        loop {
            looks.tick().await;
            let file = path.clone();
            // Where the file is may be away, and whoever accepts connections must not wait for it.
            if let Ok(found) = spawn_blocking(move || read(&file)).await {
                self.take(found, &mut seen);
            }
        }
    }

    /// Takes what was found in the file, if that is new since it was `seen`, and good.
    fn take(&self, found: Result<Holders, TokenError>, seen: &mut Result<Holders, TokenError>) {
        if found == *seen {
            return;
        }
        match &found {
            Ok(holders) => {
                self.0.store(Arc::new(holders.clone()));
                tracing::info!("the admin port wants the changed tokens");
            }
            Err(error) => tracing::error!("the changed tokens are not used, the old ones stay: {error}"),
        }
        *seen = found;
    }
}

fn read(path: &Path) -> Result<Holders, TokenError> {
    let fails = |reason: String| TokenError { path: redact::path(path), reason };
    let text = read_text(path).map_err(|error| fails(error.to_string()))?;
    Holders::parse(&text).map_err(fails)
}

fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST.saturating_add(1)).read_to_end(&mut text)?;
    match text.len() as u64 > LARGEST {
        true => Err(io::Error::other(format!("larger than {} MiB", LARGEST >> 20))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tokens_follow_their_file_and_stay_when_that_is_no_good() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, "too-short").expect("written");
        let error = Tokens::load(path.clone()).map(|_| ()).expect_err("refused").to_string();
        assert!(error.starts_with("--admin-token-file: ") && !error.contains("too-short"), "{error}");

        fs::write(&path, "first-0123456789\n").expect("written");
        let (tokens, _) = Tokens::load(path.clone()).expect("good");
        assert!(tokens.holder(b"first-0123456789").is_some());
        assert!(tokens.holder(b"first-012345678").is_none() && tokens.holder(b"").is_none());
        let mut seen = read(&path);
        for (text, holds) in [
            ("short", "first-0123456789"),
            ("second-0123456789", "second-0123456789"),
            ("ann viewer third-0123456789\n#", "third-0123456789"),
        ] {
            fs::write(&path, text).expect("written");
            tokens.take(read(&path), &mut seen);
            assert!(tokens.holder(holds.as_bytes()).is_some(), "{text}");
        }
        assert!(tokens.holder(b"first-0123456789").is_none());
        assert!(tokens.holder(b"second-0123456789").is_none());

        fs::write(&path, vec![b'x'; (1 << 20) + 1]).expect("written");
        assert!(read(&path).is_err());
    }
}
