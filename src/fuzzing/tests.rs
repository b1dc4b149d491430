//! Replays `fuzz/corpus/`, which includes inputs that once failed, as ordinary tests.

use std::{fs, panic, path::Path};

/// Calls `target` with each file of its corpus.
fn replay(name: &str, target: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = fs::read_dir(&directory).expect("a corpus");
    let mut count = 0;
    for file in files {
        let file = file.expect("readable").path();
        let bytes = fs::read(&file).expect("readable");
        let passed = panic::catch_unwind(|| target(&bytes));
        assert!(passed.is_ok(), "{}", file.display());
        count += 1;
    }
    assert!(count >= 5, "{count} files in {}", directory.display());
}

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
        replay(name, target);
    }
}
