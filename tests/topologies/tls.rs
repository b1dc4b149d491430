//! TLS to every server.

use super::*;

/// An authority, and a certificate of its own for this machine, as files.
pub(crate) struct Certificates {
    directory: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new("authority");
        authority.sign(&["127.0.0.1", "localhost"]).write(directory.path());
        fs::write(directory.path().join("ca.pem"), authority.pem()).expect("written");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Arguments for a server that wants to see a certificate of its clients too.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let files = [
            ("--tls-ca-cert-file", "ca.pem"),
            ("--tls-cert-file", "cert.pem"),
            ("--tls-key-file", "key.pem"),
        ];
        let files = files
            .into_iter()
            .flat_map(|(flag, name)| [flag.to_owned(), self.path(name).display().to_string()]);
        files.chain(["--tls-auth-clients".to_owned(), "yes".to_owned()]).collect()
    }

    fn settings(&self, url: &str) -> RedisSettings {
        RedisSettings {
            ca_certificate: Some(self.path("ca.pem")),
            client_certificate: Some((self.path("cert.pem"), self.path("key.pem"))),
            ..settings(url)
        }
    }
}

#[tokio::test]
async fn one_server_with_tls() {
    let certificates = Certificates::new();
    let port = free_port().to_string();
    let mut arguments = certificates.arguments();
    arguments.extend(["--tls-port".to_owned(), port.clone()]);
    let _redis = Redis::start_on(0, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let url = format!("rediss://127.0.0.1:{port}");
    let store = open(&certificates.settings(&url));
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
    shows_the_client_certificate(&certificates, &url);
    // The authorities of the web did not sign this server's certificate.
    let store = open(&settings(&url));
    charge(&store, &one("a", Hits::ONE)).await.expect_err("an unknown client");
}

/// An instance exports when the certificate that it presents to the servers expires.
fn shows_the_client_certificate(certificates: &Certificates, url: &str) {
    let path = |name: &str| certificates.path(name).display().to_string();
    let (ca, pair) = (path("ca.pem"), ["cert.pem", "key.pem"].map(path).join(","));
    let files = ["--redis-ca", &ca, "--redis-client-cert", &pair];
    let store = ["--store", url, "--store-timeout", "5s"];
    let tollgate = Tollgate::serving(UNREACHED, &[store, files].concat());
    let expiry =
        tollgate.metric("tollgate_tls_client_certificate_expiry_timestamp_seconds{client=\"redis\"}");
    // As rcgen makes them: valid until the year 4096.
    assert!(expiry.is_some_and(|expiry| (6.7e10..6.8e10).contains(&expiry)), "{expiry:?}");
}

#[tokio::test]
async fn a_sentinel_and_its_master_with_tls() {
    let certificates = Certificates::new();
    let (port, sentinel_port) = (free_port().to_string(), free_port());
    let mut arguments = certificates.arguments();
    arguments.extend(["--tls-port".to_owned(), port.clone()]);
    let _redis = Redis::start_on(0, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let lines = certificates.arguments().chunks(2).fold(
        format!("tls-port {sentinel_port}\ntls-replication yes\nsentinel monitor main 127.0.0.1 {port} 1\n"),
        |lines, pair| format!("{lines}{} {}\n", pair[0].trim_start_matches("--"), pair[1]),
    );
    let _sentinel = Redis::start_sentinel(0, &lines);
    let url = format!("rediss+sentinel://127.0.0.1:{sentinel_port}/main");
    let store = open(&certificates.settings(&url));
    charge(&store, &one("a", Hits::ONE)).await.expect("an answer");
}

#[tokio::test]
async fn a_cluster_with_tls_between_all_and_redirections_through_it() {
    let certificates = Certificates::new();
    let mut arguments = certificates.arguments();
    arguments.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let cluster = Cluster::start(2, 0, &arguments, "");
    let url = format!("rediss+cluster://127.0.0.1:{}", cluster.port(0));
    let store = open(&certificates.settings(&url));
    for number in 0..20 {
        charge(&store, &one(&format!("{number}"), Hits::ONE)).await.expect("an answer");
    }
    // A new counter of a slot on its way is redirected twice.
    let call = one("moving", Hits::ONE);
    let slot = call.cells[0].key.slot();
    let from = cluster.master_of(slot);
    cluster.begin_move(slot, from, 1 - from);
    charge(&store, &call).await.expect("decided");
    cluster.end_move(slot, from, 1 - from);
    assert_eq!(charge(&store, &call).await.expect("moved").used, 2);
    // Nodes that announce no address, and nodes that announce a host name.
    for node in [0, 1] {
        cluster.set(node, "cluster-announce-hostname", "localhost");
    }
    for (number, form) in [(3, "unknown-endpoint"), (4, "hostname")] {
        for node in [0, 1] {
            cluster.set(node, "cluster-preferred-endpoint-type", form);
        }
        let store = open(&certificates.settings(&url));
        assert_eq!(charge(&store, &call).await.expect("an answer").used, number);
        // Either is the wrong node for some.
        for other in 0..20 {
            charge(&store, &one(&format!("{other}"), Hits::ONE)).await.expect("an answer");
        }
    }
}
