//! What is wrong with a configuration, and where.

use std::fmt;

use super::yaml::Position;

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration does something else than it seems to; it can be loaded.
    Warning,
    /// The configuration can't be loaded.
    Error,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, relative to the configuration's directory.
    pub file: Box<str>,
    /// The line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// The column, from 1; 0 when the whole file is meant.
    pub column: usize,
    /// The place in the file's tree, such as `descriptors[2].rate_limit.unit`; empty at its root.
    pub path: String,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    /// `file:line: path: message`, with the word `warning` before the path of what can be loaded.
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

/// Every problem of a configuration, by file and line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    problems: Vec<Problem>,
    more: usize,
}

impl Report {
    /// The problems, by file and line.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many problems were found after the report was full.
    pub const fn more(&self) -> usize {
        self.more
    }

    /// Whether nothing is wrong.
    pub const fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    /// One problem a line, without a line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// A place in a file's tree, as a chain of what leads there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The file itself.
    Root,
    /// A key of a mapping.
    Key(&'a Path<'a>, &'a str),
    /// An element of a list.
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(super) const fn key(&'a self, name: &'a str) -> Self {
        Self::Key(self, name)
    }

    pub(super) const fn item(&'a self, at: usize) -> Self {
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
#[derive(Debug)]
pub(super) struct Problems {
    found: Vec<Problem>,
    more: usize,
    has_errors: bool,
    strict: bool,
}

impl Problems {
    /// More than anyone reads; a broken file of a million descriptors should not become a gigabyte of text.
    const MOST: usize = 1_000;

    /// Collects problems, all of them as errors when `strict`.
    pub(super) const fn new(strict: bool) -> Self {
        Self { found: Vec::new(), more: 0, has_errors: false, strict }
    }

    pub(super) fn error(
        &mut self,
        file: &str,
        at: Position,
        path: impl fmt::Display,
        message: impl fmt::Display,
    ) {
        self.add(Severity::Error, file, at, &path, &message);
    }

    pub(super) fn warning(
        &mut self,
        file: &str,
        at: Position,
        path: impl fmt::Display,
        message: impl fmt::Display,
    ) {
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
        self.has_errors |= severity == Severity::Error;
        if self.found.len() >= Self::MOST {
            self.more = self.more.saturating_add(1);
            return;
        }
        self.found.push(Problem {
            severity,
            file: file.into(),
            line: at.line,
            column: at.column,
            path: path.to_string(),
            message: message.to_string(),
        });
    }

    /// The report of all problems: `Ok` when the configuration can be loaded all the same.
    pub(super) fn finish(mut self) -> Result<Report, Report> {
        // The sort is stable: what was found first at a place stays first.
        self.found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let report = Report { problems: self.found, more: self.more };
        if self.has_errors { Err(report) } else { Ok(report) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_file_line_path_and_message() {
        let mut problems = Problems::new(false);
        let descriptors = Path::Root.key("descriptors");
        let second = descriptors.item(1);
        problems.error("b.yaml", Position { line: 7, column: 3 }, second.key("key"), "is empty");
        problems.warning("b.yaml", Position { line: 2, column: 1 }, Path::Root, "is odd");
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
        assert_eq!(report(false).unwrap().problems().len(), 1);
        assert_eq!(report(true).unwrap_err().to_string(), "a.yaml: is odd");
    }

    #[test]
    fn a_report_that_is_full_counts_the_rest() {
        let mut problems = Problems::new(false);
        for line in 1..=Problems::MOST + 5 {
            problems.error("a.yaml", Position { line, column: 1 }, Path::Root, "is wrong");
        }
        assert!(problems.finish().unwrap_err().to_string().ends_with("\nand 5 more"));
    }
}
