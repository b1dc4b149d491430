//! Bytes of counters.

use super::*;

/// Bytes that the server uses, once they are steady.
async fn used_memory(redis: &Redis) -> f64 {
    let mut before = redis.figure("memory", "used_memory");
    loop {
        sleep(Duration::from_millis(500)).await;
        let now = redis.figure("memory", "used_memory");
        if (now - before).abs() < 10_000.0 {
            return now;
        }
        before = now;
    }
}

/// Content that fills a server, to measure its memory.
struct Filling {
    what: &'static str,
    algorithm: Algorithm,
    clients: u32,
    /// Counters of a client that are charged in one call.
    counters: u8,
    /// Calls of a client, evenly over the hour.
    calls: u32,
    /// The unit of counting: counters, requests or permits of a client.
    units: u32,
    /// The most bytes that one may take, where that is promised.
    promised: Option<f64>,
}

impl Filling {
    /// One call on packed counters for each client.
    const fn packed(what: &'static str, algorithm: Algorithm, counters: u8, promised: Option<f64>) -> Self {
        let units = counters as u32;
        Self { what, algorithm, clients: 1_000_000, counters, calls: 1, units, promised }
    }

    /// `length` hits, or places, of each client.
    const fn queued(what: &'static str, algorithm: Algorithm, length: u32, promised: Option<f64>) -> Self {
        let clients = 2_000_000 / length;
        Self { what, algorithm, clients, counters: 1, calls: length, units: length, promised }
    }

    /// Prints what it takes; says whether that is as promised.
    async fn weigh(&self) -> bool {
        let (redis, store) = Redis::start_store();
        // The script and the connection take some memory too.
        let policy = hourly(self.algorithm, 10_000);
        decide(&store, [request(u32::MAX, self.counters, policy, Hits::ONE)].into_iter(), true).await;
        let empty = used_memory(&redis).await;
        for call in 0..self.calls {
            let now = at(u64::from(call) * HOUR / u64::from(self.calls));
            let store = store.clone().at_time(now);
            let calls = (0..self.clients)
                .map(|client| request(client, self.counters, policy, charge(self.algorithm, 1)));
            decide(&store, calls, true).await;
        }
        let bytes = used_memory(&redis).await - empty;
        let units = f64::from(self.clients) * f64::from(self.units);
        println!(
            "{:42} {:>11} {:>11} {:>8.1} {:>12.1} {:>10.2}",
            self.what,
            self.clients,
            units,
            bytes / 1e6,
            bytes / f64::from(self.clients),
            bytes / units
        );
        self.promised.is_none_or(|promised| bytes / units <= promised)
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn bytes() {
    println!(
        "{:42} {:>11} {:>11} {:>8} {:>12} {:>10}",
        "bytes in Redis", "clients", "units", "MB", "per client", "per unit"
    );
    let fillings = [
        Filling::packed("fixed_window, 10 counters a client", Algorithm::FixedWindow, 10, Some(32.0)),
        Filling::packed("token_bucket, 10 counters a client", Algorithm::TokenBucket, 10, Some(32.0)),
        Filling::packed("sliding_window, 10 counters a client", Algorithm::SlidingWindow, 10, Some(32.0)),
        Filling::packed("fixed_window, 1 counter a client", Algorithm::FixedWindow, 1, None),
        Filling::packed("token_bucket, 1 counter a client", Algorithm::TokenBucket, 1, None),
        Filling::packed("sliding_window, 1 counter a client", Algorithm::SlidingWindow, 1, None),
        Filling::queued(
            "sliding_window_log, 100 requests a client",
            Algorithm::SlidingWindowLog,
            100,
            Some(12.0),
        ),
        Filling::queued(
            "sliding_window_log, 1,000 requests a client",
            Algorithm::SlidingWindowLog,
            1_000,
            Some(12.0),
        ),
        Filling::queued("concurrency, 10 places a client", Algorithm::Concurrency, 10, None),
        Filling::queued("concurrency, 1,000 places a client", Algorithm::Concurrency, 1_000, None),
    ];
    let mut broken = Vec::new();
    for filling in fillings {
        if !filling.weigh().await {
            broken.push(filling.what);
        }
    }
    assert!(broken.is_empty(), "more bytes than promised: {broken:?}");
}
