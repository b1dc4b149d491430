//! Replays `fuzz/corpus/`, which includes inputs that once failed, as ordinary tests.

use std::{fs, panic, path::Path};

#[test]
fn every_input_of_a_corpus_passes() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 6] = [
        ("configuration", super::configuration),
        ("request", super::request),
        ("keys", super::keys),
        ("replies", super::replies),
        ("framing", super::framing),
        ("received_frames", super::received_frames),
    ];
    for (name, target) in targets {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let files: Vec<_> = fs::read_dir(directory).expect("a corpus").collect();
        assert!(files.len() >= 5, "{} files for {name}", files.len());
        for file in files {
            let file = file.expect("readable").path();
            let bytes = fs::read(&file).expect("readable");
            let passed = panic::catch_unwind(|| target(&bytes));
            assert!(passed.is_ok(), "{}", file.display());
        }
    }
}
