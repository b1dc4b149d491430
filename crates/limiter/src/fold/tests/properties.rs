//! Random requests, compared with limits alone and with envoyproxy/ratelimit.

use proptest::prelude::*;

use super::*;

/// Limits of a descriptor in seconds, with the hits of each.
fn limits() -> impl Strategy<Value = Vec<(u32, u32, &'static str)>> {
    let algorithm = prop_oneof![
        Just("fixed_window"),
        Just("token_bucket"),
        Just("sliding_window"),
        Just("sliding_window_log")
    ];
    let limit = (prop_oneof![Just(1), Just(7), Just(60), Just(3_600)], 1..6_u32, algorithm);
    prop::collection::vec(limit, 1..4).prop_map(|mut limits| {
        limits.sort_unstable();
        limits.dedup_by_key(|(window, ..)| *window);
        limits
    })
}

proptest! {
    /// A request passes if each limit alone would admit it after the requests that passed before it.
    #[test]
    fn several_limits_admit_what_each_of_them_admits(
        limits in limits(),
        requests in prop::collection::vec((0_u64..3_000_000, 0_u64..4), 1..40),
        is_atomic in any::<bool>(),
    ) {
        let stated = |(window, limit, algorithm): &(u32, u32, &str)| {
            format!("{{window: {window}s, requests_per_unit: {limit}, algorithm: {algorithm}}}")
        };
        let all: Vec<String> = limits.iter().map(stated).collect();
        let root = format!("atomic: {is_atomic}\n");
        let several = Instance::new(&format!("{root}descriptors:\n- {{key: k, rate_limits: [{}]}}\n", all.join(", ")));
        let alone: Vec<Instance> = limits
            .iter()
            .map(|limit| Instance::new(&format!("descriptors:\n- {{key: k, rate_limit: {}}}\n", stated(limit))))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (micros, hits) in requests {
            for instance in alone.iter().chain([&several]) {
                instance.now.fetch_add(micros, Ordering::Relaxed);
            }
            let requested = [("k", Hits::charge(hits))];
            let mut expected = true;
            for instance in &alone {
                let used = runtime.block_on(instance.used("k"))[0];
                let limit = limits[alone.iter().position(|one| std::ptr::eq(one, instance)).expect("one")].1;
                expected &= hits == 0 || used + hits <= limit.into();
            }
            let passes = runtime.block_on(several.statuses(&requested, None))[0].0;
            prop_assert_eq!(passes, expected, "{:?}", limits);
            if passes {
                for instance in &alone {
                    let passes = runtime.block_on(instance.statuses(&requested, None))[0].0;
                    prop_assert!(passes);
                }
            }
            let used = runtime.block_on(several.used("k"));
            let each: Vec<u64> = alone.iter().map(|instance| runtime.block_on(instance.used("k"))[0]).collect();
            prop_assert_eq!(used, each);
        }
    }
}

/// Charges of a request as envoyproxy/ratelimit makes them with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: it reads all
/// counters, and if one would exceed its limit, charges only those that would. Returns whether the request passes. Hits on a
/// limit of 0 are counted there, and not here.
fn charge_as_reference(counts: &mut [u64], limits: &[u64], charges: &[(usize, u64)]) -> bool {
    let exceeds = |counts: &[u64], (at, hits): &(usize, u64)| counts[*at] + hits > limits[*at];
    let exceeding: Vec<_> = charges.iter().filter(|charge| exceeds(counts, charge)).copied().collect();
    let charged = if exceeding.is_empty() { charges } else { &exceeding };
    let counted = charged.iter().filter(|(at, _)| limits[*at] > 0);
    counted.for_each(|(at, hits)| counts[*at] += hits);
    exceeding.is_empty()
}

proptest! {
    #[test]
    fn a_domain_that_stops_charging_counts_as_envoyproxy_ratelimit_does(
        limits in prop::collection::vec(0..9_u64, 3),
        requests in prop::collection::vec(prop::collection::btree_map(0..3_usize, 1..4_u64, 1..4), 1..30),
        has_one_tag in any::<bool>(),
    ) {
        let root = if has_one_tag { "hash_tag: [t]\n" } else { "" };
        let stated: String = limits
            .iter()
            .enumerate()
            .map(|(at, limit)| format!("  - {{key: k{at}, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}\n"))
            .collect();
        let options = Options { stop_when_denied: true, ..Options::default() };
        let instance =
            Instance::with_options(&format!("{root}descriptors:\n- key: t\n  descriptors:\n{stated}"), options);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let keys = ["k0", "k1", "k2"];
        let decide = |requested: &[(usize, u64)]| {
            let descriptors: Vec<Descriptor<'_>> = requested
                .iter()
                .map(|(at, hits)| Descriptor {
                    entries: Entries::from_iter([Entry { key: "t", value: "x" }, Entry { key: keys[*at], value: "y" }]),
                    limit: None,
                    hits: Hits::charge(*hits),
                })
                .collect();
            let active = instance.limiter.rules();
            let active = active.get().expect("rules");
            let decided = runtime.block_on(instance.limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN));
            let decision = decided.expect("decided").0;
            let used = decision.statuses.iter().map(|status| status.limited().expect("a counter").verdict.used);
            (decision.code == Code::Ok, used.collect::<Vec<u64>>())
        };
        let mut counts = vec![0; 3];
        for request in requests {
            let requested: Vec<(usize, u64)> = request.into_iter().collect();
            let expected = charge_as_reference(&mut counts, &limits, &requested);
            prop_assert_eq!(decide(&requested).0, expected);
            let reads: Vec<(usize, u64)> = (0..3).map(|at| (at, 0)).collect();
            prop_assert_eq!(&decide(&reads).1, &counts);
        }
    }
}
