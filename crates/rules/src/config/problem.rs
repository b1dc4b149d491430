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
    end: End,
}

/// How far a configuration was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// All of it.
    #[default]
    Read,
    /// Until there were too many errors.
    GivenUp,
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
        match (self.more, self.end) {
            (0, End::Read) => Ok(()),
            (more, End::Read) => write!(f, "\nand {more} more"),
            (_, End::GivenUp) => f.write_str("\nand perhaps more: the rest was not looked at"),
        }
    }
}

/// A place in a file's tree, as a chain of what leads there.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The file itself.
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
#[derive(Debug)]
pub struct Problems {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Those that were found when the lists were full.
    more: usize,
    end: End,
    strict: bool,
}

impl Problems {
    /// More than anyone reads; a broken file of a million descriptors should not become a gigabyte of text.
    const MOST: usize = 1_000;
    /// Bytes of the longest path or message that is kept whole.
    const LONGEST: usize = 1_000;

    /// Collects problems, all of them as errors when `strict`.
    pub const fn new(strict: bool) -> Self {
        Self { errors: Vec::new(), warnings: Vec::new(), more: 0, end: End::Read, strict }
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
        let found = match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        if found.len() >= Self::MOST {
            self.more = self.more.saturating_add(1);
            if severity == Severity::Error {
                self.end = End::GivenUp;
            }
            return;
        }
        found.push(Problem {
            severity,
            file: file.into(),
            line: at.line(),
            column: at.column(),
            path: beginning(path),
            message: beginning(message),
        });
    }

    /// Leaves the rest alone, after an error.
    pub const fn give_up(&mut self) {
        self.end = End::GivenUp;
    }

    /// Whether nobody needs to look for more.
    pub fn is_full(&self) -> bool {
        self.end == End::GivenUp
    }

    /// The report of all problems: `Ok` when the configuration can be loaded all the same.
    pub fn finish(mut self) -> Result<Report, Report> {
        // The sort is stable: what was found first at a place stays first.
        let has_errors = !self.errors.is_empty();
        let mut problems = self.errors;
        problems.append(&mut self.warnings);
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        let report = Report { problems, more: self.more, end: self.end };
        if has_errors { Err(report) } else { Ok(report) }
    }
}

/// The text, or its beginning when it is long, which is all that is ever made of it.
fn beginning(text: &dyn fmt::Display) -> String {
    struct Bounded(String);
    impl fmt::Write for Bounded {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let room = Problems::LONGEST.saturating_sub(self.0.len());
            let mut end = room.min(part.len());
            while !part.is_char_boundary(end) {
                end = end.saturating_sub(1);
            }
            self.0.push_str(part.get(..end).unwrap_or_default());
            if end < part.len() { Err(fmt::Error) } else { Ok(()) }
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
        assert_eq!(report(false).unwrap().problems().len(), 1);
        assert_eq!(report(true).unwrap_err().to_string(), "a.yaml: is odd");
    }

    #[test]
    fn a_report_that_is_full_counts_the_rest() {
        let mut problems = Problems::new(false);
        for line in 1..=Problems::MOST + 5 {
            problems.error("a.yaml", Position::new(line, 1), Path::Root, "is wrong");
        }
        assert!(problems.is_full());
        let text = problems.finish().unwrap_err().to_string();
        assert!(text.ends_with("1000: is wrong\nand perhaps more: the rest was not looked at"));
    }

    #[test]
    fn warnings_crowd_out_no_error() {
        let mut problems = Problems::new(false);
        for line in 1..=Problems::MOST + 5 {
            problems.warning("a.yaml", Position::new(line, 1), Path::Root, "is odd");
        }
        assert!(!problems.is_full());
        problems.error("b.yaml", Position::WHOLE, Path::Root, "is wrong");
        let text = problems.finish().unwrap_err().to_string();
        assert!(text.ends_with("\nb.yaml: is wrong\nand 5 more"), "{text}");
    }

    #[test]
    fn of_a_long_text_the_beginning_is_told() {
        let mut problems = Problems::new(false);
        let (key, message) = ("é".repeat(1 << 20), "x".repeat(1 << 20));
        problems.error("a.yaml", Position::WHOLE, Path::Root.key(&key), &message);
        let report = problems.finish().unwrap_err();
        assert_eq!(report.problems()[0].path, format!("{}…", "é".repeat(500)));
        assert_eq!(report.problems()[0].message, format!("{}…", "x".repeat(1_000)));
    }
}
