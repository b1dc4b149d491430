//! How long a caller waits, and how long it has waited before its turn came.
//!
//! A worker that is asked more than it can do answers later and later, until nobody waits for any of its answers, and
//! all its work is in vain. So what has waited too long for its turn is not worked at: the store is not asked any more
//! when a good part of the time has gone, and nothing is done for a caller that has gone itself.

use std::time::{Duration, Instant};

use hyper::{HeaderMap, http::Extensions};
use tonic::metadata::MetadataMap;

/// The header that says so.
const HEADER: &str = "grpc-timeout";

/// What a decision may take of the time that its caller waits, in percent: the rest is for the way there and back.
const FOR_DECISION: u32 = 80;

/// What a call may wait for its turn of the time that its decision may take, in percent. It may have waited for as long
/// before it was read.
const FOR_TURN: u32 = 25;

/// How long a decision may take for a caller that does not say how long it waits: what Envoy waits by default.
const UNTOLD: Duration = Duration::from_millis(20);

/// Waits that are too short to matter.
const SHORT: Duration = Duration::from_millis(1);

/// When a call came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival(Instant);

/// That a call has waited too long for its turn to have the store asked, where its extensions have this.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late;

/// Nobody waits for the answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

impl Arrival {
    /// Now.
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    /// Takes note in `extensions` if the call has waited too long for its turn.
    ///
    /// # Errors
    /// [`TooLate`] when its caller waits no longer.
    pub(super) fn note_wait(self, headers: &HeaderMap, extensions: &mut Extensions) -> Result<(), TooLate> {
        let waited = self.0.elapsed();
        if waited < SHORT {
            return Ok(());
        }
        let told = headers.get(HEADER).and_then(|header| timeout(header.as_bytes()));
        match told {
            Some(told) if waited >= told => return Err(TooLate),
            told if waited >= part(part(told.unwrap_or(UNTOLD), FOR_DECISION), FOR_TURN) => {
                extensions.insert(Late);
            }
            _ => {}
        }
        Ok(())
    }
}

/// How long the store may take for a call, if that is known.
pub(super) fn patience(metadata: &MetadataMap, extensions: &Extensions) -> Option<Duration> {
    if extensions.get::<Late>().is_some() {
        return Some(Duration::ZERO);
    }
    let header = metadata.get(HEADER)?;
    timeout(header.as_bytes()).map(|timeout| part(timeout, FOR_DECISION))
}

fn part(whole: Duration, percent: u32) -> Duration {
    whole.saturating_mul(percent).checked_div(100).unwrap_or_default()
}

/// What the header says: a number of at most 8 digits and its unit. One that can't be read says nothing.
fn timeout(header: &[u8]) -> Option<Duration> {
    let (unit, digits) = header.split_last()?;
    let is_number = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number.saturating_mul(3_600))),
        b'M' => Some(Duration::from_secs(number.saturating_mul(60))),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(timeout: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HEADER.parse().expect("a name"), HeaderValue::from_static(timeout))])
    }

    /// What is made of a call that says how long its caller waits, and has waited for its turn already.
    fn after(waited: Duration, timeout: &'static str) -> Result<Option<Duration>, TooLate> {
        let (headers, mut extensions) = (headers(timeout), Extensions::new());
        let arrival = Arrival(Instant::now().checked_sub(waited).expect("the machine is up for longer"));
        arrival.note_wait(&headers, &mut extensions)?;
        Ok(patience(&MetadataMap::from_headers(headers), &extensions))
    }

    #[test]
    fn four_fifths_of_what_a_caller_waits_are_for_the_decision() {
        for (header, micros) in [
            ("20m", 16_000),
            ("1S", 800_000),
            ("1000u", 800),
            ("5000n", 4),
            ("2M", 96_000_000),
            ("99999999H", 287_999_997_120_000_000),
            ("0m", 0),
        ] {
            assert_eq!(after(Duration::ZERO, header), Ok(Some(Duration::from_micros(micros))), "{header}");
        }
    }

    #[test]
    fn what_waited_long_for_its_turn_is_not_asked_of_the_store_and_what_waited_in_vain_not_answered() {
        let millis = Duration::from_millis;
        assert_eq!(after(millis(3), "20m"), Ok(Some(millis(16))));
        assert_eq!(after(millis(5), "20m"), Ok(Some(Duration::ZERO)));
        assert_eq!(after(millis(21), "20m"), Err(TooLate));
        assert_eq!(after(millis(21), "1S"), Ok(Some(millis(800))));
        assert_eq!(after(millis(3), "?"), Ok(None));
        assert_eq!(after(millis(21), "?"), Ok(Some(Duration::ZERO)), "it may wait for longer than most");
    }

    #[test]
    fn a_header_that_makes_no_sense_says_nothing() {
        for header in ["", "m", "20", "20ms", "-1m", "+1m", "1.5S", "123456789m", "20x", "²m"] {
            assert_eq!(timeout(header.as_bytes()), None, "{header}");
        }
    }
}
