//! Problems of a configuration with their positions.

use std::{fmt, rc::Rc};

use serde::Serialize;
use tollgate_runtime::redact::beginning;

use super::yaml::{Layer, Position};

/// Severity of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Likely a mistake; the configuration can be loaded.
    Warning,
    /// The configuration cannot be loaded.
    Error,
}

/// A problem at a position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The file, relative to the configuration's directory.
    pub file: Box<str>,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
    /// The column, from 1; 0 for the whole file.
    #[serde(skip)]
    pub column: usize,
    /// The path in the file's tree, such as `descriptors[2].rate_limit.unit`; empty at the root.
    pub path: String,
    /// The problem, and the expected value.
    pub message: String,
}

impl fmt::Display for Problem {
    /// Writes `file:line: path: message`, with `warning:` before the path of a warning.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        f.write_str(": ")?;
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Problems of a configuration, by file and line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The problems, by file and line.
    pub problems: Vec<Problem>,
    more: usize,
    /// Whether there were too many errors, so that the rest was not read.
    is_aborted: bool,
}

impl Report {
    /// Whether there are no problems.
    pub const fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    /// Writes one problem per line, without a final line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.more {
            _ if self.is_aborted => f.write_str("\nand possibly more; the rest was not checked"),
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Path in a file's tree, as a linked list from its end.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The root of the file.
    Root,
    /// A key of a mapping.
    Key(&'a Path<'a>, &'a str),
    /// An element of a list.
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub const fn key(&'a self, name: &'a str) -> Self {
        Self::Key(self, name)
    }

    pub const fn item(&'a self, at: usize) -> Self {
        Self::Item(self, at)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, name) => f.write_str(name),
            Self::Key(before, name) => write!(f, "{before}.{name}"),
            Self::Item(before, at) => write!(f, "{before}[{at}]"),
        }
    }
}

/// Collects problems while the files are read and compiled.
#[derive(Debug, Default)]
pub struct Problems {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Number of problems found after the lists were full.
    more: usize,
    /// Whether there are too many errors, so that the rest is not read.
    is_aborted: bool,
    strict: bool,
    /// Names of the files that are laid over others, by their layers.
    layers: Vec<Rc<str>>,
}

impl Problems {
    /// Maximum number of errors, and of warnings: a broken file of a million descriptors must not result in a gigabyte of
    /// text.
    const MAX_PROBLEMS: usize = 1_000;
    /// Maximum length of a path or message in bytes; longer ones are truncated.
    const MAX_TEXT_BYTES: usize = 1_000;

    /// Returns an empty collection; if `strict`, warnings are collected as errors.
    pub fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Adds a file that is laid over others; `None` if there are too many.
    pub(super) fn add_layer(&mut self, name: Rc<str>) -> Option<Layer> {
        let layer = Layer::over(self.layers.len())?;
        self.layers.push(name);
        Some(layer)
    }

    /// Name of the file of a position in `file` or in one that is laid over it.
    pub(super) fn file_at<'n>(&'n self, file: &'n str, at: Position) -> &'n str {
        at.file.index().and_then(|index| self.layers.get(index)).map_or(file, |name| name)
    }

    /// Adds a warning that stays one with strict reading: its cause may be a change that others make.
    pub(super) fn lenient_warning(
        &mut self,
        file: &str,
        at: Position,
        path: impl fmt::Display,
        message: impl fmt::Display,
    ) {
        self.add(Severity::Warning, file, at, &path, &message);
    }

    pub fn error(&mut self, file: &str, at: Position, path: impl fmt::Display, message: impl fmt::Display) {
        self.add(Severity::Error, file, at, &path, &message);
    }

    pub fn warning(&mut self, file: &str, at: Position, path: impl fmt::Display, message: impl fmt::Display) {
        let severity = if self.strict { Severity::Error } else { Severity::Warning };
        self.add(severity, file, at, &path, &message);
    }

    fn add(
        &mut self,
        severity: Severity,
        file: &str,
        at: Position,
        path: &dyn fmt::Display,
        message: &dyn fmt::Display,
    ) {
        let file = self.file_at(file, at).into();
        let found = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if found.len() >= Self::MAX_PROBLEMS {
            self.more = self.more.saturating_add(1);
            if severity == Severity::Error {
                self.is_aborted = true;
            }
            return;
        }
        found.push(Problem {
            severity,
            file,
            line: at.line(),
            column: at.column(),
            path: truncated(path),
            message: truncated(message),
        });
    }

    /// Aborts after an error: the rest is not checked.
    pub const fn abort(&mut self) {
        self.is_aborted = true;
    }

    /// Whether reading and compiling may stop.
    pub const fn is_full(&self) -> bool {
        self.is_aborted
    }

    /// Returns the report of all problems; `Ok` if there are only warnings.
    pub fn finish(mut self) -> Result<Report, Report> {
        // The sort is stable: problems at one position keep their order.
        let has_errors = !self.errors.is_empty();
        let mut problems = self.errors;
        problems.append(&mut self.warnings);
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let report = Report { problems, more: self.more, is_aborted: self.is_aborted };
        if has_errors { Err(report) } else { Ok(report) }
    }
}

/// Formats a text up to the maximum length, without ever formatting the rest.
fn truncated(text: &dyn fmt::Display) -> String {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let room = Problems::MAX_TEXT_BYTES.saturating_sub(self.0.len());
            let kept = beginning(part, room);
            self.0.push_str(kept);
            if kept.len() < part.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }
    let mut bounded = Bounded(String::new());
    if fmt::write(&mut bounded, format_args!("{text}")).is_err() {
        bounded.0.push('…');
    }
    bounded.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_file_line_path_and_message() {
        let mut problems = Problems::new(false);
        let descriptors = Path::Root.key("descriptors");
        let second = descriptors.item(1);
        problems.error("b.yaml", Position::new(7, 3), second.key("key"), "is empty");
        problems.warning("b.yaml", Position::new(2, 1), Path::Root, "is odd");
        problems.error("a.txt", Position::WHOLE, Path::Root, "is unreadable");
        let report = problems.finish().unwrap_err();
        assert_eq!(
            report.to_string(),
            "a.txt: is unreadable\nb.yaml:2: warning: is odd\nb.yaml:7: descriptors[1].key: is empty"
        );
    }

    #[test]
    fn strictness_turns_warnings_into_errors() {
        let report = |strict| {
            let mut problems = Problems::new(strict);
            problems.warning("a.yaml", Position::WHOLE, Path::Root, "is odd");
            problems.finish()
        };
        assert_eq!(report(false).unwrap().problems.len(), 1);
        assert_eq!(report(true).unwrap_err().to_string(), "a.yaml: is odd");
    }

    #[test]
    fn a_report_that_is_full_counts_the_rest() {
        let mut problems = Problems::new(false);
        for line in 1..=Problems::MAX_PROBLEMS + 5 {
            problems.error("a.yaml", Position::new(line, 1), Path::Root, "is wrong");
        }
        assert!(problems.is_full());
        let text = problems.finish().unwrap_err().to_string();
        assert!(text.ends_with("1000: is wrong\nand possibly more; the rest was not checked"));
    }

    #[test]
    fn warnings_do_not_displace_errors() {
        let mut problems = Problems::new(false);
        for line in 1..=Problems::MAX_PROBLEMS + 5 {
            problems.warning("a.yaml", Position::new(line, 1), Path::Root, "is odd");
        }
        assert!(!problems.is_full());
        problems.error("b.yaml", Position::WHOLE, Path::Root, "is wrong");
        let text = problems.finish().unwrap_err().to_string();
        assert!(text.ends_with("\nb.yaml: is wrong\nand 5 more"), "{text}");
    }

    #[test]
    fn long_texts_are_truncated() {
        let mut problems = Problems::new(false);
        let (key, message) = ("é".repeat(1 << 20), "x".repeat(1 << 20));
        problems.error("a.yaml", Position::WHOLE, Path::Root.key(&key), &message);
        let report = problems.finish().unwrap_err();
        assert_eq!(report.problems[0].path, format!("{}…", "é".repeat(500)));
        assert_eq!(report.problems[0].message, format!("{}…", "x".repeat(1_000)));
    }
}
