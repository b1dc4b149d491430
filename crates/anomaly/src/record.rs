//! Form of a series in a store: 3,080 bytes.

use super::{
    drift::Drift,
    scale::Spread,
    season::{HOUR_BYTES, HOURS, Season},
    series::{Series, Spreads},
};

const FORMAT: u8 = 1;
/// Bytes before the hours.
const HEAD_BYTES: usize = 56;
/// Size of a record in bytes.
pub(crate) const RECORD_BYTES: usize = HEAD_BYTES + HOURS * HOUR_BYTES;

/// Takes the next bytes of a record.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_f32(rest: &mut &[u8]) -> Option<f32> {
    take(rest).map(f32::from_le_bytes).filter(|value| value.is_finite())
}

fn take_spread(rest: &mut &[u8]) -> Option<Spread> {
    Some(Spread::from_parts(take_f32(rest)?, take_u32(rest)?))
}

impl Series {
    /// Learned values, without the hour in progress and what lasts.
    pub fn to_record(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(RECORD_BYTES);
        // Of hours only those that are complete count.
        record.extend([FORMAT, 0, 0, 0]);
        record.extend(self.limit.to_le_bytes());
        record.extend(self.hour.unwrap_or_default().to_le_bytes());
        for spread in [self.rates.short, self.rates.long, self.shares.short, self.shares.long] {
            let (value, observations) = spread.parts();
            record.extend(value.to_le_bytes());
            record.extend(observations.to_le_bytes());
        }
        record.extend(self.drift.up.to_le_bytes());
        record.extend(self.drift.down.to_le_bytes());
        record.extend([0; HEAD_BYTES - 52]);
        record.extend(self.season.bytes());
        record
    }

    /// Reads a record, unless it is damaged or of another release.
    pub fn from_record(record: &[u8]) -> Option<Self> {
        let mut rest = record;
        let [format, ..] = take::<4>(&mut rest)?;
        if format != FORMAT {
            return None;
        }
        let (limit, hour) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
        let rates = Spreads { short: take_spread(&mut rest)?, long: take_spread(&mut rest)? };
        let shares = Spreads { short: take_spread(&mut rest)?, long: take_spread(&mut rest)? };
        let drift = Drift { up: take_f32(&mut rest)?, down: take_f32(&mut rest)?, ..Drift::default() };
        take::<{ HEAD_BYTES - 52 }>(&mut rest)?;
        let season = Season::read(rest)?;
        Some(Self::stored(season, rates, shares, drift, limit, hour))
    }
}
