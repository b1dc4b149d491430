//! `deploy/compose`: its files are those of the project and valid, and its services fit each other. No engine runs it here.

use super::*;
use crate::support::envoy;

const FOLDER: &str = "deploy/compose";

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The dependencies of a service, in either of the two forms.
fn awaited(service: &Value) -> Vec<&str> {
    match &service["depends_on"] {
        Value::Object(conditions) => conditions.keys().map(String::as_str).collect(),
        list => strings(list),
    }
}

/// Words of the specification for the parts of a service; another word is a mistake.
const SERVICE_WORDS: [&str; 14] = [
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "deploy",
    "environment",
    "image",
    "ports",
    "read_only",
    "security_opt",
    "stop_grace_period",
    "user",
    "volumes",
    "working_dir",
];

#[test]
fn services_refer_to_existing_things() {
    let compose = yaml("deploy/compose/compose.yaml");
    let services = compose["services"].as_object().expect("services");
    for (name, service) in services {
        let service_words = service.as_object().expect("a mapping").keys();
        for word in service_words {
            assert!(SERVICE_WORDS.contains(&word.as_str()), "{name}: {word}");
        }
        let image = service["image"].as_str().expect("an image");
        assert!(image.rsplit_once(':').is_some_and(|(_, tag)| tag != "latest"), "{image}");
        for other in awaited(service) {
            assert!(services.contains_key(other), "{name} waits for {other}");
        }
        for volume in strings(&service["volumes"]) {
            let (from, to) = volume.strip_suffix(":ro").and_then(|it| it.split_once(':')).expect("read only");
            assert!(project(FOLDER).join(from).exists(), "{name}: there is no {from}");
            assert!(to.starts_with('/'));
        }
        for port in strings(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name} is open to all at {port}");
        }
    }
    let build = &services["tollgate"]["build"];
    let context = project(FOLDER).join(build["context"].as_str().expect("a directory"));
    assert!(context.join(build["dockerfile"].as_str().expect("a path")).exists());

    let nodes: BTreeSet<String> = services
        .keys()
        .filter(|name| name.strip_prefix("redis-").is_some_and(|number| number.parse::<u8>().is_ok()))
        .map(|name| format!("{name}:6379"))
        .collect();
    let made = services["redis-cluster"]["environment"]["NODES"].as_str().expect("nodes");
    assert_eq!(nodes.len(), 6);
    let first = &services["redis-1"];
    assert_eq!(first["command"], serde_json::json!(["sh", "/etc/redis/start.sh"]));
    assert_eq!(first["user"], "999:999", "it is root");
    assert_eq!(first["environment"], services["redis-cluster"]["environment"]);
    assert_eq!(made.split(' ').map(str::to_owned).collect::<BTreeSet<_>>(), nodes);
    let store = services["tollgate"]["environment"]["TOLLGATE_STORE"].as_str().expect("a URL");
    let hosts = store.strip_prefix("redis+cluster://").expect("a cluster").split(',');
    assert!(hosts.into_iter().all(|host| nodes.contains(host)), "{store}");
}

#[test]
fn tollgate_accepts_its_settings_and_listens_where_others_connect() {
    let compose = yaml("deploy/compose/compose.yaml");
    let tollgate = &compose["services"]["tollgate"];
    let variables = tollgate["environment"].as_object().expect("a mapping").iter();
    let variables = variables.map(|(name, value)| (name.into(), value.as_str().expect("a text").into()));
    let settings = match settings::parse(["tollgate".into()], variables) {
        Ok(settings::Command::Serve(settings)) => settings,
        other => panic!("{other:?}"),
    };
    let mounts = strings(&tollgate["volumes"]);
    assert_eq!(mounts, [format!("./rules:{}:ro", settings.rules.directory.display())]);
    let grace =
        tollgate["stop_grace_period"].as_str().and_then(|text| text.strip_suffix('s')).expect("seconds");
    let grace: u64 = grace.parse().expect("a number");
    assert!(grace > (settings.process.drain_delay + settings.process.drain_timeout).as_secs() + 2);

    let tollgate::serve::grpc::GrpcListen::Tcp(grpc) = settings.grpc.listen else { panic!("a port") };
    let envoy = fs::read_to_string(project("deploy/compose/envoy.yaml")).expect("readable");
    assert!(envoy.contains(&format!("{{address: tollgate, port_value: {}}}", grpc.port())));
    let prometheus = yaml("deploy/compose/prometheus.yaml");
    let found = prometheus.pointer("/scrape_configs/0/dns_sd_configs/0").expect("a job");
    assert_eq!(
        (found["names"][0].as_str(), found["port"].as_u64()),
        (Some("tollgate"), Some(settings.http.address.port().into()))
    );
}

/// A copy of edge.yaml, which another test runs, with other addresses.
#[test]
fn envoy_is_the_one_at_the_edge() {
    let read = |path: &str| fs::read_to_string(project(path)).expect("readable");
    let body =
        |text: &str| text.split_once("\nadmin:\n").expect("the administration comes first").1.to_owned();
    let (edge, compose) = (body(&read("deploy/envoy/edge.yaml")), body(&read("deploy/compose/envoy.yaml")));
    let moves = [
        ("{address: tollgate, port_value: 8081}", "{address: 127.0.0.1, port_value: 8081}"),
        ("{address: 0.0.0.0, port_value: 10000}", "{address: 127.0.0.1, port_value: 10000}"),
        ("{address: 0.0.0.0, port_value: 9901}", "{address: 127.0.0.1, port_value: 9901}"),
        ("    type: STRICT_DNS\n", "    type: STATIC\n"),
    ];
    let moved = moves.iter().fold(compose, |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    });
    assert_eq!(moved, edge);
    let (is_valid, report) = envoy::validate(&project("deploy/compose/envoy.yaml"));
    assert!(is_valid, "{report}");
}

#[test]
fn prometheus_and_grafana_find_their_mounted_files() {
    let compose = yaml("deploy/compose/compose.yaml");
    let mounted = |service: &str| {
        let volumes = strings(&compose["services"][service]["volumes"]);
        let mounts = volumes.iter().map(|it| it.trim_end_matches(":ro").split_once(':').expect("two paths"));
        mounts.map(|(from, to)| (to.to_owned(), project(FOLDER).join(from))).collect::<Vec<_>>()
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (to, from) in mounted("prometheus") {
        let name = to.strip_prefix("/etc/prometheus/").expect("where it looks");
        fs::copy(from, directory.path().join(name)).expect("copied");
    }
    let file = directory.path().join("prometheus.yml");
    output_of(Command::new("promtool").args(["check", "config"]).arg(file));

    let dashboards = yaml("deploy/compose/dashboards.yaml");
    let path = dashboards.pointer("/providers/0/options/path").and_then(Value::as_str).expect("a path");
    assert!(mounted("grafana").iter().any(|(to, _)| to.starts_with(path) && to.ends_with(".json")));
    let source = yaml("deploy/compose/grafana.yaml");
    let url = source.pointer("/datasources/0/url").and_then(Value::as_str).expect("a URL");
    assert_eq!(url, "http://prometheus:9090");
}

/// `demo.sh` with servers of the test in place of the containers. The script itself fails if something does not turn out as it
/// narrates.
#[test]
fn the_demo_shows_what_it_narrates() {
    let text = fs::read_to_string(project("deploy/compose/rules/demo.yaml")).expect("readable");
    // Windows that do not end on the way.
    let text = text.replace("unit: hour", "window: 300d");
    let config = rules(&text);
    let file = config.path().join("rules.yaml");
    let redis = Redis::start();
    // Short, since requests wait for it while Redis is stopped; longer than a busy machine takes for a decision.
    let flags = ["--store", &redis.url(), "--store-timeout", "500ms", "--on-store-error", "local"];
    let tollgate = Tollgate::start(config.path(), &flags);
    let envoy = Bootstrap::read("edge", tollgate.grpc_port, None).run(&[tollgate.grpc_port]);
    let server: String = cmd("INFO").arg("server").query(&mut redis.connect()).expect("a reply");
    let process = server.lines().find_map(|line| line.strip_prefix("process_id:")).expect("a number");
    let mut demo = Command::new(project("deploy/compose/demo.sh"));
    demo.env("ENVOY", format!("http://127.0.0.1:{}", envoy.port))
        .env("RULES", &file)
        .env("PACE", "0")
        .env("TOLLGATE", command().get_program())
        .env("LOAD", tool("tollgate-load").get_program())
        .env("TARGET", format!("http://127.0.0.1:{}", tollgate.grpc_port))
        .env("ADMIN", tollgate.admin_url(""))
        .env("STOP_REDIS", format!("kill -STOP {process}"))
        .env("START_REDIS", format!("kill -CONT {process}"))
        .env("SECONDS_OF_LOAD", "1")
        .env("HOT", "300");
    let shown = output_of(&mut demo);
    for expected in [
        "200 200 200 200 200 200 200 200 200 200 429 429",
        "retry-after: ",
        "-hot",
        "Redis stops.",
        "200 200 200 200 200 429",
    ] {
        assert!(shown.contains(expected), "no {expected} in {shown}");
    }
    assert_eq!(fs::read_to_string(file).expect("readable"), text, "the rules are not as before");
}
