//! `mutate.py` breaks every file of `deploy/`. It takes minutes; that it knows them all, and that what it names is there, is
//! seen in every run.

use super::*;

/// All files below a directory, as paths of the project.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(project(".").join(directory)).expect("a directory");
    let below = |entry: fs::DirEntry| {
        let path = directory.join(entry.file_name());
        if entry.path().is_dir() { files(&path) } else { vec![path] }
    };
    entries.map(|entry| entry.expect("read")).flat_map(below).collect()
}

#[test]
fn every_file_of_deploy_has_a_mutation() {
    let list = python(&["tests/deploy/mutate.py", "--list"], Vec::new());
    let list: Vec<[String; 4]> = serde_json::from_value(list).expect("four texts each");
    let broken: BTreeSet<&str> = list.iter().map(|[file, ..]| file.as_str()).collect();
    let mut expected = files(Path::new("deploy"));
    expected.extend(["config/kustomization.yaml", ".dockerignore"].map(PathBuf::from));
    assert!(expected.len() > 60, "{expected:?}");
    let forgotten: Vec<_> =
        expected.iter().filter(|path| !broken.contains(path.to_str().expect("a text"))).collect();
    assert!(forgotten.is_empty(), "tests/deploy/mutate.py breaks nothing in {forgotten:?}");

    let tests = output_of(Command::new(env::current_exe().expect("this program")).arg("--list"));
    for [file, stands, instead, names] in &list {
        let text = fs::read_to_string(project(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(stands) && stands != instead, "{file} has no {stands}");
        assert!(tests.lines().any(|test| test.contains(names.as_str())), "there is no test {names}");
    }
}
