//! Fuzz target: arbitrary files as a configuration.

use super::{LoadError, Options, load_files};

/// Loads the bytes as files separated by NUL, which a file may not contain.
///
/// # Panics
/// If an invariant of loading is broken.
pub fn configuration(bytes: &[u8]) {
    let files = || {
        let contents = bytes.split(|byte| *byte == 0).take(16).enumerate();
        contents.map(|(at, content)| (format!("{at:03}.yaml"), content.to_vec())).collect::<Vec<_>>()
    };
    for strict in [false, true] {
        let loaded = load_files(
            files(),
            Options { merge_domains: true, strict, allow_empty: false, ..Default::default() },
        );
        match loaded {
            Ok(loaded) => {
                for rule in loaded.rules.rules() {
                    assert!(!rule.path().is_empty() && rule.origin.1 > 0, "{rule:?}");
                }
                for domain in loaded.rules.domains() {
                    domain.root.stated(usize::MAX);
                }
                assert!(!strict || loaded.warnings.is_empty());
            }
            Err(LoadError::Invalid { report, .. }) => {
                assert!(!report.is_empty() && report.to_string().len() < 5_000_000);
            }
            Err(error) => assert!(matches!(error, LoadError::Invalid { .. }), "{error}"),
        }
    }
}
