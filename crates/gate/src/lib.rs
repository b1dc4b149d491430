//! A gate between the socket and HTTP/2: follows the frames of a client, and refuses calls that HTTP/2 need not see.
//!
//! HTTP/2 spends about two fifths of the time of a whole decision on a call that is rejected, so that an overloaded worker
//! would be occupied by rejections alone. Here a refusal costs a glance at its frames.
//!
//! ```text
//! ReceivedFrames ──> header_block ──> header_field
//!       └──> frames: Refusals
//! ```

#![cfg_attr(test, allow(clippy::float_arithmetic))]
// Lengths of frames, which have less than 2^24 bytes, and counts of what is in memory.
#![allow(clippy::arithmetic_side_effects)]

mod frames;
mod header_block;
mod header_field;
mod received_frames;

use std::time::Duration;

pub use self::frames::{DATA, FrameHeader, FrameScanner, Piece, RST_STREAM, Refusals, SHED_MESSAGE};
pub use self::header_block::Head;
pub use self::received_frames::{Gate, PREFACE_BYTES, ReceivedFrames};

/// Path of the calls that may be refused.
pub const SHOULD_RATE_LIMIT_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Parses a `grpc-timeout`: at most 8 digits and a unit. A malformed one counts as absent.
pub fn parse_timeout(header: &[u8]) -> Option<Duration> {
    let (unit, digits) = header.split_last()?;
    let is_number = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3_600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}
