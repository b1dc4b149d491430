//! The estimate of the servers' time, around which a call states the windows of a calendar.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ::redis::RedisError;
use tollgate_core::clock::{Clock, Timestamp};

/// Begin of the script's error on a time outside of the stated windows, before that time in seconds since the epoch.
pub(super) const OUTSIDE: &str = "outside of both windows at ";

/// Seconds between the clocks from which on they are logged. A call at the end of a window may meet the next one.
const LOGGED_SECONDS: i64 = 60;

/// The clock of the servers, as far as it is half a window or more from that of this instance; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreClock {
    /// Microseconds by which the servers' clock is ahead of this instance's.
    ahead: Arc<AtomicI64>,
}

impl StoreClock {
    /// The time at which a call is decided, about.
    pub(super) fn estimate(&self) -> Timestamp {
        Clock::Shifted(Arc::clone(&self.ahead)).now()
    }

    pub(super) fn assume_ahead(&self, micros: i64) {
        self.ahead.store(micros, Ordering::Relaxed);
    }

    /// Takes over the time that an error of the script states. Whether it states one: then the call had no effect, and states
    /// the right windows when it is sent again.
    pub(super) fn correct(&self, error: &RedisError) -> bool {
        let Some(server) = error.detail().and_then(stated_time) else { return false };
        let own = i64::try_from(Clock::System.now().as_micros()).unwrap_or(i64::MAX);
        let ahead = server.saturating_sub(own);
        self.assume_ahead(ahead);
        let ahead_s = ahead / 1_000_000;
        if ahead_s.abs() >= LOGGED_SECONDS {
            tracing::warn!(ahead_s, "clock of Redis far from this instance's");
        }
        true
    }
}

/// The time in the text of an error, in microseconds since the epoch.
pub(super) fn stated_time(text: &str) -> Option<i64> {
    let (_, stated) = text.split_once(OUTSIDE)?;
    let digits = stated.split(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse::<i64>().ok()?.checked_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_error_is_that_at_which_the_next_calls_are_decided() {
        let clock = StoreClock::default();
        let error = |detail: &str| {
            RedisError::from((
                ::redis::ErrorKind::Server(::redis::ServerErrorKind::ResponseError),
                "",
                detail.into(),
            ))
        };
        assert!(!clock.correct(&error("user_script:1: cell of an unknown format 9")));
        // As Redis 6 and 7 have it.
        for text in [
            "Error running script (call to f_0a): @user_script:9: user_script:9: outside of both windows at 86400",
            "user_script:9: outside of both windows at 86400 script: 0a, on @user_script:9.",
        ] {
            assert!(clock.correct(&error(text)));
            let seconds = clock.estimate().seconds();
            assert!((86_400..90_000).contains(&seconds), "{seconds}");
        }
    }
}
