//! A real Prometheus, and its tool.

use std::fmt::Write as _;

use super::{Process, prelude::*};

/// A server that scrapes instances every second; it ends with the test.
#[derive(Debug)]
pub(crate) struct Prometheus {
    _process: Process,
    _directory: TempDir,
    port: u16,
}

impl Prometheus {
    /// Scrapes these instances, with rules from a file.
    pub(crate) fn start(instances: &[&Tollgate], rules: &Path) -> Self {
        let (directory, port) = (tempfile::tempdir().expect("a temporary directory"), free_port());
        let targets: Vec<String> =
            instances.iter().map(|instance| format!("127.0.0.1:{}", instance.http_port)).collect();
        let config = serde_json::json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "tollgate", "static_configs": [{"targets": targets}]}],
        });
        // JSON is YAML.
        fs::write(directory.path().join("prometheus.yaml"), config.to_string()).expect("writable");
        let child = Command::new("prometheus")
            .args(["--config.file", "prometheus.yaml", "--storage.tsdb.path", "data", "--log.level", "error"])
            .args(["--web.listen-address", &format!("127.0.0.1:{port}")])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus is installed; `tests/run.sh` installs it");
        let process = Process::of(child, Some(directory.path()));
        let prometheus = Self { _process: process, _directory: directory, port };
        wait("Prometheus does not become ready", || {
            http::try_get(&prometheus.url("/-/ready")).is_some_and(|answer| answer.status == 200)
        });
        prometheus
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The number of series that an expression has now.
    pub(crate) fn series(&self, expression: &str) -> usize {
        let mut query = String::new();
        for byte in expression.bytes() {
            write!(query, "%{byte:02x}").expect("a string");
        }
        let answer = http::get(&self.url(&format!("/api/v1/query?query={query}")));
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().expect("series").len()
    }

    /// Every rule with its health: `ok` once it was evaluated.
    pub(crate) fn rules(&self) -> Vec<(String, String)> {
        let answer: Value = http::get(&self.url("/api/v1/rules")).json();
        let groups = answer["data"]["groups"].as_array().expect("groups").iter();
        let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
        rules
            .map(|rule| {
                let error = rule["lastError"].as_str().unwrap_or_default();
                let health = rule["health"].as_str().expect("a text");
                (rule["name"].as_str().expect("a name").to_owned(), format!("{health}{error}"))
            })
            .collect()
    }
}

/// The output of `promtool`, and whether it succeeded.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let Ended { code, stdout, stderr } = ended_with(Command::new("promtool").args(arguments), input);
    (code == Some(0), stdout + &stderr)
}
