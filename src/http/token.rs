//! The token that opens the admin port.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::{
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::shown;

/// Bytes that a token has at least.
const LEAST: usize = 16;

/// Between two looks at its file.
const EVERY: Duration = Duration::from_secs(2);

/// A token in a file. Clones share what it is now. Only its digest is kept.
#[derive(Clone)]
pub struct Token(Arc<ArcSwap<Digest>>);

type Digest = [u8; 32];

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Why there is no token. Tells nothing of what is in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--admin-token-file: {path}: {reason}")]
pub struct TokenError {
    path: String,
    reason: String,
}

impl Token {
    /// Reads the file; what is returned besides follows its changes, and ends only by a panic.
    ///
    /// # Errors
    /// When it cannot be read, or holds too little.
    pub fn load(path: PathBuf) -> Result<(Self, impl Future<Output = ()> + Send + 'static), TokenError> {
        let token = Self(Arc::new(ArcSwap::from_pointee(read(&path)?)));
        Ok((token.clone(), token.follow(path)))
    }

    /// Whether this is it, in a time that does not depend on how much of it is right.
    pub(super) fn is(&self, shown: &[u8]) -> bool {
        let digest: Digest = Sha256::digest(shown).into();
        digest.ct_eq(self.0.load().as_ref()).into()
    }

    async fn follow(self, path: PathBuf) {
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Ok(**self.0.load());
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
    fn take(&self, found: Result<Digest, TokenError>, seen: &mut Result<Digest, TokenError>) {
        if found == *seen {
            return;
        }
        match &found {
            Ok(digest) => {
                self.0.store(Arc::new(*digest));
                tracing::info!("the admin port wants the changed token");
            }
            Err(error) => tracing::error!("the changed token is not used, the old one stays: {error}"),
        }
        *seen = found;
    }
}

fn read(path: &Path) -> Result<Digest, TokenError> {
    let fails = |reason: String| TokenError { path: shown::path(path), reason };
    let bytes = fs::read(path).map_err(|error| fails(error.to_string()))?;
    match bytes.trim_ascii() {
        token if token.len() >= LEAST => Ok(Sha256::digest(token).into()),
        _ => Err(fails(format!("expected a token of {LEAST} bytes or more"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_follows_its_file_and_stays_when_that_is_no_good() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, "too short").expect("written");
        let error = Token::load(path.clone()).map(|_| ()).expect_err("refused").to_string();
        assert!(error.starts_with("--admin-token-file: ") && !error.contains("too short"), "{error}");

        fs::write(&path, "first-0123456789\n").expect("written");
        let (token, _) = Token::load(path.clone()).expect("good");
        assert!(token.is(b"first-0123456789"));
        assert!(!token.is(b"first-012345678") && !token.is(b""));
        let mut seen = read(&path);
        for (text, holds) in [("short", "first-0123456789"), ("second-0123456789", "second-0123456789")] {
            fs::write(&path, text).expect("written");
            token.take(read(&path), &mut seen);
            assert!(token.is(holds.as_bytes()), "{text}");
        }
        assert!(!token.is(b"first-0123456789"));
    }
}
