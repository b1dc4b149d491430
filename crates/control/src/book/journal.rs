//! File of the records that an instance holds: a line for each change, rewritten when most lines are outdated.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tollgate_runtime::{bounded_file, redact};

use super::Record;
use super::records::{Book, BookHead, RecordChange};
use crate::RecordKey;
use crate::state_file::{self, FILE_MODE, sibling};

/// Format version of the file.
const FORMAT: u32 = 3;
/// Maximum length of a line, and of the file, in bytes.
const MAX_LINE_BYTES: u64 = 64 << 10;
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Number of outdated lines that a file may have besides one for each record.
const MAX_OUTDATED_LINES: usize = 10_000;
/// Number of lines of a file that is to be replaced: it could not be written and lacks changes, or it ends within a line.
const UNUSABLE: usize = usize::MAX;

/// Line of the file, whose record is borrowed when it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<R> {
    /// The identity after the changes of the lines before.
    Head { form: u32, lineage: String, revision: u64, epoch: u64 },
    /// A record, after its revision.
    Put(u64, R),
    /// A removal, after its revision.
    Removed(u64, RecordKey),
}

/// The file, locked against other processes.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
    /// A separate file, because the file itself is replaced.
    _lock: File,
}

impl Journal {
    /// Opens the file and reads its records; creates it if it does not exist. A last line that is incomplete is dropped,
    /// since the process may have been killed while it wrote it, by writing the file anew.
    ///
    /// # Errors
    /// When another process uses it, it cannot be read or written, or is not such a file.
    pub(crate) fn open(path: PathBuf) -> Result<(Self, Book), String> {
        let unusable = |reason: String| {
            format!("cannot use the records file {} (--state-directory): {reason}", redact::path(&path))
        };
        let lock = lock(&sibling(&path, ".lock")).map_err(unusable)?;
        let (book, lines) = read(&path).map_err(unusable)?;
        // A file that cannot be written is better reported at the start than at the first change.
        let opened = match is_outdated(lines, book.changes_len()) {
            true => write(&path, book.changes_since(0, 0), &book.head),
            false => OpenOptions::new().append(true).open(&path).map(|file| (file, lines)),
        };
        let (file, lines) = opened.map_err(|error| unusable(error.to_string()))?;
        Ok((Self { path, file, lines, _lock: lock }, book))
    }

    /// Whether most lines are outdated, with this number of changes that state all.
    pub(crate) const fn is_outdated(&self, changes: usize) -> bool {
        is_outdated(self.lines, changes)
    }

    /// Appends changes after which the state has this identity.
    pub(crate) fn append(&mut self, changes: &[RecordChange], head: &BookHead) -> io::Result<()> {
        let mut text = Vec::new();
        for change in changes {
            push(&mut text, &line_of(change))?;
        }
        push(&mut text, &head_line(head))?;
        // One write, so that a process that is killed leaves at most one incomplete line.
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        self.lines = match written {
            Ok(()) => self.lines.saturating_add(changes.len() + 1),
            Err(_) => UNUSABLE,
        };
        written
    }

    /// Copies the file, whose last revision is stated; returns the path of the copy.
    pub(crate) fn keep(&self, revision: u64) -> io::Result<String> {
        let kept = sibling(&self.path, &format!(".conflict-{revision}"));
        fs::copy(&self.path, &kept)?;
        Ok(kept.display().to_string())
    }

    /// Replaces the content by these changes, after which the state has this identity.
    pub(crate) fn replace(
        &mut self,
        changes: impl IntoIterator<Item = RecordChange>,
        head: &BookHead,
    ) -> io::Result<()> {
        self.lines = UNUSABLE;
        (self.file, self.lines) = write(&self.path, changes, head)?;
        Ok(())
    }
}

const fn is_outdated(lines: usize, changes: usize) -> bool {
    lines > 2 * changes + MAX_OUTDATED_LINES
}

fn line_of(change: &RecordChange) -> Line<&Record> {
    match &change.record {
        Some(record) => Line::Put(change.revision, record),
        None => Line::Removed(change.revision, change.key),
    }
}

fn head_line(head: &BookHead) -> Line<&Record> {
    let BookHead { lineage, revision, epoch, floor: _ } = head.clone();
    Line::Head { form: FORMAT, lineage, revision, epoch }
}

fn push(text: &mut Vec<u8>, line: &Line<&Record>) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

/// Writes a new file with these changes in the place of an earlier one.
fn write(
    path: &Path,
    changes: impl IntoIterator<Item = RecordChange>,
    head: &BookHead,
) -> io::Result<(File, usize)> {
    let mut lines = 1_usize;
    let file = state_file::replace(path, |writer| {
        let mut text = Vec::new();
        for change in changes {
            text.clear();
            push(&mut text, &line_of(&change))?;
            writer.write_all(&text)?;
            lines += 1;
        }
        text.clear();
        push(&mut text, &head_line(head))?;
        writer.write_all(&text)
    })?;
    Ok((file, lines))
}

/// Reads the records of the file, and the number of its lines: [`UNUSABLE`] if there is no file, or its last line is incomplete.
fn read(path: &Path) -> Result<(Book, usize), String> {
    let mut book = Book::default();
    let file = match bounded_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((book, UNUSABLE)),
        Err(error) => return Err(error.to_string()),
    };
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("not a file of records: larger than {MAX_FILE_BYTES} bytes"));
    }
    let (mut reader, mut line, mut number) = (BufReader::new(file), Vec::new(), 0_usize);
    loop {
        line.clear();
        let mut bounded = reader.by_ref().take(MAX_LINE_BYTES + 1);
        if bounded.read_until(b'\n', &mut line).map_err(|error| error.to_string())? == 0 {
            return Ok((book, number));
        }
        number += 1;
        // The error itself may quote the content.
        let damaged = || format!("not a file of records, or damaged at line {number}");
        if line.len() as u64 > MAX_LINE_BYTES {
            return Err(damaged());
        }
        if line.last() != Some(&b'\n') {
            return Ok((book, UNUSABLE));
        }
        apply(&mut book, serde_json::from_slice(&line).map_err(|_| damaged())?).ok_or_else(damaged)?;
    }
}

/// Applies a line; `None` if it is invalid.
fn apply(book: &mut Book, line: Line<Record>) -> Option<()> {
    let change = match line {
        Line::Head { form: FORMAT, lineage, revision, epoch } => {
            book.head = BookHead { lineage, revision, epoch, floor: 0 };
            return Some(());
        }
        Line::Head { .. } => return None,
        Line::Put(revision, put) => RecordChange { revision, key: put.key(), record: Some(put) },
        Line::Removed(revision, key) => RecordChange { revision, key, record: None },
    };
    book.apply(change).ok()
}

/// Locks an empty file, which is never removed: otherwise two processes could hold files of the same name.
fn lock(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
    let file = file.map_err(|error| error.to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err("another process uses it".to_owned()),
        Err(TryLockError::Error(error)) => Err(format!("cannot lock it: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::records::tests::{all, entry},
        *,
    };
    use crate::OverrideEntry;
    use crate::lists::tests::{entry as list_entry, switch};

    fn change_of(revision: u64, record: Record, is_removal: bool) -> RecordChange {
        RecordChange { revision, key: record.key(), record: (!is_removal).then_some(record) }
    }

    fn change(revision: u64, value: &str, is_removal: bool) -> RecordChange {
        let entry = OverrideEntry { created_at_ms: 1, ..entry(value, 5, Some(2)) };
        change_of(revision, Record::Override(entry), is_removal)
    }

    fn record(journal: &mut Journal, book: &mut Book, changes: &[RecordChange]) {
        changes.iter().cloned().for_each(|change| book.apply(change).expect("valid"));
        match journal.is_outdated(book.changes_len()) {
            true => journal.replace(book.changes_since(0, 0), &book.head).expect("written"),
            false => journal.append(changes, &book.head).expect("written"),
        }
    }

    #[test]
    fn a_file_has_all_changes_after_a_restart_and_one_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("overrides");
        let (mut journal, mut book) = Journal::open(path.clone()).expect("created");
        assert_eq!(all(&book), []);
        book.head = BookHead { lineage: "l".into(), epoch: 3, ..BookHead::default() };
        record(&mut journal, &mut book, &[change(1, "a", false), change(2, "b", false)]);
        record(&mut journal, &mut book, &[change(3, "a", true)]);
        let error = Journal::open(path.clone()).expect_err("it is locked");
        assert!(error.contains("another process"), "{error}");
        drop(journal);
        let (_, again) = Journal::open(path).expect("readable");
        assert_eq!((all(&again), &again.head), (all(&book), &book.head));
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn a_file_has_records_of_every_kind() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("overrides");
        let (mut journal, mut book) = Journal::open(path.clone()).expect("created");
        let [deny, off] = [Record::ListEntry(list_entry("k", Some(7))), Record::Switch(switch("r", None))];
        let puts =
            [change(1, "a", false), change_of(2, deny.clone(), false), change_of(3, off.clone(), false)];
        record(&mut journal, &mut book, &puts);
        record(&mut journal, &mut book, &[change_of(4, off, true)]);
        drop(journal);
        let (journal, again) = Journal::open(path.clone()).expect("readable");
        assert_eq!((all(&again), again.get(deny.key())), (all(&book), Some(deny)));
        drop(journal);
        // As when it is written anew.
        let (_, again) = Journal::open(path).expect("readable");
        assert_eq!((all(&again), again.len()), (all(&book), 2));
    }

    #[test]
    fn an_incomplete_last_line_is_dropped_and_other_damage_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("overrides");
        let (mut journal, mut book) = Journal::open(path.clone()).expect("created");
        record(&mut journal, &mut book, &[change(1, "a", false), change(2, "b", false)]);
        drop(journal);
        let whole = fs::read(&path).expect("written");
        let second = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).expect("lines").0;
        fs::write(&path, &whole[..second + 20]).expect("written");
        let (journal, book) = Journal::open(path.clone()).expect("readable");
        assert!(book.len() <= 2);
        drop(journal);
        for damaged in
            ["{}\n", "[]\n", "{\"head\":{\"form\":4,\"lineage\":\"\",\"revision\":1,\"epoch\":0}}\n"]
        {
            fs::write(&path, damaged).expect("written");
            let error = Journal::open(path.clone()).expect_err("damaged");
            assert!(error.contains("line 1"), "{error}");
        }
    }

    #[test]
    fn a_file_that_could_not_be_written_is_replaced_by_the_next_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("overrides");
        let (mut journal, mut book) = Journal::open(path.clone()).expect("created");
        record(&mut journal, &mut book, &[change(1, "a", false)]);
        // Part of a line is written, as on a full disk.
        journal.file.write_all(b"{\"revision\":2,\"put").expect("written");
        journal.file = File::open(&path).expect("readable");
        let lost = change(2, "b", false);
        book.apply(lost.clone()).expect("valid");
        journal.append(&[lost], &book.head).expect_err("not writable");
        record(&mut journal, &mut book, &[change(3, "c", false)]);
        drop(journal);
        let (_, again) = Journal::open(path).expect("readable");
        assert_eq!((all(&again), again.len()), (all(&book), 3));
    }

    #[test]
    fn a_file_of_outdated_lines_is_rewritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("overrides");
        let (mut journal, mut book) = Journal::open(path.clone()).expect("created");
        let changes: Vec<_> = (1..=11_000).map(|revision| change(revision, "a", false)).collect();
        record(&mut journal, &mut book, &changes);
        record(&mut journal, &mut book, &[change(20_000, "a", false)]);
        drop(journal);
        assert!(fs::read_to_string(&path).expect("text").lines().count() <= 3);
        let (_, again) = Journal::open(path).expect("readable");
        assert_eq!(all(&again), all(&book));
    }
}
