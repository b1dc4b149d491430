//! The image: what it says of the program is so, and the program needs no more than it has. `deploy/docker/build.sh`
//! builds it, which takes too long to be a test.

use super::*;

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words behind an instruction that stands there once.
fn instruction<'a>(dockerfile: &'a str, name: &str) -> &'a str {
    let mut found = dockerfile.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let words = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "two of {name}");
    words
}

#[test]
fn the_image_matches_the_manifests_and_the_program() {
    let dockerfile = read("deploy/docker/Dockerfile");
    let deployment = read("deploy/kubernetes/base/deployment.yaml");
    let user = instruction(&dockerfile, "USER").split(':').next().unwrap_or_default();
    assert!(deployment.contains(&format!("runAsUser: {user}\n")));
    #[allow(irrefutable_let_patterns, reason = "without the feature `cli` there is no other command")]
    let settings::Command::Serve(defaults) = settings::parse(["tollgate".into()], []).expect("defaults")
    else {
        panic!("it serves");
    };
    let tollgate::serve::grpc::GrpcListen::Tcp(grpc) = defaults.grpc.listen else { panic!("a port") };
    let ports = format!("{} {}", grpc.port(), defaults.http.address.port());
    assert_eq!(instruction(&dockerfile, "EXPOSE"), ports);

    let layout = read("deploy/docker/layout.sh");
    let entry: Vec<String> =
        serde_json::from_str(instruction(&dockerfile, "ENTRYPOINT")).expect("the form without a shell");
    assert!(layout.contains(&format!("\"$2{}\"", entry[0])), "nothing is put at {}", entry[0]);
    // What a deployment of the reference sets has to count, which any variable of ours would prevent.
    assert!(!dockerfile.contains("\nENV "), "a variable of the image wins over the reference's");
    // The rules are where the program looks for them by itself.
    assert!(defaults.rules.directory.is_relative());
    let rules = Path::new(workdir(&dockerfile)).join(&defaults.rules.directory);
    assert!(layout.contains(&format!("\"$2{}\"", rules.display())), "nothing is put at {}", rules.display());
    let copied: BTreeSet<&str> =
        dockerfile.lines().filter_map(|line| line.strip_prefix("COPY --from=build /root-of-image")).collect();
    assert_eq!(copied, BTreeSet::from(["/bin/ /bin/", "/config/ /config/", "/usr/bin/ /usr/bin/"]));
    assert!(dockerfile.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))));
    assert!(!dockerfile.contains("\nHEALTHCHECK"), "there is no client for it");
    // The same steps, with and without an engine.
    for builder in [&dockerfile, &read("deploy/docker/build.sh")] {
        assert!(builder.contains("sh deploy/docker/compile.sh "));
    }
    let compile = read("deploy/docker/compile.sh");
    assert!(compile.contains("/layout.sh\" ") && compile.contains("-Ctarget-feature=+crt-static"));
    assert!(read("deploy/docker/build.sh").contains(&format!("{} /bin/ratelimit; do", entry[0])));
    for image in dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let image = image.split(' ').next().unwrap_or_default();
        let (name, digest) = image.split_once("@sha256:").unwrap_or_else(|| panic!("{image} has no digest"));
        assert!(name.rsplit_once(':').is_some_and(|(_, tag)| tag != "latest"), "{image}");
        assert_eq!(digest.len(), 64, "{image}");
    }
}

/// Where the last stage's program begins.
fn workdir(dockerfile: &str) -> &str {
    dockerfile.lines().filter_map(|line| line.strip_prefix("WORKDIR ")).next_back().expect("a directory")
}

/// The compiler's own list of what the program is made of.
#[test]
fn the_builder_gets_every_source_of_the_program() {
    let ignored = read(".dockerignore");
    let sent: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for each in &sent {
        assert!(project(each).exists(), "there is no {each}");
    }
    let needed = compiled();
    assert!(needed.len() > 100, "{needed:?}");
    let beside = [
        "Cargo.toml",
        "Cargo.lock",
        "build.rs",
        "proto",
        "src/main.rs",
        "tests/fixtures/Cargo.toml",
        "deploy/docker/compile.sh",
        "deploy/docker/layout.sh",
        "deploy/docker/train.sh",
        "deploy/docker/training/rules.yaml",
        "config/default",
    ];
    for path in needed.iter().map(String::as_str).chain(beside) {
        assert!(sent.iter().any(|it| Path::new(path).starts_with(it)), "{path} is not sent");
    }
}

/// The files that the compiler read for our crates, by its own record; some perhaps for an older build.
fn compiled() -> BTreeSet<String> {
    let directory = Path::new(command().get_program()).with_file_name("deps");
    let made = files(&directory).into_iter().filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libtollgate") && name.ends_with(".rlib")
    });
    let lists = made.map(|library| {
        let name = library.with_extension("d").to_string_lossy().replace("/libtollgate", "/tollgate");
        fs::read_to_string(&name).unwrap_or_else(|error| panic!("{name}: {error}"))
    });
    let read = |list: String| {
        let rules = list.lines().filter_map(|line| line.split_once(": ")).map(|(_, read)| read.to_owned());
        rules.collect::<Vec<_>>().join(" ")
    };
    let lists: Vec<String> = lists.map(read).collect();
    // What the build itself has made is in the directory for that.
    let sources = lists.iter().flat_map(|list| list.split_whitespace());
    let sources = sources.filter(|path| !path.contains("/build/tollgate-"));
    // What a build script names is absolute.
    let root = project("").to_string_lossy().into_owned();
    sources.map(|path| without_detours(path.strip_prefix(&root).unwrap_or(path))).collect()
}

/// A path without `..` in it: what is included is named from where it is included.
fn without_detours(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Copies a file to the same path below `root`.
fn copy_into(root: &Path, path: &str) {
    let to = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(to.parent().expect("a directory")).expect("writable");
    fs::copy(path, to).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// All that is below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("read").path());
    let below = |path: PathBuf| {
        let mut all = if path.is_dir() && !path.is_symlink() { files(&path) } else { Vec::new() };
        all.push(path);
        all
    };
    entries.flat_map(below).collect()
}

/// The image's files, laid out by its own script, with the program of this test in place of the one that is linked
/// statically, and the libraries that it needs.
fn image() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = command().get_program().to_owned();
    // As a builder may have it whose umask is strict.
    let lay_out = ["-c", "umask 077; exec sh deploy/docker/layout.sh \"$@\"", "sh"];
    let mut shell = Command::new("sh");
    output_of(shell.args(lay_out).arg(&program).arg(directory.path()).current_dir(project(".")));
    for entry in files(directory.path()) {
        let mode = fs::symlink_metadata(&entry).expect("read").permissions().mode();
        assert_eq!(mode & 0o004, 0o004, "{} is not for everyone", entry.display());
    }
    let libraries = ended(Command::new("ldd").arg(&program)).stdout;
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    paths.for_each(|path| copy_into(directory.path(), path));
    directory
}

/// The output of `deploy/docker/try.sh` for that command, run in an image.
fn tried(image: &TempDir, command: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let port = free_port().to_string();
    // A port of its own in place of 8080, as if it were the only one on its address.
    let variables = variables.iter().map(|(name, value)| (*name, value.replace("8080", &port)));
    let command = command.iter().map(|word| word.replace("8080", &port));
    let mut shell = Command::new("sh");
    shell
        .arg(project("deploy/docker/try.sh"))
        .arg(image.path())
        .arg(&port)
        .args(command)
        .env_clear()
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .envs(variables);
    output_of(&mut shell).lines().map(str::to_owned).collect()
}

const REQUEST: &str = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/"}]}]}"#;

#[test]
fn the_program_runs_unprivileged_on_a_read_only_file_system() {
    let image = image();
    let arguments = ["--http-address=127.0.0.1:8080", "--grpc-address=127.0.0.1:0", "--admin-address=off"];
    let command = [&["/usr/bin/tollgate"], arguments.as_slice()].concat();
    for (user, group) in [("65532", "65532"), ("1000740000", "0")] {
        let said = tried(&image, &command, &[("USER_ID", user), ("GROUP_ID", group), ("REQUEST", REQUEST)]);
        assert_eq!(said[..2], [format!("user {user}"), "CapEff:\t0000000000000000".to_owned()]);
        let mount = said[2].strip_prefix("root ").expect("how its root is mounted");
        assert!(mount.split(',').any(|option| option == "ro"), "{mount}");
        // The rules that it has by itself.
        assert!(said[3].contains("currentLimit"), "{}", said[3]);
    }
}

/// A deployment of envoyproxy/ratelimit, or of Envoy Gateway, with another image.
#[test]
fn the_program_runs_under_the_references_name_with_its_environment_and_files() {
    let image = image();
    let rules = image.path().join("data/ratelimit/config");
    fs::create_dir_all(&rules).expect("writable");
    let yaml = "domain: moved\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 7}\n";
    fs::write(rules.join("config.yaml"), yaml).expect("writable");
    let redis = Redis::start();
    let url = format!("127.0.0.1:{}", redis.port());
    let grpc = free_port().to_string();
    let environment = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("LOG_LEVEL", "debug"),
        ("USE_STATSD", "false"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &url),
        ("HOST", "127.0.0.1"),
        ("PORT", "8080"),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", &grpc),
        // Ours: another instance may have the port at the moment.
        ("TOLLGATE_ADMIN_ADDRESS", "off"),
        ("TOLLGATE_STORE_TIMEOUT", "5s"),
        ("USER_ID", "65534"),
        ("GROUP_ID", "65534"),
        ("REQUEST", r#"{"domain": "moved", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#),
    ];
    let said = tried(&image, &["/bin/ratelimit"], &environment);
    assert_eq!(said[0], "user 65534");
    assert!(
        said[3].contains("\"requestsPerUnit\":7"),
        "its rules are not those of the deployment: {}",
        said[3]
    );
}
