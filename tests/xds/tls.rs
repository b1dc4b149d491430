//! TLS to the control plane, with certificates on both sides.

use super::control_plane::{ControlPlane, config};
use super::*;

/// The files of one side: what it trusts, and what it shows.
fn files(trusted: &Authority, shown: &Pair) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    put(directory.path(), trusted, shown);
    directory
}

fn put(directory: &Path, trusted: &Authority, shown: &Pair) {
    write(directory, "ca.crt", &trusted.pem());
    write(directory, "tls.crt", &shown.certificate);
    write(directory, "tls.key", &shown.key);
}

/// A tollgate that uses them.
fn spawn(port: u16, directory: &Path, flags: &[&str]) -> XdsInstance {
    let file = |name: &str| directory.join(name).display().to_string();
    let (ca, pair) = (file("ca.crt"), ["tls.crt", "tls.key"].map(file).join(","));
    let own = ["--xds-ca", &ca, "--xds-client-cert", &pair];
    let steady = ["--start-without-rules", BACKOFF[0], BACKOFF[1]];
    XdsInstance::spawn(&format!("https://localhost:{port}"), &[&own[..], &steady, flags].concat())
}

#[test]
fn an_untrusted_control_plane_gets_nothing_until_the_ca_file_is_fixed() {
    let (good, other) = (Authority::new("good"), Authority::new("other"));
    let plane = ControlPlane::start_tls(free_port(), &good.sign(&["localhost"]), &good);
    plane.push("1", &[config("web", "key", 0)]);
    let own = good.sign(&["tollgate"]);
    let directory = files(&other, &own);
    let instance = spawn(plane.port, directory.path(), &[]);
    let log = instance.wait_for_log("control plane unreachable");
    assert!(log.contains("UnknownIssuer"), "{log}");
    assert!(!instance.is_ready() && plane.requests().is_empty());
    write(directory.path(), "ca.crt", &good.pem());
    instance.tollgate.wait_until_ready();
    plane.wait_for_ack("1");
}

#[test]
fn a_control_plane_gets_the_current_client_certificate() {
    let (servers, clients, others) =
        (Authority::new("servers"), Authority::new("clients"), Authority::new("others"));
    let plane = ControlPlane::start_tls(free_port(), &servers.sign(&["localhost"]), &clients);
    plane.push("1", &[config("web", "key", 0)]);
    let directory = files(&servers, &others.sign(&["tollgate"]));
    let instance = spawn(plane.port, directory.path(), &[]);
    instance.wait_for_log("control plane unreachable");
    assert!(!instance.is_ready() && plane.requests().is_empty());
    put(directory.path(), &servers, &clients.sign(&["tollgate"]));
    instance.tollgate.wait_until_ready();
    plane.wait_for_ack("1");
    let page = instance.tollgate.metrics();
    assert!(
        page.contains("tollgate_tls_client_certificate_expiry_timestamp_seconds{client=\"xds\"} "),
        "{page}"
    );
    let port = plane.port;
    drop(plane);

    // Both sides have new ones.
    let (servers, clients) = (Authority::new("servers 2"), Authority::new("clients 2"));
    put(directory.path(), &servers, &clients.sign(&["tollgate"]));
    let plane = ControlPlane::start_tls(port, &servers.sign(&["localhost"]), &clients);
    plane.push_accepted("2", &[config("web", "key", 1)]);
}

#[test]
fn the_expected_name_of_a_certificate_can_be_configured() {
    let authority = Authority::new("one");
    let plane = ControlPlane::start_tls(free_port(), &authority.sign(&["envoy-gateway"]), &authority);
    plane.push("1", &[config("web", "key", 0)]);
    let directory = files(&authority, &authority.sign(&["tollgate"]));
    let strict = spawn(plane.port, directory.path(), &[]);
    let log = strict.wait_for_log("control plane unreachable");
    assert!(log.contains("certificate not valid for name \"localhost\""), "{log}");
    let found = spawn(plane.port, directory.path(), &["--xds-server-name", "envoy-gateway"]);
    found.tollgate.wait_until_ready();
}

#[test]
fn an_unusable_file_is_named_and_reread() {
    let authority = Authority::new("one");
    let plane = ControlPlane::start_tls(free_port(), &authority.sign(&["localhost"]), &authority);
    plane.push("1", &[config("web", "key", 0)]);
    let own = authority.sign(&["tollgate"]);
    let directory = files(&authority, &own);
    write(directory.path(), "tls.key", "nothing of use");
    let instance = spawn(plane.port, directory.path(), &[]);
    let log = instance.wait_for_log("--xds-client-cert: ");
    assert!(log.contains("expected a private key in PEM form") && !log.contains("nothing of use"), "{log}");
    write(directory.path(), "tls.key", &own.key);
    instance.tollgate.wait_until_ready();
}
