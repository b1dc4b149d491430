//! The service between regions: changes of weights, regions that are away, and hostile clients.

use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code as Verdict;
use tollgate::proto::tollgate::region::v1::{
    Announcement, CounterLoanRequest, ExchangeRequest, counter_reply::Result as Outcome,
    regions_client::RegionsClient,
};
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::*;
use crate::support::certificates::Pair;

const NAMES: [&str; 3] = ["ap", "eu", "us"];

const RULES: &str = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: second, requests_per_unit: 800, scope: global}}\n\
             - {key: fixed, rate_limit: {unit: day, requests_per_unit: 900, scope: global}}\n\
             - {key: sliding, rate_limit: {unit: day, requests_per_unit: 900, scope: global, algorithm: sliding_window}}\n\
             - {key: far, rate_limit: {unit: day, requests_per_unit: 10, scope: global, on_share_exhausted: wait}}\n";

/// Three regions with an instance each.
pub(super) struct Mesh {
    directory: TempDir,
    ports: [u16; 3],
    authority: Authority,
    instances: Vec<Option<Tollgate>>,
    rules: TempDir,
}

impl Mesh {
    pub(super) fn start(weights: [u32; 3]) -> Self {
        Self::start_with(weights, [&[], &[], &[]])
    }

    /// Starts with these flags of the instances.
    pub(super) fn start_with(weights: [u32; 3], flags: [&[&str]; 3]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::new("regions");
        let ports = [(); 3].map(|()| free_port());
        let rules = rules(RULES);
        let mut mesh = Self { directory, ports, authority, instances: Vec::new(), rules };
        fs::write(mesh.file("ca.pem"), mesh.authority.pem()).expect("written");
        for name in NAMES {
            mesh.authority.sign(&[&format!("{name}.mesh")]).write(&mesh.named(name));
        }
        mesh.write_table(1, weights, &[]);
        let instances = (0..3).map(|at| Some(mesh.instance(at, flags[at]))).collect();
        mesh.instances = instances;
        mesh
    }

    fn instance(&self, at: usize, more: &[&str]) -> Tollgate {
        self.instance_by(command(), at, more)
    }

    fn instance_by(&self, program: Command, at: usize, more: &[&str]) -> Tollgate {
        let own = self.named(NAMES[at]);
        let address = format!("127.0.0.1:{}", self.ports[at]);
        let path = |name: &str| own.join(name).display().to_string();
        let (table, ca) = (self.file("regions.yaml"), self.file("ca.pem"));
        let (table, ca) = (table.display().to_string(), ca.display().to_string());
        let files = [path("cert.pem"), path("key.pem"), ca].join(",");
        let flags = [
            ["--region", NAMES[at]],
            ["--regions", &table],
            ["--region-address", &address],
            ["--region-tls", &files],
        ];
        let instance = Tollgate::spawn_by(program, self.rules.path(), &[flags.as_flattened(), more].concat());
        instance.wait_until_ready();
        instance
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn named(&self, region: &str) -> PathBuf {
        let directory = self.file(region);
        fs::create_dir_all(&directory).expect("created");
        directory
    }

    fn write_table(&self, generation: u32, weights: [u32; 3], lost: &[&str]) {
        let region = |(at, name): (usize, &&str)| {
            format!(
                "  {name}: {{address: 'https://127.0.0.1:{}', certificate_name: {name}.mesh, weight: {}, lost: {}}}\n",
                self.ports[at],
                weights[at],
                lost.contains(name)
            )
        };
        let regions: String = NAMES.iter().enumerate().map(region).collect();
        let text = format!("generation: {generation}\nregions:\n{regions}");
        fs::write(self.file("regions.yaml"), text).expect("written");
    }

    pub(super) fn get(&self, at: usize) -> &Tollgate {
        self.instances[at].as_ref().expect("running")
    }

    fn wait_for(&self, at: usize, sample: &str) {
        wait(&format!("{}: not {sample}", NAMES[at]), || {
            http::get(&self.get(at).url("/metrics")).body.lines().any(|line| line == sample)
        });
    }

    /// Waits until every region has a reply of every other one.
    pub(super) fn wait_until_connected(&self) {
        for (at, name) in NAMES.iter().enumerate() {
            for other in NAMES.iter().filter(|other| *other != name) {
                self.wait_for(at, &format!("tollgate_region_up{{region=\"{other}\"}} 1"));
            }
        }
    }

    /// Waits until the region has a share, as counters state it that were not used before.
    async fn wait_for_share(&self, at: usize, share: u32) {
        let mut client = self.get(at).client().await;
        for key in 0.. {
            let key = format!("{share}-{key}");
            let answer = client.call(request("d", &[&[("k", &key)]])).await.expect("an answer");
            let found = answer.statuses[0].limit_remaining + 1;
            if found == share {
                return;
            }
            assert!(key.len() < 9, "{}: the share stays {found}, not {share}", NAMES[at]);
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// A connection to the service of a region, with this certificate.
    async fn connect(
        &self,
        at: usize,
        shown: &Pair,
    ) -> Result<RegionsClient<Channel>, tonic::transport::Error> {
        let tls = ClientTlsConfig::new()
            .domain_name(format!("{}.mesh", NAMES[at]))
            .ca_certificate(Certificate::from_pem(self.authority.pem()))
            .identity(Identity::from_pem(&shown.certificate, &shown.key));
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.ports[at])).expect("a URL");
        endpoint.tls_config(tls)?.connect().await.map(RegionsClient::new)
    }
}

#[tokio::test]
async fn a_change_is_finished_once_every_region_that_is_not_lost_has_announced_it() {
    let mut mesh = Mesh::start([1, 1, 2]);
    mesh.wait_until_connected();
    mesh.wait_for_share(2, 400).await;
    mesh.write_table(2, [2, 1, 1], &[]);
    for at in 0..3 {
        mesh.wait_for(at, "tollgate_region_generation 2");
        mesh.wait_for(at, "tollgate_region_changes_unfinished 0");
    }
    mesh.wait_for_share(2, 200).await;
    // A region that ended is not waited for once an operator has given it up.
    mesh.instances[1] = None;
    mesh.wait_for(0, "tollgate_region_up{region=\"eu\"} 0");
    mesh.write_table(3, [1, 1, 1], &["eu"]);
    for at in [0, 2] {
        mesh.wait_for(at, "tollgate_region_generation 3");
        mesh.wait_for(at, "tollgate_region_changes_unfinished 0");
    }
}

#[tokio::test]
#[ignore = "takes 15 s, which a share waits for"]
async fn a_raised_share_applies_once_the_hits_under_the_former_ones_have_stopped_counting() {
    let mesh = Mesh::start([1, 1, 2]);
    mesh.wait_until_connected();
    mesh.wait_for_share(0, 200).await;
    mesh.write_table(2, [2, 1, 1], &[]);
    for at in 0..3 {
        mesh.wait_for(at, "tollgate_region_changes_unfinished 0");
    }
    mesh.wait_for_share(0, 400).await;
}

/// Restarts the instance of a region until it decides by the record of its store from the start: on a busy machine the store
/// may not reply before an instance decides by the file. `prepare` is called while the instance is down.
fn restart(mesh: &mut Mesh, at: usize, flags: &[&str], mut prepare: impl FnMut()) {
    for _ in 0..20 {
        mesh.instances[at] = None;
        prepare();
        let (log, mut program) = (mesh.file("restarted.log"), command());
        program.stderr(fs::File::create(&log).expect("created"));
        mesh.instances[at] = Some(mesh.instance_by(program, at, flags));
        if !fs::read_to_string(log).expect("readable").contains("cannot read region tables") {
            return;
        }
    }
    panic!("the store does not reply in time");
}

/// Share of a region in counters that were not used before.
async fn share_of(mesh: &Mesh, at: usize, value: &str) -> u32 {
    let mut client = mesh.get(at).client().await;
    let answer = client.call(request("d", &[&[("fixed", value)]])).await.expect("an answer");
    answer.statuses[0].limit_remaining + u32::from(answer.overall_code() == Verdict::Ok)
}

#[tokio::test]
async fn an_instance_that_starts_during_a_change_does_not_use_a_raised_share() {
    let redis = Redis::start();
    let (url, mut server) = (redis.url(), redis.connect());
    let flags: &[&str] = &["--store", &url, "--store-timeout", "20s"];
    let mut mesh = Mesh::start_with([1, 1, 2], [&[], &[], flags]);
    mesh.wait_until_connected();
    assert_eq!(share_of(&mesh, 2, "before").await, 450);
    // Without it, the change does not finish.
    mesh.instances[1] = None;
    mesh.write_table(2, [1, 1, 7], &[]);
    mesh.wait_for(2, "tollgate_region_generation 2");
    wait("the record lacks a table", || {
        let record: Option<String> =
            cmd("GET").arg("{tollgate-rules}:region-tables").query(&mut server).expect("a record");
        record.is_some_and(|record| record.lines().count() == 2)
    });
    restart(&mut mesh, 2, flags, || ());
    assert_eq!(share_of(&mesh, 2, "restarted").await, 450, "the file alone has 700 of 900");
    // A region that returns with an empty store has no share until the others have announced its table.
    restart(&mut mesh, 2, flags, || cmd("FLUSHALL").exec(&mut server).expect("flushed"));
    assert_eq!(share_of(&mesh, 2, "joining").await, 0);
}

/// Announcement of a hostile client in the name of a region.
fn announcement(region: &str) -> Announcement {
    Announcement {
        region: region.to_owned(),
        generation: u64::MAX,
        digest: 1,
        lowered: u64::MAX,
        clock_us: u64::MAX,
    }
}

async fn assert_foreign_certificate_is_refused(mesh: &Mesh) {
    let foreign = Authority::new("another").sign(&["eu.mesh"]);
    let refused = match mesh.connect(2, &foreign).await {
        // With TLS 1.3 the client learns of it with the first message.
        Ok(mut client) => {
            client.exchange(ExchangeRequest { sender: None, loan_requests: Vec::new() }).await.is_err()
        }
        Err(_) => true,
    };
    assert!(refused, "a certificate of another CA");
}

/// Sends messages of senders that are not what their certificate names.
async fn assert_false_senders_are_refused_and_counted(mesh: &Mesh, eu: &Pair) {
    let stranger = &mesh.authority.sign(&["stranger.mesh"]);
    for (shown, sender, code, reason) in [
        (stranger, Some(announcement("eu")), Code::PermissionDenied, "certificate"),
        (eu, Some(announcement("ap")), Code::PermissionDenied, "certificate"),
        (eu, Some(announcement("us")), Code::PermissionDenied, "unknown_region"),
        (eu, Some(announcement("mars")), Code::PermissionDenied, "unknown_region"),
        (eu, None, Code::InvalidArgument, "malformed"),
    ] {
        let mut client = mesh.connect(2, shown).await.expect("connected");
        let error = client
            .exchange(ExchangeRequest { sender, loan_requests: Vec::new() })
            .await
            .expect_err("refused");
        assert_eq!(error.code(), code, "{reason}");
    }
    for (reason, count) in [("certificate", 2), ("unknown_region", 2), ("malformed", 1)] {
        mesh.wait_for(2, &format!("tollgate_region_refused_messages_total{{reason=\"{reason}\"}} {count}"));
    }
}

/// Sends loan requests of a region with another table, and absurd ones.
async fn assert_absurd_loan_requests_are_ignored(mesh: &Mesh, eu: &Pair) {
    let mut client = mesh.connect(2, eu).await.expect("connected");
    let request = CounterLoanRequest {
        cell: b"{d|k=v}".to_vec(),
        want: u32::MAX,
        id: u64::MAX,
        ..CounterLoanRequest::default()
    };
    let loan_requests = vec![request.clone(), CounterLoanRequest { cell: vec![b'{'; 1 << 10], ..request }];
    let other = ExchangeRequest { sender: Some(announcement("eu")), loan_requests: loan_requests.clone() };
    let replies = client.exchange(other).await.expect("answered").into_inner().replies;
    assert!(replies.len() == 2 && replies.iter().all(|reply| reply.result() == Outcome::Generation));
    let same =
        client.exchange(ExchangeRequest { sender: Some(announcement("eu")), loan_requests: Vec::new() });
    let own = same.await.expect("answered").into_inner().sender.expect("stated");
    let sender = Some(Announcement { region: "eu".to_owned(), ..own });
    let replies = client
        .exchange(ExchangeRequest { sender, loan_requests })
        .await
        .expect("answered")
        .into_inner()
        .replies;
    assert!(
        replies.iter().all(|reply| reply.result() == Outcome::Ignored && reply.amount == 0),
        "{replies:?}"
    );
}

/// Sends more messages of a region of the table than it may.
async fn assert_flood_is_refused_and_counted(mesh: &Mesh, eu: &Pair) {
    let client = mesh.connect(2, eu).await.expect("connected");
    let (mut callers, begun) = (JoinSet::new(), Instant::now());
    for _ in 0..40 {
        let mut client = client.clone();
        let request = ExchangeRequest { sender: Some(announcement("eu")), loan_requests: Vec::new() };
        callers.spawn(async move {
            let mut floods = 0;
            for _ in 0..103 {
                if let Err(error) = client.exchange(request.clone()).await {
                    assert_eq!(error.code(), Code::ResourceExhausted);
                    floods += 1;
                }
            }
            floods
        });
    }
    let floods: u32 = callers.join_all().await.into_iter().sum();
    let page = http::get(&mesh.get(2).url("/metrics")).body;
    let name = "tollgate_region_refused_messages_total{reason=\"flood\"} ";
    let counted = page.lines().find_map(|line| line.strip_prefix(name)?.parse::<u32>().ok());
    // Messages of the region's own instance are refused with them. A machine that is too busy for a flood makes none.
    let is_flood = begun.elapsed() < Duration::from_secs(1);
    assert!(
        counted.is_some_and(|counted| (floods > 0 || !is_flood) && counted >= floods),
        "{floods} of {counted:?}"
    );
}

#[tokio::test]
async fn messages_of_hostile_clients_are_refused_and_counted() {
    let mesh = Mesh::start([1, 1, 2]);
    mesh.wait_for(2, "tollgate_region_up{region=\"eu\"} 1");
    mesh.write_table(2, [1, 1, 1], &[]);
    mesh.wait_for(2, "tollgate_region_changes_unfinished 0");
    let eu = mesh.authority.sign(&["eu.mesh"]);
    assert_foreign_certificate_is_refused(&mesh).await;
    assert_false_senders_are_refused_and_counted(&mesh, &eu).await;
    assert_absurd_loan_requests_are_ignored(&mesh, &eu).await;
    // A region of the table that floods is refused beyond its bound, and others are not.
    assert_flood_is_refused_and_counted(&mesh, &eu).await;
    mesh.wait_for(2, "tollgate_region_up{region=\"ap\"} 1");
    let page = http::get(&mesh.get(2).url("/metrics")).body;
    assert!(page.contains("tollgate_tls_client_certificate_expiry_timestamp_seconds{client=\"region\"} "));
}

#[tokio::test]
async fn silent_connections_keep_no_region_out() {
    let mesh = Mesh::start([1, 1, 2]);
    let connect = || TcpStream::connect(("127.0.0.1", mesh.ports[2])).expect("connected");
    let silent: Vec<_> = (0..1_200).map(|_| connect()).collect();
    let eu = mesh.authority.sign(&["eu.mesh"]);
    for _ in 0..10 {
        let mut client = mesh.connect(2, &eu).await.expect("connected");
        let message = ExchangeRequest { sender: Some(announcement("eu")), loan_requests: Vec::new() };
        assert!(client.exchange(message).await.is_ok());
    }
    drop(silent);
}
