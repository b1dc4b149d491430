//! Configuration of one run, and the random ones of a seed.

use fastrand::Rng;

use crate::terms::LimitKind;

/// Where hits arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Equal rates in all regions.
    Uniform,
    /// Nine tenths in the first region.
    Hot,
    /// Nine tenths in another region each minute.
    Shift,
    /// Follows the sun, with days of 24 minutes.
    Sun,
}

/// When regions request loans, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Borrowing {
    /// Static shares.
    Never,
    /// As the service does.
    Policy,
    /// At random times for random amounts; lenders keep a random amount.
    Random,
}

/// Faults of the network, in parts of 1,000 messages and microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    pub(crate) loss: u32,
    pub(crate) duplication: u32,
    pub(crate) max_delay: u64,
    /// Mean time between partitions of one region, which last up to as long; 0 for none.
    pub(crate) partitions: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kind: LimitKind,
    pub(crate) limit: u32,
    /// Capacity of a bucket in hits.
    pub(crate) burst: u64,
    pub(crate) weights: Vec<u32>,
    pub(crate) round_trips: Vec<u64>,
    /// Offsets of the regions' clocks in microseconds.
    pub(crate) offsets: Vec<i64>,
    pub(crate) traffic: Traffic,
    /// Offered rate, relative to the limit.
    pub(crate) load: f64,
    /// Maximum number of hits of a request.
    pub(crate) max_hits: u64,
    /// Mean time for which a permit is held, in microseconds.
    pub(crate) hold: u64,
    pub(crate) borrowing: Borrowing,
    /// Whether a denied request waits for the loan request in flight.
    pub(crate) waits: bool,
    pub(crate) network: Network,
    /// Length of the run in microseconds.
    pub(crate) length: u64,
    /// Traffic before this time is not counted in the report.
    pub(crate) warm_up: u64,
    pub(crate) events: Vec<(u64, Mishap)>,
    /// Mean time between changes of the weights; 0 for none.
    pub(crate) table_changes: u64,
    /// Instances of each region, and the mean time between restarts of one of them while weights change; 0 for none.
    pub(crate) instances: usize,
    pub(crate) restarts: u64,
    /// Whether hits arrive while a store makes a loan, between its read and its write.
    pub(crate) races: bool,
}

/// An event of a region at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mishap {
    /// Its clock is moved by this many microseconds.
    Step { region: usize, by: i64 },
    /// Its store fails over to a replica that lacks the writes of the last microseconds, given.
    Failover { region: usize, lost: u64 },
    /// No message reaches or leaves it until a time.
    CutOff { region: usize, until: u64 },
    /// No traffic and no answers from then on; its clients move to the others.
    Lost { region: usize },
    /// An operator declares it lost, and the table without it is loaded by all others.
    Dropped { region: usize },
    /// Back, without records.
    Back { region: usize },
}

impl Plan {
    /// A run without faults, of three regions as in the study.
    pub(crate) fn quiet(kind: LimitKind, limit: u32, traffic: Traffic) -> Self {
        Self {
            seed: 1,
            kind,
            limit,
            burst: 0,
            weights: vec![1; 3],
            round_trips: vec![80_000, 140_000, 200_000],
            offsets: vec![0; 3],
            traffic,
            load: 0.9,
            max_hits: 1,
            hold: 1_000_000,
            borrowing: Borrowing::Policy,
            waits: false,
            network: Network::default(),
            length: 300_000_000,
            warm_up: 10_000_000,
            events: Vec::new(),
            table_changes: 0,
            instances: 1,
            restarts: 0,
            races: false,
        }
    }

    /// The faulty run of a seed, with about `decisions` decisions.
    pub(crate) fn faulty(seed: u64, decisions: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let regions = rng.usize(2..=5);
        let window = [1, 1, 2, 5, 6, 10, 60][rng.usize(..7)];
        let limit = [3, 10, 30, 100, 300, 1_000, 3_000][rng.usize(..7)] + rng.u32(..10);
        let burst = u64::from(limit) * [1, 2, 10][rng.usize(..3)] / [1, 2, 10][rng.usize(..3)];
        let burst = burst.max(1);
        let kind = LimitKind::random(&mut rng, window, limit, burst);
        let load = [0.5, 0.9, 1.1, 1.5, 4.0][rng.usize(..5)];
        let hold = rng.u64(100_000..4_000_000);
        let seconds_of = |hits: f64| hits / (load * f64::from(limit) / kind.period(hold));
        // A slow counter is not simulated for hours; its runs are shorter.
        let length = (seconds_of(decisions as f64) * 1e6).clamp(20e6, 900e6) as u64;
        let is_synchronised = rng.bool();
        // The study's bound for sliding windows, whose labels are compared by weight.
        let max_offset = match kind {
            LimitKind::SlidingWindow { window } => (u64::from(window) * 450_000).min(3_000_000),
            _ => 3_000_000,
        } as i64;
        let offset = |rng: &mut Rng| if is_synchronised { 0 } else { rng.i64(-max_offset..=max_offset) };
        Self {
            seed,
            kind,
            limit,
            burst,
            weights: (0..regions).map(|_| rng.u32(1..=5)).collect(),
            round_trips: (0..regions).map(|_| rng.u64(1_000..300_000)).collect(),
            offsets: (0..regions).map(|_| offset(&mut rng)).collect(),
            traffic: [Traffic::Uniform, Traffic::Hot, Traffic::Shift, Traffic::Sun][rng.usize(..4)],
            load,
            max_hits: [1, 1, 5][rng.usize(..3)],
            hold,
            borrowing: if rng.bool() { Borrowing::Policy } else { Borrowing::Random },
            waits: seed.is_multiple_of(4),
            network: Network {
                loss: [0, rng.u32(..400)][rng.usize(..2)],
                duplication: [0, rng.u32(..400)][rng.usize(..2)],
                max_delay: [0, 300_000, rng.u64(..6_000_000)][rng.usize(..3)],
                partitions: [0, rng.u64(2_000_000..60_000_000)][rng.usize(..2)],
            },
            length,
            warm_up: 0,
            events: Vec::new(),
            table_changes: [0, 0, length / 4][rng.usize(..3)],
            instances: rng.usize(1..=3),
            restarts: [0, length / 20][rng.usize(..2)],
            races: rng.bool(),
        }
    }
}

impl LimitKind {
    fn random(rng: &mut Rng, window: u32, limit: u32, burst: u64) -> Self {
        match rng.u8(..5) {
            0 => Self::FixedWindow { window },
            1 => Self::SlidingWindow { window },
            2 => Self::SlidingWindowLog { window },
            3 => Self::TokenBucket {
                window,
                capacity: (burst * u64::from(window) * 1_000_000).div_ceil(limit.into()),
            },
            _ => Self::Concurrency { lease_ttl: rng.u64(1..=20) * 1_000_000 },
        }
    }

    /// Time in which the limit is used up at full rate, in seconds.
    pub(crate) fn period(self, hold: u64) -> f64 {
        match self {
            Self::Concurrency { .. } => hold as f64 / 1e6,
            kind => kind.window_micros() as f64 / 1e6,
        }
    }
}
