//! The Debian package: its files are where Debian expects them, and its service is confined and starts the program.

use super::*;

/// A package of the program, and its content.
fn package() -> (TempDir, String) {
    let out = tempfile::tempdir().expect("a directory");
    let words = [env!("CARGO_BIN_EXE_tollgate"), env!("CARGO_PKG_VERSION"), "amd64"];
    let mut build = Command::new(project("deploy/debian/build.sh"));
    output_of(build.args(words).arg(out.path()).env("COMPRESSION", "none"));
    let file = out.path().join(format!("tollgate_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    let root = out.path().join("root");
    output_of(Command::new("dpkg-deb").arg("--raw-extract").args([&file, &root]));
    let listed = output_of(Command::new("dpkg-deb").arg("--contents").arg(&file));
    (out, listed)
}

#[test]
fn the_package_has_the_service_the_rules_and_what_shells_and_man_read() {
    let (out, listed) = package();
    for file in [
        "-rwxr-xr-x root/root ./usr/bin/tollgate",
        "-rw-r--r-- root/root ./lib/systemd/system/tollgate.service",
        "-rw-r--r-- root/root ./etc/tollgate/rules/basic.yaml",
        "-rw-r--r-- root/root ./usr/share/man/man1/tollgate.1.gz",
        "-rw-r--r-- root/root ./usr/share/man/man1/tollgate-rules.1.gz",
        "-rw-r--r-- root/root ./usr/share/bash-completion/completions/tollgate",
        "-rw-r--r-- root/root ./usr/share/zsh/vendor-completions/_tollgate",
        "-rw-r--r-- root/root ./usr/share/fish/vendor_completions.d/tollgate.fish",
        "-rw-r--r-- root/root ./usr/share/tollgate/rules.schema.json",
    ] {
        let (mode, path) = file.rsplit_once(' ').expect("a path");
        let has = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
        assert!(listed.lines().any(has), "{file}:\n{listed}");
    }
    let root = out.path().join("root");
    let kept = fs::read_to_string(root.join("DEBIAN/conffiles")).expect("a list");
    assert_eq!(
        kept,
        "/etc/default/tollgate\n/etc/tollgate/rules/basic.yaml\n/etc/tollgate/rules/concurrency.yaml\n"
    );
    let settings = fs::read_to_string(project("docs/reference/settings.md")).expect("a page");
    let variables = fs::read_to_string(root.join("etc/default/tollgate")).expect("a file");
    let mut variables = variables.lines().filter_map(|line| line.strip_prefix('#')?.split_once('='));
    assert!(variables.any(|(name, _)| settings.contains(&format!("`{name}`"))));
    output_of(command().arg("check").arg(root.join("etc/tollgate/rules")));
}

#[test]
fn the_service_is_valid_and_confined() {
    let (out, _) = package();
    let root = out.path().join("root");
    let unit = root.join("lib/systemd/system/tollgate.service");
    // What reloads it is of another package.
    fs::create_dir(root.join("bin")).expect("made");
    fs::copy("/bin/kill", root.join("bin/kill")).expect("copied");
    // Both need no running systemd.
    let verify = ["verify", "--man=no", "--recursive-errors=no", "--root"];
    output_of(Command::new("systemd-analyze").args(verify).args([&root, &unit]));
    // Exposure in tenths: 0 is the safest, and a service without any restriction has 96.
    let rate = ["security", "--offline=true", "--threshold=15", "--no-pager"];
    output_of(Command::new("systemd-analyze").args(rate).arg(&unit));
}
