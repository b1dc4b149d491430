//! Secrets stay where they were put: no log, page, answer, help or error shows them.

use crate::support::{Process, prelude::*};

const SECRET: &str = "open-sesame-20-bytes";

/// A program that runs, and everything that it has shown so far.
struct Watched {
    process: Process,
    /// Outside the rules directory, which is watched: each log line would be a change to report.
    directory: TempDir,
    http_port: u16,
    admin_port: u16,
}

fn serve(directory: &Path, variables: &[(&str, String)]) -> Watched {
    let (http_port, admin_port) = (free_port(), free_port());
    let own = tempfile::tempdir().expect("a temporary directory");
    let file = fs::File::create(own.path().join("output")).expect("created");
    let token = own.path().join("token");
    fs::write(&token, SECRET).expect("written");
    let mut serve = command();
    serve.args(["serve", "--log-level", "trace", "--grpc-address", "127.0.0.1:0", "--config"]).arg(directory);
    serve.args(["--http-address", &format!("127.0.0.1:{http_port}")]);
    serve.args(["--admin-address", &format!("127.0.0.1:{admin_port}")]);
    serve.args(["--on-store-error", "error", "--admin-token-file"]).arg(token);
    serve.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
    serve.stdin(Stdio::null()).stdout(file.try_clone().expect("cloned")).stderr(file);
    let process = Process::of(serve.spawn().expect("it starts"), None);
    Watched { process, directory: own, http_port, admin_port }
}

impl Watched {
    /// Every page there is, and what the program wrote until its end.
    fn everything(mut self) -> String {
        let url = |port: u16, path: &str| format!("http://127.0.0.1:{port}{path}");
        wait("it does not listen", || http::try_get(&url(self.http_port, "/live")).is_some());
        let mut all = String::new();
        let json = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}]}]}"#;
        for _ in 0..3 {
            let answer = http::post(&url(self.http_port, "/json"), json);
            assert_eq!(answer.status, 503);
            all += &answer.body;
        }
        for path in ["/metrics", "/healthcheck", "/nothing"] {
            all += &http::get(&url(self.http_port, path)).body;
        }
        for path in ["/metrics", "/rlconfig", "/stats"] {
            let refused = http::get(&url(self.admin_port, path));
            assert_eq!(refused.status, 401);
            let shown = http::get_with(&url(self.admin_port, path), &format!("Bearer {SECRET}"));
            assert_eq!(shown.status, 200);
            all += &refused.body;
            all += &shown.body;
        }
        self.process.signal("TERM");
        assert_eq!(self.process.0.wait().expect("it was started").code(), Some(0));
        let output = fs::read_to_string(self.directory.path().join("output")).expect("a text");
        assert!(output.contains("tollgate started"), "{output}");
        all + &output
    }
}

fn assert_kept(what: &str, text: &str) {
    assert!(!text.is_empty(), "{what} shows nothing");
    for part in [SECRET, "sesame"] {
        if let Some(at) = text.find(part) {
            let from = text[..at].rfind('\n').map_or(0, |at| at + 1);
            panic!("{what} shows the secret: {}", text[from..].lines().next().unwrap_or_default());
        }
    }
}

#[test]
fn no_store_and_no_port_reveals_its_secret() {
    let guarded = Redis::start_with(&["--requirepass", "another"]);
    let (dead, guarded) = (free_port(), guarded.port());
    let single = |port| format!("redis://me:{SECRET}@127.0.0.1:{port}/0");
    let references = |kind: &str, url: String| {
        vec![
            ("REDIS_URL", url),
            ("REDIS_TYPE", kind.to_owned()),
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_AUTH", SECRET.to_owned()),
        ]
    };
    let mut sentinel = references("SENTINEL", format!("main,127.0.0.1:{dead}"));
    sentinel.push(("REDIS_SENTINEL_AUTH", format!("watch:{SECRET}")));
    for (what, variables) in [
        ("a dead Redis", vec![("TOLLGATE_STORE", single(dead))]),
        ("a Redis with another password", vec![("TOLLGATE_STORE", single(guarded))]),
        ("the reference's Redis", references("SINGLE", format!("127.0.0.1:{dead}"))),
        ("the reference's cluster", references("CLUSTER", format!("127.0.0.1:{dead}"))),
        ("the reference's sentinels", sentinel),
        ("a socket", vec![("TOLLGATE_STORE", format!("redis+unix:///no/socket?pass={SECRET}"))]),
    ] {
        let config = rules(UNREACHED);
        assert_kept(what, &serve(config.path(), &variables).everything());
    }
}

#[test]
fn neither_help_nor_an_error_shows_a_set_value() {
    let shown = |prepare: &dyn Fn(&mut Command) -> &mut Command| {
        let mut command = command();
        prepare(&mut command);
        let Ended { stdout, stderr, .. } = ended(&mut command);
        stdout + &stderr
    };
    let good = format!("redis://:{SECRET}@127.0.0.1:1");
    for verb in [&["--help"][..], &["-h"], &["serve", "--help"], &["check", "--help"], &["--version"]] {
        let help = shown(&|command| {
            command.args(verb).env("TOLLGATE_STORE", &good).env("REDIS_AUTH", SECRET).env("REDIS_URL", &good)
        });
        assert_kept("the help", &help);
    }
    for bad in [
        "redis://:SECRET@",
        "redis://u:SECRET@h:port",
        "redis+cluster://:SECRET@a/1",
        "SECRET",
        "redis+sentinel://:SECRET@h",
    ] {
        let bad = bad.replace("SECRET", SECRET);
        let by_flag = shown(&|command| command.args(["--store", &bad]));
        let by_variable = shown(&|command| command.env("TOLLGATE_STORE", &bad));
        let misspelt = shown(&|command| command.arg(format!("--stroe={bad}")));
        let misplaced = shown(&|command| command.arg(&bad));
        let unknown = shown(&|command| command.env("TOLLGATE_STROE", &bad));
        for text in [by_flag, by_variable, misspelt, misplaced, unknown] {
            assert_kept(&bad, &text);
        }
    }
    for (kind, url) in [("SHARDED", "h:1"), ("SENTINEL", "h:1"), ("SINGLE", "redis://h:port")] {
        let error =
            shown(&|command| command.env("REDIS_URL", url).env("REDIS_TYPE", kind).env("REDIS_AUTH", SECRET));
        assert_kept(kind, &error);
    }
}

#[test]
fn a_secret_given_in_place_of_a_path_is_not_shown() {
    let config = rules(UNREACHED);
    let key = format!("-----BEGIN PRIVATE KEY-----\nMIGH/{SECRET}\n-----END PRIVATE KEY-----\n");
    let good = config.path().join("rules.yaml").display().to_string();
    for secret in [SECRET, &key] {
        for flags in [
            &["--grpc-tls", &format!("{secret},{good}")][..],
            &["--grpc-tls", &format!("{good},{secret}")],
            &["--http-tls", &format!("{secret},{good}")],
            &["--http-tls", secret],
            &[&format!("--admin-tls={secret},{secret}")],
            &["--admin-token-file", secret],
            &["--store", "rediss://127.0.0.1:1", "--redis-ca", secret],
        ] {
            let mut serve = command();
            serve.args(["serve", "--log-level", "trace", "--config"]).arg(config.path());
            for port in ["grpc", "http", "admin"] {
                serve.args([&format!("--{port}-address"), "127.0.0.1:0"]);
            }
            let Ended { code, stdout, stderr } = ended(serve.args(flags));
            assert!(matches!(code, Some(1 | 2)), "{code:?}");
            assert_kept(flags[0], &(stdout + &stderr));
        }
    }
}
