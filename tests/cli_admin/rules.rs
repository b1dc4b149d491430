//! Versions of the rules, and switches.

use super::*;

#[test]
fn rules_are_compared_applied_and_rolled_back() {
    let served = Served::new();
    let listed = served.done(&["rules", "list"]);
    assert!(listed.starts_with("VERSION") && listed.contains("1        current  20"), "{listed}");
    let draft = served.draft("draft", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
    let diff = served.done(&["rules", "diff", &draft]);
    for part in
        ["-  rate_limit: {unit: year, requests_per_unit: 2}", "+  rate_limit", "~ rule shop.user: 2 per year"]
    {
        assert!(diff.contains(part), "no {part} in {diff}");
    }
    let applied = served.done(&["rules", "apply", &draft, "--comment", "more for all", "--author", "carol"]);
    assert!(applied.contains("~ shop.yaml\n~ rule shop.user: 2 per year"), "{applied}");
    assert!(applied.ends_with("version 2 is current, made by carol\n"), "{applied}");
    served.becomes("a", 9, 200);
    let listed = served.done(&["rules", "list"]);
    let row = listed.lines().find(|line| line.starts_with("2 ")).expect("its row");
    assert!(
        row.contains(" current  ") && row.contains(" carol ") && row.ends_with(" more for all"),
        "{listed}"
    );
    assert_eq!(served.done(&["rules", "diff", "2"]), diff);
    let again = served.done(&["rules", "apply", &draft, "--comment", "again"]);
    assert!(again.contains("nothing was changed"), "{again}");
    let rolled_back = served.done(&["rules", "rollback", "1", "--comment", "too much"]);
    assert!(
        rolled_back.contains("version 3 is current") && rolled_back.contains("files of version 1"),
        "{rolled_back}"
    );
    served.becomes("b", 3, 429);
    assert_eq!(served.json(&["rules", "list", "--limit", "1"])["current"], 3);
    assert_eq!(served.json(&["rules", "list", "--limit", "1"])["versions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_files_of_a_version_are_shown_or_written() {
    let served = Served::new();
    let shown = served.done(&["rules", "show"]);
    assert!(
        shown.starts_with("# version 1, made ") && shown.ends_with(&format!("# shop.yaml\n{RULES}")),
        "{shown}"
    );
    let out = served.directory.path().join("out");
    served.done(&["rules", "show", "1", "--to", &out.display().to_string()]);
    assert_eq!(fs::read_to_string(out.join("shop.yaml")).expect("is there"), RULES);
    let again = served.refused(&["rules", "show", "--to", &out.display().to_string()]);
    assert!(again.contains("expected an empty directory"), "{again}");
    assert_eq!(served.json(&["rules", "show"])["files"]["shop.yaml"], RULES);
    // What is written knows which version it was made from, also when it was applied.
    let out = out.display().to_string();
    let edit = |from: &str, to: &str| {
        let path = Path::new(&out).join("shop.yaml");
        let text = fs::read_to_string(&path).expect("is there").replace(from, to);
        fs::write(path, text).expect("written");
    };
    let apply = ["rules", "apply", &out, "--comment", "x"];
    edit("requests_per_unit: 2", "requests_per_unit: 4");
    served.done(&apply);
    edit("requests_per_unit: 4", "requests_per_unit: 5");
    served.done(&apply);
    served.done(&["rules", "rollback", "1"]);
    edit("requests_per_unit: 5", "requests_per_unit: 6");
    let stale = served.refused(&apply);
    assert!(stale.contains("refused (stale): version 4 is current, made by"), "{stale}");
    served.done(&[&apply[..], &["--based-on", "4"]].concat());
    assert!(served.refused(&["rules", "show", "7"]).starts_with("refused (not_found)"));
}

#[test]
fn a_stale_or_invalid_change_is_refused_and_changes_nothing() {
    let served = Served::new();
    let draft = served.draft("draft", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"));
    served.done(&["rules", "apply", &draft, "--comment", "nine", "--based-on", "1"]);
    let other = served.draft("other", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 5"));
    for based_on in ["1", "none"] {
        let stale = served.refused(&["rules", "apply", &other, "--comment", "x", "--based-on", based_on]);
        assert!(stale.contains("refused (stale): version 2 is current, made by"), "{stale}");
        assert!(stale.contains("version 2: nine\nnothing was changed"), "{stale}");
    }
    let stale = served.refused(&["rules", "rollback", "1", "--based-on", "1"]);
    assert!(stale.contains("refused (stale)"), "{stale}");
    let wrong = served.draft("wrong", &RULES.replace("year", "years"));
    let report = served.refused(&["rules", "apply", &wrong, "--comment", "x"]);
    let check = ended(command().args(["check", &wrong]));
    assert_eq!(report, check.stderr, "the report of check");
    assert!(report.contains("shop.yaml:4: descriptors[0].rate_limit.unit"), "{report}");
    assert_eq!(served.json(&["rules", "list"])["current"], 2);
}

#[test]
fn likely_mistakes_require_force() {
    let served = Served::new();
    let closed = served.draft("closed", &RULES.replace("requests_per_unit: 2", "requests_per_unit: 0"));
    let apply = ["rules", "apply", &closed, "--comment", "closed"];
    let refused = served.refused(&apply);
    assert!(refused.starts_with("refused (needs_force)") && refused.contains("\n  shop: "), "{refused}");
    assert!(refused.ends_with("use --force to apply it anyway\n"), "{refused}");
    assert_eq!(served.request("a", 1), 200);
    served.done(&[&apply[..], &["--force"]].concat());
    served.becomes("a", 1, 429);
}

#[test]
fn rules_are_switched_off_and_on() {
    let served = Served::new();
    assert_eq!(served.request("a", 3), 429);
    assert_eq!(served.done(&["record", "list"]), "there are no such records\n");
    let rule = ["--domain", "shop", "--rule", "user"];
    let switch = |words: &[&'static str]| [&["record", "switch"], words, &rule[..]].concat();
    let tried = served.done(&switch(&["off", "--reason", "incident", "--dry-run"]));
    assert!(tried.ends_with("\nnothing was changed\n"), "{tried}");
    let set = served.done(&switch(&["off", "--reason", "incident", "--base", "0"]));
    let key = served.json(&["record", "list", "--kind", "switch"])["records"][0]["key"].clone();
    let key = key.as_str().expect("a key");
    assert_eq!(set, format!("shop user: off until it is removed ({key})\n"));
    served.becomes("a", 3, 200);
    assert!(served.done(&["record", "list"]).contains("shop    user     off     never"));
    let stale = served.refused(&switch(&["shadow", "--reason", "watch", "--base", "0"]));
    assert!(stale.starts_with("refused (stale)") && stale.contains(&set), "{stale}");
    served.done(&switch(&["shadow", "--reason", "watch", "--for", "1h"]));
    assert_eq!(served.json(&["record", "show", key])["mode"], "shadow");
    served.becomes("a", 3, 200);
    served.done(&["record", "remove", key, "--dry-run"]);
    served.done(&["record", "remove", key]);
    served.becomes("a", 3, 429);
    let other = ["record", "switch", "off", "--reason", "x", "--domain", "shop", "--rule", "other"];
    assert!(served.refused(&other).starts_with("refused (not_found)"));
}
