//! The commands of operators, against a server that runs.

mod connection;
mod counters;
mod records;
mod rules;

use crate::support::prelude::*;

const TOKENS: &str = "alice operator 0123456789-alice\nbob viewer 0123456789-bobby\n";

const RULES: &str = "\
domain: shop
descriptors:
- key: user
  rate_limit: {unit: year, requests_per_unit: 2}
";

/// A server whose rules have versions.
struct Served {
    directory: TempDir,
    tollgate: Tollgate,
}

impl Served {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let rules = directory.path().join("rules");
        fs::create_dir(&rules).expect("made");
        fs::write(rules.join("shop.yaml"), RULES).expect("written");
        let tollgate = Tollgate::start(&rules, &[&["--rules", "memory"], arguments].concat());
        Self { directory, tollgate }
    }

    /// Writes rules into a directory of that name.
    fn draft(&self, name: &str, rules: &str) -> String {
        let draft = self.directory.path().join(name);
        fs::create_dir_all(&draft).expect("made");
        fs::write(draft.join("shop.yaml"), rules).expect("written");
        draft.display().to_string()
    }

    fn run(&self, words: &[&str]) -> Ended {
        run(&self.tollgate.admin_url(""), words)
    }

    /// Output of a successful command.
    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.code, Some(0), "{words:?}: {}", output.stderr);
        assert_eq!(output.stderr, "", "{words:?}");
        output.stdout
    }

    /// JSON output of a successful command.
    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[words, &["--json"]].concat())).expect("JSON")
    }

    /// Error output of a refused command.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.code, Some(1), "{words:?}: {}", output.stdout);
        assert_eq!(output.stdout, "", "{words:?}");
        output.stderr
    }

    /// The status of a request with these hits for `user`.
    fn request(&self, user: &str, hits: u64) -> u16 {
        let entries = json!([{ "key": "user", "value": user }]);
        let descriptor = json!({ "entries": entries, "hitsAddend": hits.to_string() });
        let body = json!({ "domain": "shop", "descriptors": [descriptor] });
        self.tollgate.post(&body.to_string()).status
    }

    /// Waits until requests with these hits have the expected status; each attempt uses another user with this
    /// prefix, so that no counter interferes.
    fn becomes(&self, user: &str, hits: u64, status: u16) {
        let mut users = (0..).map(|number| format!("{user}{number}"));
        wait(&format!("{hits} hits of {user} do not become {status}"), || {
            self.request(&users.next().expect("endless"), hits) == status
        });
    }

    /// Waits until that is what a look of one user comes to.
    fn status_becomes(&self, user: &str, status: u16) {
        wait(&format!("the status of {user} does not become {status}"), || self.request(user, 0) == status);
    }
}

fn run(url: &str, words: &[&str]) -> Ended {
    ended(command().args(words).args(["--admin-url", url]))
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let file = directory.join(name);
    fs::write(&file, text).expect("written");
    file.display().to_string()
}
