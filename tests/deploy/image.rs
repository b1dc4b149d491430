//! The image: what it says of the program is so, and the program needs no more than it has. `deploy/docker/build.sh`
//! builds it, which takes too long to be a test.

use std::{fs, path::Path, process::Command};

use tollgate::settings;

use crate::support::{
    free_port,
    tollgate::{command, project},
};

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
fn the_image_is_what_manifests_and_program_expect() {
    let dockerfile = read("deploy/docker/Dockerfile");
    let deployment = read("deploy/kubernetes/base/deployment.yaml");
    let user = instruction(&dockerfile, "USER").split(':').next().unwrap_or_default();
    assert!(deployment.contains(&format!("runAsUser: {user}\n")));
    let settings::Command::Serve(defaults) = settings::parse(["tollgate".into()], []).expect("defaults")
    else {
        panic!("it serves");
    };
    let settings::GrpcListen::Tcp(grpc) = defaults.grpc.listen else { panic!("a port") };
    let ports = format!("{} {}", grpc.port(), defaults.http_address.port());
    assert_eq!(instruction(&dockerfile, "EXPOSE"), ports);

    let compile = read("deploy/docker/compile.sh");
    let entry: Vec<String> =
        serde_json::from_str(instruction(&dockerfile, "ENTRYPOINT")).expect("the form without a shell");
    assert!(compile.contains(&format!("\"$1{}\"", entry[0])), "nothing is put at {}", entry[0]);
    let rules = instruction(&dockerfile, "ENV").strip_prefix("TOLLGATE_CONFIG=").expect("the rules");
    assert!(compile.contains(&format!("\"$1{rules}\"")), "nothing is put at {rules}");
    assert!(dockerfile.contains(&format!("version=\"{}\"", env!("CARGO_PKG_VERSION"))));
    assert!(!dockerfile.contains("\nHEALTHCHECK"), "there is nothing that could ask");
    // The same steps, with and without an engine.
    for builder in [&dockerfile, &read("deploy/docker/build.sh")] {
        assert!(builder.contains("sh deploy/docker/compile.sh "));
    }
    for sent in read(".dockerignore").lines().filter_map(|line| line.strip_prefix('!')) {
        assert!(project(sent).exists(), "there is no {sent}");
    }
}

/// Copies a file to the same path below `root`.
fn copy_into(root: &Path, path: &str) {
    let to = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(to.parent().expect("a directory")).expect("writable");
    fs::copy(path, to).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// The program of this test in place of the image's, with the libraries that it needs.
#[test]
fn the_program_runs_as_nobody_where_nothing_can_be_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path();
    let program = command().get_program().to_owned();
    let libraries = Command::new("ldd").arg(&program).output().expect("ldd runs").stdout;
    let libraries = String::from_utf8(libraries).expect("a text");
    libraries.split_whitespace().filter(|word| word.starts_with('/')).for_each(|path| copy_into(root, path));
    fs::create_dir_all(root.join("usr/bin")).expect("writable");
    fs::create_dir_all(root.join("etc/tollgate/rules")).expect("writable");
    fs::copy(program, root.join("usr/bin/tollgate")).expect("copied");
    fs::copy(project("config/default/basic.yaml"), root.join("etc/tollgate/rules/basic.yaml"))
        .expect("copied");

    let tried = Command::new("sh")
        .arg(project("deploy/docker/try.sh"))
        .arg(root)
        .arg(free_port().to_string())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&tried.stdout).into_owned();
    assert!(tried.status.success(), "{said}{}", String::from_utf8_lossy(&tried.stderr));
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("user 65532"));
    assert_eq!(lines.next(), Some("CapEff:\t0000000000000000"));
    let mount = lines.next().and_then(|line| line.strip_prefix("root ")).expect("how its root is mounted");
    assert!(mount.split(',').any(|option| option == "ro"), "{mount}");
}
