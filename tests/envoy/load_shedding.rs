//! Load shedding behind a real Envoy, by `deploy/envoy/load_shedding.yaml`.

use std::{collections::VecDeque, sync::atomic::AtomicU32};

use axum::{extract::State, response::IntoResponse};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::*;

const HEADER: &str = "endpoint-load-metrics";

/// A service that reports what a test sets, in percent.
async fn reporting(percent: Arc<AtomicU32>) -> u16 {
    let answer = async |State(percent): State<Arc<AtomicU32>>| {
        let percent = percent.load(SeqCst);
        let report =
            format!("TEXT cpu_utilization=0.01,application_utilization={}", f64::from(percent) / 100.0);
        ([(HEADER, report)], "done\n")
    };
    serve(Router::new().fallback(answer).with_state(percent)).await
}

async fn serve(router: Router) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("is bound").port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    port
}

const UTILIZATION: &str = r#"tollgate_rule_utilization_ratio{domain="shed",rule="service_checkout"}"#;
const SHED_LOW: &str =
    r#"tollgate_rule_shed_hits_total{domain="shed",rule="service_checkout",priority="low"}"#;
const PASS_LOW: &str = r#"tollgate_rule_pass_ratio{domain="shed",rule="service_checkout",priority="low"}"#;

/// Requests of each kind until `is_done`, and what the last request to `/reports` got.
fn until(envoy: &Envoy, is_done: impl Fn(&Answer) -> bool) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        for path in ["/pay", "/other"] {
            let answer = envoy.get(path);
            assert!([200, 503].contains(&answer.status), "{path}: {}", answer.status);
        }
        let answer = envoy.get("/reports");
        if is_done(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "it does not come about");
    }
}

#[tokio::test]
async fn reports_of_the_upstream_shed_low_priorities_and_then_open_again() {
    let redis = Redis::start();
    let tollgate = Tollgate::serving(
        "domain: shed\ndescriptors:\n- {key: service, value: checkout, load_shedding: {target: 80%, half_life: 1s}}\n",
        &["--store", &redis.url(), "--store-timeout", "2s"],
    );
    let percent = Arc::new(AtomicU32::new(97));
    let upstream = reporting(Arc::clone(&percent)).await;
    let envoy =
        Bootstrap::read("load_shedding", tollgate.grpc_port, Some(upstream)).run(&[tollgate.grpc_port]);
    spawn_blocking(move || {
        let shed = until(&envoy, |answer| answer.status == 503);
        assert_eq!(shed.header("x-ratelimit-policy"), Some("shed"));
        let retry_after: u32 = shed.header("retry-after").expect("is set").parse().expect("a number");
        assert!((1..=5).contains(&retry_after), "{retry_after}");
        assert!(tollgate.metric(SHED_LOW).is_some_and(|hits| hits >= 1.0));
        let utilization = tollgate.metric(UTILIZATION).expect("reported");
        assert!((utilization - 0.97).abs() < 1e-9, "{utilization}");
        let paid = envoy.get("/pay");
        assert_eq!((paid.status, paid.header(HEADER)), (200, None), "clients do not get the report");

        percent.store(10, SeqCst);
        until(&envoy, |_| tollgate.metric(PASS_LOW) == Some(1.0));
    })
    .await
    .expect("no panic");
}

#[test]
fn the_file_sheds_as_it_documents() {
    let tollgate = Tollgate::start(&project("deploy/envoy/rules"), &[]);
    let envoy = Bootstrap::read("load_shedding", tollgate.grpc_port, None).run(&[tollgate.grpc_port]);
    until(&envoy, |answer| answer.status == 503);
}

/// Requests per second that the service can do.
const CAPACITY: u32 = 500;

/// Longest queue of the service, as the time of its work.
const MAX_QUEUE: Duration = Duration::from_millis(500);

/// Requests per second of the paths, in the order of their priority.
const OFFERED: [(&str, u32); 3] = [("/pay", 300), ("/other", 600), ("/reports", 600)];

/// A service that does one request after another, rejects what would wait too long, and reports the busy part of its last
/// second.
struct Service {
    state: Mutex<Work>,
    rejected: AtomicUsize,
}

struct Work {
    free_at: Instant,
    /// Times of work: from and until.
    done: VecDeque<(Instant, Instant)>,
}

impl Work {
    /// The busy part of the last second.
    fn utilization(&mut self, now: Instant) -> f64 {
        let begin = now - Duration::from_secs(1);
        while self.done.front().is_some_and(|(_, until)| *until <= begin) {
            self.done.pop_front();
        }
        let busy = self.done.iter().map(|(from, until)| {
            (*until).min(now).saturating_duration_since((*from).max(begin)).as_secs_f64()
        });
        busy.sum::<f64>().min(1.0)
    }
}

async fn work(State(service): State<Arc<Service>>) -> Response {
    let now = Instant::now();
    let until = {
        let mut work = service.state.lock();
        let from = work.free_at.max(now);
        (from - now <= MAX_QUEUE).then(|| {
            let until = from + Duration::from_secs(1) / CAPACITY;
            work.free_at = until;
            work.done.push_back((from, until));
            until
        })
    };
    let status = match until {
        Some(until) => {
            sleep_until(until.into()).await;
            StatusCode::OK
        }
        None => {
            service.rejected.fetch_add(1, SeqCst);
            StatusCode::TOO_MANY_REQUESTS
        }
    };
    let utilization = service.state.lock().utilization(Instant::now());
    (status, [(HEADER, format!("TEXT application_utilization={utilization:.4}"))], "done\n").into_response()
}

/// Outcomes of the requests to one path in one second: sent, passed to the service, and shed.
type Second = [AtomicUsize; 3];

/// A connection to Envoy, for one request after another.
async fn exchange(stream: &mut TcpStream, path: &str) -> std::io::Result<u16> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    let mut buffer = [0; 2_048];
    loop {
        let read = stream.read(&mut buffer).await?;
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().expect("a number")) {
                return Ok(head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"));
            }
        }
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Sends requests for a path at a rate, on as many connections as are needed.
async fn offer(port: u16, path: &'static str, rate: u32, seconds: Arc<Vec<Second>>, begun: Instant) {
    let idle: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    loop {
        ticks.tick().await;
        let Some(second) = seconds.get(begun.elapsed().as_secs() as usize) else { return };
        second[0].fetch_add(1, SeqCst);
        let (idle, seconds) = (Arc::clone(&idle), Arc::clone(&seconds));
        calls.spawn(async move {
            let known = idle.lock().pop();
            let mut stream = match known {
                Some(stream) => stream,
                None => TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens"),
            };
            let status = timeout(Duration::from_secs(10), exchange(&mut stream, path)).await;
            let Some(second) = seconds.get(begun.elapsed().as_secs() as usize) else { return };
            match status {
                Ok(Ok(503)) => second[2].fetch_add(1, SeqCst),
                Ok(Ok(_)) => second[1].fetch_add(1, SeqCst),
                Ok(Err(_)) | Err(_) => return,
            };
            idle.lock().push(stream);
        });
        while calls.try_join_next().is_some() {}
    }
}

/// A minute of a service with a capacity of 500/s that is offered 1,500/s through a real Envoy. A measurement, for an idle
/// machine; `SHED_SECONDS` sets its length.
#[tokio::test]
#[ignore = "takes a minute of an idle machine"]
async fn a_service_offered_three_times_its_capacity_settles_behind_envoy() {
    let length = env::var("SHED_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let work_state = Mutex::new(Work { free_at: Instant::now(), done: VecDeque::new() });
    let service = Arc::new(Service { state: work_state, rejected: AtomicUsize::new(0) });
    let upstream = serve(Router::new().fallback(work).with_state(Arc::clone(&service))).await;
    let tollgate = Tollgate::start(&project("deploy/envoy/rules"), &[]);
    let envoy = Bootstrap::read("load_shedding", tollgate.grpc_port, Some(upstream))
        .with("    connect_timeout: 1s\n", "    connect_timeout: 1s\n    circuit_breakers: {thresholds: [{max_requests: 10000, max_pending_requests: 10000, max_connections: 10000}]}\n")
        .run(&[tollgate.grpc_port]);
    let begun = Instant::now();
    let counts: [Arc<Vec<Second>>; 3] =
        std::array::from_fn(|_| Arc::new((0..length).map(|_| Second::default()).collect()));
    let mut offers = JoinSet::new();
    for ((path, rate), seconds) in OFFERED.into_iter().zip(&counts) {
        offers.spawn(offer(envoy.port, path, rate, Arc::clone(seconds), begun));
    }
    let mut utilizations = Vec::new();
    for second in 1..=length {
        sleep((begun + Duration::from_secs(second as u64)).saturating_duration_since(Instant::now())).await;
        utilizations.push(service.state.lock().utilization(Instant::now()));
    }
    offers.join_all().await;
    let passed = counts.each_ref().map(|seconds| {
        let sum = |at: usize| seconds.iter().map(|second: &Second| second[at].load(SeqCst)).sum::<usize>();
        (sum(0), sum(1), sum(2))
    });
    let is_off = |part: f64| move |utilization: &f64| (utilization - 0.8).abs() > 0.8 * part;
    let settled = |part: f64| utilizations.iter().rposition(is_off(part)).map_or(0, |last| last + 1);
    println!("utilization after each second: {utilizations:.2?}");
    println!("settled at ±5 % after {} s, at ±10 % after {} s", settled(0.05), settled(0.1));
    for ((path, rate), (sent, passed, shed)) in OFFERED.into_iter().zip(passed) {
        println!("{path} offered {rate}/s: {sent} sent, {passed} passed, {shed} shed");
    }
    println!("the service rejected {}", service.rejected.load(SeqCst));
    assert!(settled(0.1) <= 30, "{utilizations:.2?}");
    let (_, critical, shed) = passed[0];
    assert!(shed * 100 <= critical + shed, "{shed} of {critical} critical requests were shed");
}
