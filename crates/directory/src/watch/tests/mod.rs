//! Files that are read while they are written, in simulated time; and changes in real time.

mod bounded_waits;
mod in_real_time;
mod random_writers;
mod startup;

use std::{cell::RefCell, fs, fs::File, io::Write as _, rc::Rc};

use notify::event::{CreateKind, DataChange, ModifyKind, RemoveKind, RenameMode};
use tempfile::TempDir;

use super::*;
use crate::read;

const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));

const CLOSED: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));

const CREATED: EventKind = EventKind::Create(CreateKind::File);

const REMOVED: EventKind = EventKind::Remove(RemoveKind::File);

const RENAMED_TO: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));

const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::Both));

/// Limits of the old and of the new version.
const LIMITS: [u64; 2] = [10_000, 20_000];

/// Rules that a version has, and their limits; or the error.
type Seen = Result<Vec<(String, u64)>, String>;

type OnChange = Box<dyn FnMut(Result<SourceFiles, DirectoryError>, bool) -> Reply>;

/// A watcher without its thread, whose clock and events the test provides.
struct Simulation {
    directory: TempDir,
    watch: Watch<OnChange>,
    now: Instant,
    /// Time of the next look.
    look: Instant,
    events: Vec<(EventKind, Vec<PathBuf>)>,
    has_events: bool,
    reports: Rc<RefCell<Vec<Seen>>>,
}

impl Simulation {
    /// Begins with active rules that were read.
    fn of(files: &[(&str, String)], has_events: bool) -> Self {
        let directory = TempDir::new().unwrap();
        for (name, content) in files {
            let mut file = File::create(directory.path().join(name)).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            file.set_modified(wall_clock() - Duration::from_secs(60)).unwrap();
        }
        let path = directory.path().canonicalize().unwrap();
        let first = read(&path).unwrap();
        let reports = Rc::<RefCell<Vec<Seen>>>::default();
        let on_change: OnChange = Box::new(taking(limits(&first), Rc::clone(&reports)));
        let mut watch = Watch::new(path, false, Some(first.fingerprint(false)), on_change);
        let listing = DirectoryListing::of(&watch.directory).unwrap();
        watch.surroundings = Surroundings::of(&watch.directory, Some(&listing));
        watch.event_delay = Duration::ZERO;
        let now = Instant::now();
        assert!(watch.refresh(Ok(listing), now).is_ok());
        Self { directory, watch, now, look: now, events: Vec::new(), has_events, reports }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.watch.directory.join(name)
    }

    fn event(&mut self, kind: EventKind, names: &[&str]) {
        let paths = names.iter().map(|name| self.path(name)).collect();
        self.events.push((kind, paths));
    }

    /// Lets time pass, with a look every quarter of a second and when the watcher requests one.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.look <= end {
            self.now = self.now.max(self.look);
            let events = mem::take(&mut self.events);
            for (kind, paths) in events.into_iter().filter(|_| self.has_events) {
                assert!(self.watch.handle(Signal::Changed(kind, paths)).is_ok());
            }
            let listing = DirectoryListing::of(&self.watch.directory);
            let Ok(recheck) = self.watch.refresh(listing, self.now) else { panic!("stopped") };
            let next = self.now + Duration::from_millis(250);
            self.look = recheck.map_or(next, |at| at.clamp(self.now + Duration::from_millis(1), next));
        }
        self.now = end;
    }

    /// Writes to an open file, as the system reports it.
    fn write(&mut self, file: &mut File, name: &str, bytes: &[u8]) {
        file.write_all(bytes).unwrap();
        self.event(WRITTEN, &[name]);
    }

    fn create(&mut self, name: &str) -> File {
        let existed = self.path(name).exists();
        let file = File::create(self.path(name)).unwrap();
        self.event(if existed { WRITTEN } else { CREATED }, &[name]);
        file
    }

    fn remove(&mut self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
        self.event(REMOVED, &[name]);
    }

    fn rename(&mut self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
        self.event(RENAMED_TO, &[to]);
        self.event(RENAMED, &[from, to]);
    }

    /// Takes what was reported.
    fn reported(&self) -> Vec<Seen> {
        mem::take(&mut self.reports.borrow_mut())
    }
}

/// Takes versions unless they lack active rules and the directory is not quiet, and reports them.
fn taking(
    mut active: Vec<(String, u64)>,
    reports: Rc<RefCell<Vec<Seen>>>,
) -> impl FnMut(Result<SourceFiles, DirectoryError>, bool) -> Reply {
    move |files, is_quiet| {
        let seen = files.map(|files| limits(&files)).map_err(|error| error.to_string());
        if let Ok(found) = &seen {
            if !is_quiet && lacks(found, &active) {
                return Reply::Early { awaiting: "files that remove rules" };
            }
            active.clone_from(found);
        }
        reports.borrow_mut().push(seen);
        Reply::Taken
    }
}

/// Whether rules of `active` are not among `found`.
fn lacks(found: &[(String, u64)], active: &[(String, u64)]) -> bool {
    active.iter().any(|(name, _)| found.iter().all(|(found, _)| found != name))
}

/// The rules of files with a line `name limit` for each; the limit of a part of a line is 0 or cut off.
fn limits(files: &SourceFiles) -> Vec<(String, u64)> {
    let texts = files.readable().map(|(_, content)| std::str::from_utf8(content).unwrap());
    let rules = texts.flat_map(str::lines).filter(|line| !line.starts_with('#')).map(|line| {
        let (name, limit) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), limit.parse().unwrap_or_default())
    });
    let mut limits: Vec<_> = rules.collect();
    limits.sort_unstable();
    limits
}

/// A file of these rules.
fn file(domain: &str, rules: usize, limit: u64) -> String {
    (0..rules).map(|rule| format!("{domain}{rule} {limit}\n")).collect()
}

fn small(rules: usize) -> String {
    file("web", rules, LIMITS[0])
}

/// A directory whose file of three rules is being overwritten by one of `rules`, with events.
fn being_written(rules: usize) -> (Simulation, File) {
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], true);
    let mut file = simulation.create("a.yaml");
    simulation.write(&mut file, "a.yaml", small(rules).as_bytes());
    (simulation, file)
}

/// Names of the rules reported, and nothing else.
#[track_caller]
fn assert_reports(simulation: &Simulation, rules: usize) {
    let reported = simulation.reported();
    assert!(matches!(&reported[..], [Ok(found)] if found.len() == rules), "{reported:?}");
}

#[test]
fn a_file_is_read_as_soon_as_its_writer_has_closed_it() {
    let (mut simulation, _file) = being_written(4);
    simulation.pass(Duration::from_secs(29));
    let reported = simulation.reported();
    assert!(matches!(&reported[..], [Err(error)] if error.contains("a.yaml still being written after 10 s")));
    simulation.event(CLOSED, &["a.yaml"]);
    simulation.pass(Duration::from_millis(250));
    assert_reports(&simulation, 4);
}

#[test]
fn a_reported_writer_that_leaves_the_file_as_it_was_is_reported_as_finished() {
    let (mut simulation, _file) = being_written(3);
    simulation.pass(Duration::from_secs(11));
    assert!(matches!(&simulation.reported()[..], [Err(_)]));
    simulation.event(CLOSED, &["a.yaml"]);
    simulation.pass(Duration::from_millis(250));
    assert_reports(&simulation, 3);
}

#[test]
fn a_renamed_file_is_read_at_once_unless_it_is_still_written() {
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], true);
    let mut file = simulation.create(".new");
    simulation.write(&mut file, ".new", small(4).as_bytes());
    simulation.event(CLOSED, &[".new"]);
    simulation.rename(".new", "a.yaml");
    simulation.pass(Duration::from_millis(250));
    assert_reports(&simulation, 4);
    let mut file = simulation.create(".new");
    simulation.write(&mut file, ".new", small(5).as_bytes());
    simulation.rename(".new", "a.yaml");
    simulation.pass(Duration::from_secs(5));
    assert!(simulation.reported().is_empty());
    simulation.event(CLOSED, &["a.yaml"]);
    simulation.pass(Duration::from_millis(250));
    assert_reports(&simulation, 5);
}

#[test]
fn without_events_a_file_is_read_three_seconds_after_its_last_change() {
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], false);
    let mut file = simulation.create("a.yaml");
    for part in small(5).as_bytes().chunks(7) {
        simulation.write(&mut file, "a.yaml", part);
        simulation.pass(Duration::from_secs(2));
    }
    let reported = simulation.reported();
    assert!(matches!(&reported[..], [Err(error)] if error.contains("still being written")), "{reported:?}");
    simulation.pass(Duration::from_millis(1_250));
    assert_reports(&simulation, 5);
}

#[test]
fn after_lost_events_an_open_file_is_read_once_it_does_not_change() {
    let (mut simulation, _file) = being_written(4);
    simulation.pass(Duration::from_millis(500));
    simulation.watch.settling.lose_events(simulation.now);
    simulation.pass(Duration::from_secs(2));
    assert!(simulation.reported().is_empty());
    simulation.pass(Duration::from_millis(1_250));
    assert_reports(&simulation, 4);
}

#[test]
fn rules_that_move_to_a_file_written_later_are_never_missing() {
    let files = [("a.yaml", small(3)), ("b.yaml", file("other", 2, 1))];
    let mut simulation = Simulation::of(&files, true);
    simulation.remove("a.yaml");
    simulation.pass(Duration::from_secs(2));
    let mut file = simulation.create("c.yaml");
    simulation.write(&mut file, "c.yaml", small(3).as_bytes());
    simulation.event(CLOSED, &["c.yaml"]);
    simulation.pass(Duration::from_secs(10));
    assert_reports(&simulation, 5);
    simulation.remove("c.yaml");
    simulation.pass(Duration::from_secs(4));
    assert_reports(&simulation, 2);
}

#[test]
fn a_version_that_kubernetes_publishes_is_read_at_once_though_it_lacks_rules() {
    use std::os::unix::fs::symlink;
    let mut simulation = Simulation::of(&[], false);
    for (version, rules) in [("..1", 9), ("..2", 2)] {
        fs::create_dir(simulation.path(version)).unwrap();
        fs::write(simulation.path(version).join("a.yaml"), small(rules)).unwrap();
        symlink(version, simulation.path("..data_tmp")).unwrap();
        simulation.rename("..data_tmp", "..data");
        if rules == 9 {
            symlink("..data/a.yaml", simulation.path("a.yaml")).unwrap();
        }
        simulation.pass(Duration::from_millis(250));
        assert_reports(&simulation, rules);
    }
    drop(simulation.directory);
}
