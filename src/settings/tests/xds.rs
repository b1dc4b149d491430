//! Settings of a control plane, by flags and by variables of the reference.

use tollgate_xds::XdsSettings;

use super::*;

const SELECTS_XDS: (&str, &str) = ("CONFIG_TYPE", "GRPC_XDS_SOTW");

/// The control plane that the reference's variables name.
fn of_reference(variables: &[(&str, &str)]) -> XdsSettings {
    let settings = settings("", &[&[SELECTS_XDS], variables].concat());
    assert_eq!(settings.rules.source, RulesSource::Xds);
    settings.rules.xds
}

#[test]
fn variables_of_the_reference_configure_the_control_plane() {
    let named = |plane: &XdsSettings| {
        let server = plane.server.as_ref().expect("named");
        format!("{server} {}", plane.node_id)
    };
    let usual = of_reference(&[]);
    assert_eq!(named(&usual), "http://localhost:18000/ default");
    assert!(!usual.has_tls());
    let plane = of_reference(&[
        ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///plane:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "edge"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a,team=b"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:Bearer x:y,x-tenant:t"),
        ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1000"),
    ]);
    assert_eq!(named(&plane), "http://plane:18001/ edge");
    assert_eq!(plane.node_metadata.expect("stated").len(), 2);
    assert_eq!(plane.headers.expect("stated")[0].1, "Bearer x:y");
    assert_eq!(plane.max_message_bytes, 1_000);
}

#[test]
fn tls_variables_of_the_reference_apply_only_with_its_switch() {
    let files = [
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "plane"),
    ];
    let on = [&[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")], &files[..]].concat();
    let plane = of_reference(&on);
    assert!(plane.has_tls() && plane.authorities.is_some() && plane.client.is_some());
    assert_eq!(plane.server_name.as_deref(), Some("plane"));

    let off = settings("", &[&[SELECTS_XDS], &files[..]].concat());
    assert!(!off.rules.xds.has_tls() && off.rules.xds.client.is_none());
    assert_eq!(off.notices.len(), 4, "{:?}", off.notices);
    assert!(off.notices[0].contains("CONFIG_GRPC_XDS_SERVER_USE_TLS is not true"));
}

#[test]
fn backoff_variables_of_the_reference_apply() {
    let millis = |variables: &[(&str, &str)]| {
        let backoff = of_reference(variables).backoff;
        (backoff.initial.as_millis(), backoff.max.as_millis(), backoff.jitter)
    };
    let (initial, retry) =
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL");
    let (max, jitter) = ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "XDS_CLIENT_BACKOFF_JITTER");
    let factor = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR";
    assert_eq!(millis(&[]), (500, 30_000, 0.5));
    assert_eq!(millis(&[(initial, "10s"), (max, "60s"), (factor, "0.25")]), (10_000, 60_000, 0.25));
    assert_eq!(millis(&[(retry, "3s")]), (3_000, 30_000, 0.5));
    assert_eq!(millis(&[(retry, "3s"), (initial, "1s"), (jitter, "false")]), (1_000, 30_000, 0.0));
    assert_eq!(millis(&[(initial, "2m")]), (30_000, 30_000, 0.5));
}

#[test]
fn flags_configure_the_control_plane() {
    let line = "--rules xds --xds-server https://plane:18001 --xds-ca /ca.pem --xds-server-name other";
    let plane = settings(line, &[]).rules.xds;
    assert!(plane.has_tls());
    assert_eq!(plane.server_name.as_deref(), Some("other"));
    assert_eq!(plane.keepalive.as_secs(), 360);
    for (line, flag) in [
        ("--rules xds", "--rules: `xds` without a control plane; expected --xds-server"),
        ("--xds-server http://plane:1", "--xds-server: only for --rules xds"),
        (
            "--rules xds --xds-server http://plane:1 --xds-ca /ca",
            "--xds-ca: requires --xds-server with an https:// URL",
        ),
        (
            "--rules xds --xds-server https://plane:1 --xds-client-cert /c",
            "--xds-client-cert: expected CERT,KEY",
        ),
        ("--rules xds --xds-server plane:1", "--xds-server"),
        ("--rules xds --xds-server http://plane:1 --xds-headers sesame", "--xds-headers"),
    ] {
        assert_refused(line, &[], flag);
    }
}

#[test]
fn variables_of_a_control_plane_have_no_effect_without_one() {
    let server = ("CONFIG_GRPC_XDS_SERVER_URL", "plane:18000");
    for (line, variables, why) in [
        ("", vec![server], "CONFIG_TYPE is not GRPC_XDS_SOTW"),
        ("--rules directory", vec![SELECTS_XDS, server], "--rules selects the source; use the --xds flags"),
    ] {
        let settings = settings(line, &variables);
        assert_eq!((settings.rules.source, settings.rules.xds.server), (RulesSource::Directory, None));
        assert!(settings.notices[0].contains(why), "{:?}", settings.notices);
    }
    assert_refused("", &[("CONFIG_TYPE", "ETCD")], "expected FILE or GRPC_XDS_SOTW");
    let jitter = "XDS_CLIENT_BACKOFF_JITTER";
    assert_refused("", &[SELECTS_XDS, (jitter, "maybe")], jitter);
}
