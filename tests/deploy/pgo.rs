//! Profile-guided optimization of the image's program, with stand-ins for the compiler.

use super::*;

/// A directory with `compile.sh`, beside stand-ins for what it calls: each appends a line to `log`.
struct Build(TempDir);

impl Build {
    fn new() -> Self {
        let build = Self(tempfile::tempdir().expect("a temporary directory"));
        for path in ["bin", "docker/training"] {
            fs::create_dir_all(build.path(path)).expect("writable");
        }
        for name in ["compile.sh", "training/rules.yaml"] {
            fs::copy(project(&format!("deploy/docker/{name}")), build.path(&format!("docker/{name}")))
                .expect("a file");
        }
        build.script(
            "docker/train.sh",
            r#"echo "train $1 $2" >>"$LOG" && mkdir -p "${1%/instrumented/*}/machine/profiles/raw""#,
        );
        build.script("docker/layout.sh", r#"echo "layout $1 $2" >>"$LOG""#);
        build.script(
            "bin/rustc",
            r#"[ "$1" = --print ] && echo /none || printf 'host: machine\nLLVM version: 99.1.2\n'"#,
        );
        let cargo = r#"
            echo "build $(printf '%s' "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' ' ')" >>"$LOG"
            while [ "$1" != --target-dir ]; do shift; done
            mkdir -p "$2/machine/dist" && echo program >"$2/machine/dist/tollgate""#;
        build.script("bin/cargo", cargo);
        build
    }

    /// With the tool that merges profiles.
    fn with_llvm_profdata(self) -> Self {
        self.script("bin/llvm-profdata-99", r#"echo "merge $3" >>"$LOG" && echo profile >"${2#--output=}""#);
        self
    }

    fn path(&self, path: &str) -> String {
        self.0.path().join(path).to_str().expect("a text").to_owned()
    }

    fn script(&self, path: &str, body: &str) {
        let path = self.path(path);
        fs::write(&path, format!("#!/bin/sh\nset -e\n{body}\n")).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("writable");
    }

    /// The output of `compile.sh`, and what it called, with `T` for the directory of the build.
    fn run(&self, profile_guided: Option<&str>) -> (Ended, Vec<String>) {
        let log = self.path("log");
        fs::write(&log, "").expect("writable");
        let path = format!("{}:{}", self.path("bin"), env::var("PATH").expect("a text"));
        let mut compile = Command::new("sh");
        compile.arg(self.path("docker/compile.sh")).arg("root").env("PATH", path).env("LOG", &log);
        compile.env("CARGO_TARGET_DIR", self.path("target")).env_remove("PROFILE_GUIDED");
        compile.envs(profile_guided.map(|value| ("PROFILE_GUIDED", value)));
        let output = ended(&mut compile);
        let log = fs::read_to_string(log).expect("a log").replace(&self.path("target"), "T");
        (output, log.lines().map(str::to_owned).collect())
    }
}

const STATIC: &str = "build -Ctarget-feature=+crt-static";

#[test]
fn the_program_is_built_with_a_profile_that_is_recorded_once_for_a_source() {
    let build = Build::new().with_llvm_profdata();
    let (output, calls) = build.run(None);
    assert_eq!(output.code, Some(0), "{output:?}");
    let instrumented = format!("{STATIC} -Cprofile-generate=T/machine/profiles/raw");
    let optimized = calls[4].clone();
    let profile =
        optimized.strip_prefix(&format!("{STATIC} -Cprofile-use=T/machine/profiles/")).expect("a profile");
    assert!(Path::new(&build.path(&format!("target/machine/profiles/{profile}"))).exists());
    let layout = "layout T/optimized/machine/dist/tollgate root";
    let train = "train T/instrumented/machine/dist/tollgate T/release/tollgate-load";
    assert_eq!(calls, [&instrumented, "build ", train, "merge T/machine/profiles/raw", &optimized, layout]);
    // Nothing has changed.
    assert_eq!(build.run(Some("yes")).1, [&instrumented, &optimized, layout]);
    // Another load makes another profile.
    fs::write(build.path("docker/training/rules.yaml"), "domain: other\n").expect("writable");
    let calls = build.run(None).1;
    assert_eq!(calls[2], train);
    assert_ne!(calls[4], optimized);
}

#[test]
fn a_build_without_a_profile_needs_no_further_tools() {
    let build = Build::new();
    let (output, calls) = build.run(Some("no"));
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(calls, [STATIC, "layout T/machine/dist/tollgate root"]);
    for (value, problem) in
        [(None, "llvm-profdata of LLVM 99 is missing"), (Some("true"), "expected yes or no")]
    {
        let (output, calls) = build.run(value);
        assert!(output.code != Some(0) && output.stderr.contains(problem), "{output:?}");
        assert!(calls.is_empty(), "{calls:?}");
    }
}

/// The load with each store, on a program that records nothing.
#[test]
fn the_training_load_succeeds_with_each_store() {
    let ports = [(); 4].map(|()| free_port().to_string());
    let mut shell = Command::new("sh");
    shell
        .arg(project("deploy/docker/train.sh"))
        .arg(command().get_program())
        .arg(tool("tollgate-load").get_program())
        .args(ports)
        .env("TRAIN_SECONDS", "0.1");
    output_of(&mut shell);
}
