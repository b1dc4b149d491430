//! More load than the capacity of tollgate and Redis.

use super::*;

/// Descriptors of a request, each with a hash tag of its own, so that it costs as many calls.
const DESCRIPTORS: usize = 64;

fn costly_request(random: &mut Rng) -> Bytes {
    let values: Vec<String> = (0..DESCRIPTORS).map(|_| format!("c{}", random.u32(..10_000))).collect();
    let entries: Vec<[(&str, &str); 1]> = values.iter().map(|value| [("k", value.as_str())]).collect();
    let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entry| &entry[..]).collect();
    framed(&request("d", &descriptors))
}

/// Calls with Envoy's timeout, four times as many as can be decided.
pub(super) fn four_times(profile: &Profile) -> ReportRow {
    let redis = Redis::start();
    let store = ["--store", &redis.url(), "--store-timeout", profile.store_timeout];
    let others = ["--on-store-error", "local", "--log-level", "error", "--workers", "1"];
    let tollgate = Tollgate::serving(UNREACHED, &[&store[..], &others].concat());
    let peak = peak(&tollgate, profile);
    let rate = 4.0 * peak;
    let mut random = Rng::with_seed(2);
    let bodies = (0..5_000).map(|_| costly_request(&mut random)).collect();
    let plan = Plan { rate: rate as u32, connections: 4, deadline: profile.deadline, bodies };
    let load = OpenLoop::start(tollgate.grpc_port, plan);
    thread::sleep(profile.fault);
    let end = load.now();
    let samples = load.end();
    // The first requests meet empty queues.
    let measured = samples.between(end / 4, end);
    let seconds = (end - end / 4).as_secs_f64();
    let of = |is_such: &dyn Fn(&Sample) -> bool| measured.count(is_such) as f64 / seconds;
    let decided = of(&|sample| sample.is_normal());
    let by_policy = of(&|sample| !sample.is_error() && sample.by == By::Policy);
    let refused = of(&|sample| matches!(sample.outcome, Outcome::Error(_)));
    let late = measured.count(|sample| sample.outcome == Outcome::Late);
    let mut row =
        ReportRow::new(format!("4 x saturation: {DESCRIPTORS} descriptors a request, one worker"), profile);
    let share = (decided + by_policy) / peak;
    let details = format!(
        "{:.0} % of {peak:.0}/s: {decided:.0}/s by Redis, {by_policy:.0}/s by policy, of {rate:.0}/s",
        100.0 * share
    );
    row.timed("goodput >= 80 % of the peak", details, share >= 0.8);
    let details = format!("{late} of {} late, {refused:.0}/s shed", measured.len());
    row.timed("every answer in time or by policy", details, late == 0);
    row.must("answers", measured.len(), decided + by_policy > 0.0);
    let answered = measured.such(|sample| !sample.is_error());
    row.note(format!("{:?}", measured.errors()));
    row.note(format!("p99 of answers {}, callers late by {}", millis(answered.p99()), millis(samples.lag())));
    row
}

/// Requests decided per second in the best of several closed loops, with more and more in flight.
fn peak(tollgate: &Tollgate, profile: &Profile) -> f64 {
    let time = profile.before;
    let rates = [1, 4, 16, 64].map(|streams| {
        let deadline = Duration::from_secs(5);
        let flood = ClosedLoop { connections: 4, streams, deadline, requests: u64::MAX, time };
        let tally = flood.run(tollgate.grpc_port, 1, costly_request);
        println!("{} in flight: {tally:?}", 4 * streams);
        tally.decided as f64 / tally.took.as_secs_f64()
    });
    rates.into_iter().fold(0.0, f64::max)
}

#[test]
fn overload_does_not_reduce_goodput() {
    four_times(&Profile::SHORT).judge();
}
