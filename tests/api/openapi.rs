//! The API's description, held against what is answered.

use super::*;
use crate::docs::block;

const TOKEN: &str = "operators-token-0123456789";

/// The number of operations that the document describes, without its own, which Schemathesis leaves out.
fn operations() -> usize {
    let text = fs::read_to_string(project("crates/admin/src/api/openapi.json")).expect("the document");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let methods = |(_, item): (&String, &Value)| {
        let methods = ["get", "post", "put", "delete", "patch"];
        methods.into_iter().filter(|method| item.get(*method).is_some()).count()
    };
    paths.iter().filter(|(path, _)| *path != "/openapi.json").map(methods).sum()
}

/// Some examples of each operation, wrong ones too, by Schemathesis: no answer is a failure of the server, each is one that
/// is described, and what the description forbids is refused.
#[test]
fn responses_match_the_openapi_document() {
    let config = rules(&limit(5));
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    fs::write(tokens.path(), format!("ann operator {TOKEN}\n")).expect("written");
    let path = tokens.path().display().to_string();
    let tollgate = Tollgate::start(config.path(), &["--rules", "memory", "--admin-token-file", &path]);
    let tester = project("target/tools/bin/schemathesis");
    assert!(tester.exists(), "Schemathesis is missing: tests/run.sh install");
    // It keeps what it found where it runs.
    let scratch = tempfile::tempdir().expect("a directory");
    let mut program = Command::new(tester);
    program
        .arg("--config-file")
        .arg(project("tests/api/schemathesis.toml"))
        .args(["run", &tollgate.admin_url("/api/v1/openapi.json"), "--url", &tollgate.admin_url("/api/v1")])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--checks", "all", "--max-examples", "15", "--seed", "1", "--no-color"])
        .current_dir(scratch.path());
    let report = output_of(&mut program);
    assert!(report.contains(&format!("Tested: {}", operations())), "{report}");
}

#[test]
fn documented_api_examples_work() {
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    fs::write(tokens.path(), block("tokens")).expect("written");
    let path = tokens.path().display().to_string();
    let config = project("config/default");
    let guarded = Tollgate::start(&config, &["--admin-token-file", &path]);
    let lines = block("tokens");
    let roles = lines.lines().skip(1).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let me = Admin::of(&guarded).with_token(words[2]).get("/me");
        assert_eq!((&me["name"], &me["role"]), (&words[0].into(), &words[1].into()));
        me["role"].to_string()
    });
    assert_eq!(roles.collect::<Vec<_>>(), ["\"operator\"", "\"viewer\""]);

    let tollgate = Tollgate::start(&config, &["--rules", "memory"]);
    let script = block("sh api").replace("http://127.0.0.1:6070", &tollgate.admin_url(""));
    let text = output_of(Command::new("bash").args(["-e", "-c", &script]));
    assert!(!text.contains("\"error\""), "{text}");
    let admin = Admin::of(&tollgate);
    assert_eq!(admin.current(), 3, "{text}");
    assert_eq!(admin.get("/records?search=scraping")["records"][0]["reason"], "scraping");
}
