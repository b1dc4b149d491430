//! Readiness with a Redis that cannot decide: never ready, the cause named, and ready once it is mended.

mod setups;
mod uncharged;

use crate::support::prelude::*;

const RULES: &str = "
domain: d
descriptors:
- {key: plain, rate_limit: {unit: year, requests_per_unit: 50}}
- {key: waits, rate_limit: {unit: year, requests_per_unit: 50, on_store_error: deny}}
- {key: fails, rate_limit: {unit: year, requests_per_unit: 50, on_store_error: error}}
";

/// The message of the log line that names the cause.
const LINE: &str = "Redis has not decided yet";

/// An instance whose log is kept.
struct Instance {
    tollgate: Tollgate,
    started: Instant,
    _rules: TempDir,
}

impl Instance {
    fn start(url: &str, arguments: &[&str]) -> Self {
        let rules = rules(RULES);
        let arguments =
            [&["--store", url, "--workers", "2", "--on-store-error", "local"], arguments].concat();
        let started = Instant::now();
        let tollgate = Tollgate::spawn_logging(command(), rules.path(), &arguments);
        Self { tollgate, started, _rules: rules }
    }

    /// Waits until the instance, which is never ready, names the cause and the remedy in its log and its responses.
    fn names(&self, cause: &str, remedy: &str) {
        let is_named = |text: &str| text.contains(cause) && text.contains(remedy);
        let mut seen = String::new();
        wait(&format!("{cause} is not named"), || {
            let Some(answer) = http::try_get(&self.tollgate.url("/ready")) else { return false };
            assert_eq!(answer.status, 500, "{cause}: it is ready");
            if seen != answer.body {
                println!("{cause}: {} ms: {}", self.started.elapsed().as_millis(), answer.body);
                seen = answer.body;
            }
            is_named(&seen) && self.tollgate.logged(LINE).iter().any(|line| is_named(line))
        });
        println!("{cause}: named after {} ms: {seen}", self.started.elapsed().as_millis());
    }

    /// Waits until the instance is ready, and decides by Redis.
    async fn is_ready_once_mended(&self, cause: &str) {
        let mended = Instant::now();
        self.tollgate.wait_until_ready();
        println!("{cause}: ready {} ms after the mending", mended.elapsed().as_millis());
        assert!(self.tollgate.logged(LINE).len() < 5, "{}", self.tollgate.log());
        let mut client = self.tollgate.client().await;
        // A call may take longer than the timeout on a busy machine.
        for _ in 0..100 {
            if !is_degraded(&send(&mut client, "plain").await.expect("an answer")) {
                return;
            }
        }
        panic!("every call is degraded: {}", self.tollgate.log());
    }

    /// Checks that calls get the policies of their limits.
    async fn degrades(&self) {
        let mut client = self.tollgate.client().await;
        for (key, code) in [("plain", Code::Ok), ("waits", Code::OverLimit)] {
            let answer = send(&mut client, key).await.expect("an answer");
            assert!(answer.overall_code() == code && is_degraded(&answer), "{key}: {answer:?}");
        }
        assert_eq!(send(&mut client, "fails").await.expect_err("no answer").code(), tonic::Code::Unavailable);
        assert_eq!(http::get(&self.tollgate.url("/healthcheck")).status, 500);
        let status = self.tollgate.api("/status");
        let problem = status["not_ready"].as_str().expect("a reason");
        assert!(status["phase"] == "starting" && problem.contains(LINE), "{status}");
    }
}

async fn send(client: &mut Client, key: &str) -> Result<RateLimitResponse, tonic::Status> {
    client.call(request("d", &[&[(key, "me")]])).await
}

fn is_degraded(answer: &RateLimitResponse) -> bool {
    let mut headers = answer.response_headers_to_add.iter();
    headers.any(|header| header.key == "x-ratelimit-policy" && header.value == "degraded")
}
