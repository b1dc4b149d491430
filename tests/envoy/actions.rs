//! Descriptors that Envoy sends by its actions, by the page on them and the examples: one path is one key however it is written.

use std::{io::Read as _, net::TcpStream};

use super::*;

/// Spellings of `/login` that services take for it.
const SPELLINGS: [&str; 22] = [
    "/login",
    "/login?x=1",
    "/login?",
    "/login?next=/a/;b//",
    "/login/",
    "/login//",
    "//login",
    "///login///?x",
    "/%6cogin",
    "/%6Cogin",
    "/./login",
    "/login/.",
    "/login/%2e",
    "/a/../login",
    "/a/%2e%2e/login",
    "/%2E/login",
    "/login;x",
    "/login;x=1;y/?z",
    "/login/;x",
    "/;x/login",
    "/\\login",
    "http://t/login?x",
];

const ESCAPED: [&str; 4] = ["/%2flogin", "/login%2f", "/login%5C", "/a%2F..%2Flogin"];

/// The status and the location of the response to a request that is sent as it is written.
fn get(envoy: &Envoy, target: &str, headers: &str) -> (u16, Option<String>) {
    let mut stream = TcpStream::connect(("127.0.0.1", envoy.port)).expect("Envoy listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let request = format!("GET {target} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let location = text.lines().find_map(|line| line.strip_prefix("location: ")).map(str::to_owned);
    (status, location)
}

fn limit(spellings: usize) -> String {
    format!(
        "domain: edge\ndescriptors:\n\
         - {{key: path, rate_limit: {{unit: year, requests_per_unit: 1}}}}\n\
         - {{key: path, value: /login, rate_limit: {{unit: year, requests_per_unit: {spellings}}}}}\n"
    )
}

#[test]
fn every_spelling_of_a_path_counts_as_one() {
    for name in ["edge", "fail_closed"] {
        let tollgate = Tollgate::serving(&limit(SPELLINGS.len()), &[]);
        let envoy = Bootstrap::read(name, tollgate.grpc_port, None).run(&[tollgate.grpc_port]);
        for spelling in SPELLINGS {
            assert_eq!(get(&envoy, spelling, "").0, 200, "{name}: {spelling}");
        }
        for spelling in SPELLINGS {
            assert_eq!(get(&envoy, spelling, "").0, 429, "{name}: {spelling}");
        }
        // Redirected to a path that is counted.
        for escaped in ESCAPED {
            let (status, location) = get(&envoy, escaped, "");
            let location = location.unwrap_or_default();
            assert_eq!(
                (status, &*get(&envoy, &location, "").0.to_string()),
                (307, "429"),
                "{name}: {location}"
            );
        }
        // Other paths, and the root, which nothing is left of.
        for other in ["/", "/logins", "/login/a"] {
            let statuses = [get(&envoy, other, "").0, get(&envoy, &format!("{other}?x"), "").0];
            assert_eq!(statuses, [200, 429], "{name}: {other}");
        }
        // A query longer than a value of metadata may be.
        assert_eq!(get(&envoy, &format!("/login?{}", "x".repeat(9_000)), "").0, 429, "{name}");
    }
}

/// The HTTP connection manager that clients reach, and the actions, of each file with one.
#[test]
fn every_example_normalizes_paths_and_counts_none_as_it_is_sent() {
    let files =
        fs::read_dir(project("deploy/envoy")).expect("a directory").map(|file| file.expect("read").path());
    let files =
        files.chain(["compose/envoy.yaml", "istio/gateway.yaml"].map(|file| project("deploy").join(file)));
    let normalized = docs::block("yaml envoy path");
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let text = fs::read_to_string(&path).expect("a text");
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let plain = text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        // TCP has no paths, and applications sign those of their requests to partners.
        assert_eq!(plain.contains(&normalized), !["tcp", "egress"].contains(&name), "{name}");
        assert!(!text.contains("header_name: \":path\""), "{name}");
        let by_path = text.contains("descriptor_key: path");
        let filter =
            docs::block("yaml envoy path filter").lines().map(str::trim).collect::<Vec<_>>().join("\n");
        assert_eq!(plain.contains(&filter), by_path, "{name}");
        let has_key = text.contains("header_name: x-") || text.contains("query_parameter_name: api_key");
        let says_who =
            ["has to come from a filter", "has to refuse unknown keys", "should have authenticated"];
        assert!(!has_key || says_who.iter().any(|words| text.contains(words)), "{name}: who sets its key?");
    }
}

/// An Envoy with these limits behind one trusted proxy, whose descriptors are named by their heaviest keys.
fn behind_a_proxy(limits: &str) -> (TempDir, Tollgate, Envoy) {
    let config =
        rules("domain: edge\ndescriptors:\n- {key: none, rate_limit: {unit: year, requests_per_unit: 1}}\n");
    let tollgate = Tollgate::start(config.path(), &[]);
    let mut bootstrap = Bootstrap::read("edge", tollgate.grpc_port, None)
        .with("use_remote_address: true", "use_remote_address: true\n          xff_num_trusted_hops: 1");
    let begin = bootstrap.yaml.find("              rate_limits:").expect("limits");
    let end = bootstrap.yaml.find("          - name: envoy.filters.http.router").expect("a router");
    let limits: String = limits.lines().map(|line| format!("              {line}\n")).collect();
    bootstrap.yaml.replace_range(begin..end, &limits);
    let envoy = bootstrap.run(&[tollgate.grpc_port]);
    (config, tollgate, envoy)
}

/// The descriptors of all requests, once there are this many.
fn sent(tollgate: &Tollgate, count: usize) -> BTreeSet<String> {
    let keys = || -> BTreeSet<String> {
        let top = tollgate.api("/top?domain=edge&limit=100&scope=instance");
        let heaviest = top["domains"][0]["heaviest"].as_array().cloned().unwrap_or_default();
        let text =
            |pair: &Value| format!("{}={}", pair["key"].as_str().unwrap(), pair["value"].as_str().unwrap());
        let pairs = |talker: &Value| {
            talker["descriptor"].as_array().expect("pairs").iter().map(text).collect::<Vec<_>>()
        };
        heaviest.iter().map(|talker| pairs(talker).join(",")).collect()
    };
    wait("it does not come about", || keys().len() >= count);
    keys()
}

#[test]
fn the_shown_actions_give_each_request_a_limit() {
    let (_config, tollgate, envoy) = behind_a_proxy(&docs::block("yaml envoy actions"));
    let proxied = "x-forwarded-for: 192.0.2.66, 2001:db8:1:2:3::4\r\n";
    get(&envoy, "//login?x", &format!("{proxied}x-user: me\r\n"));
    get(&envoy, "/", proxied);
    get(&envoy, "/", "x-forwarded-for: 192.0.2.66, 203.0.113.9\r\n");
    let expected = [
        "anonymous=true,masked_remote_address=2001:db8:1:2::/64",
        "anonymous=true,masked_remote_address=203.0.113.9/32",
        "path=/",
        "path=/login",
        "user=me",
    ];
    assert_eq!(sent(&tollgate, expected.len()), BTreeSet::from(expected.map(str::to_owned)));
}

/// Each action of the page's table.
const ALL_ACTIONS: &str = "rate_limits:
- actions: [{generic_key: {descriptor_value: v}}]
- actions: [{generic_key: {descriptor_key: k, descriptor_value: v}}]
- actions: [{remote_address: {}}]
- actions: [{masked_remote_address: {}}]
- actions: [{masked_remote_address: {v4_prefix_mask_len: 24}}]
- actions: [{remote_address_match: {descriptor_value: v, address_matcher: {ranges: [{address_prefix: 203.0.113.0, prefix_len: 24}]}}}]
- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
- actions:
  - generic_key: {descriptor_key: skip, descriptor_value: v}
  - request_headers: {header_name: x-user, descriptor_key: user, skip_if_absent: true}
- actions: [{header_value_match: {descriptor_value: v, headers: [{name: x-user, present_match: true}]}}]
- actions: [{query_parameters: {query_parameter_name: q, descriptor_key: query}}]
- actions: [{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: q, present_match: true}]}}]
- actions: [{metadata: {descriptor_key: absent, metadata_key: {key: request, path: [{key: none}]}}}]
- actions: [{metadata: {descriptor_key: default, metadata_key: {key: request, path: [{key: none}]}, default_value: d}}]
- actions: [{destination_cluster: {}}]
- actions:
  - extension:
      name: envoy.rate_limit_descriptors.expr
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor
        descriptor_key: expression
        text: request.headers['x-user']
";

#[test]
fn actions_send_what_the_page_says_and_nothing_without_their_header() {
    let always = ["default=d", "destination_cluster=upstream", "generic_key=v", "k=v"];
    let all = |more: &[&str]| always.iter().chain(more).map(|&text| text.to_owned()).collect::<BTreeSet<_>>();
    let (_config, tollgate, envoy) = behind_a_proxy(ALL_ACTIONS);
    get(&envoy, "/", "x-forwarded-for: 2001:db8::1\r\n");
    let without = all(&["masked_remote_address=2001:db8::1/128", "remote_address=2001:db8::1", "skip=v"]);
    assert_eq!(sent(&tollgate, without.len()), without);
    drop((envoy, tollgate));
    let (_config, tollgate, envoy) = behind_a_proxy(ALL_ACTIONS);
    get(&envoy, "/?q=%61&q=b", "x-forwarded-for: 203.0.113.9\r\nx-user: me\r\nx-user: you\r\n");
    let with = all(&[
        "expression=me,you",
        "header_match=v",
        "masked_remote_address=203.0.113.0/24",
        "masked_remote_address=203.0.113.9/32",
        "query=a",
        "query_match=v",
        "remote_address=203.0.113.9",
        "remote_address_match=v",
        "skip=v,user=me",
        "user=me",
    ]);
    assert_eq!(sent(&tollgate, with.len()), with);
}
