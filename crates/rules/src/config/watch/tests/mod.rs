//! Files that are read while they are written, in simulated time.

mod bounded_waits;

use std::{
    cell::RefCell,
    fs,
    fs::File,
    io::Write as _,
    rc::Rc,
    sync::{Arc, mpsc::channel},
};

use notify::event::{CreateKind, DataChange, ModifyKind, RemoveKind, RenameMode};
use tempfile::TempDir;

use super::*;
use crate::{
    Limit, Rules,
    config::{Loaded, Options, build, load},
};

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

type Simulated = Watch<
    fn(Sources, Fingerprint) -> Result<Loaded, LoadError>,
    Box<dyn Fn(&Loaded) -> bool>,
    Box<dyn FnMut(Result<Loaded, LoadError>)>,
>;

/// A watcher without its thread, whose clock and events the test provides.
struct Simulation {
    directory: TempDir,
    watch: Simulated,
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
        let first = load(&path, &Options::default()).unwrap();
        let active = Rc::new(RefCell::new(Arc::new(first.rules)));
        let reports = Rc::<RefCell<Vec<Seen>>>::default();
        let (signals, received) = channel();
        let listing = DirectoryListing::of(&path).unwrap();
        let (compared, reported) = (Rc::clone(&active), Rc::clone(&reports));
        let mut watch: Simulated = Watch {
            surroundings: Surroundings::of(&path, Some(&listing)),
            directory: path,
            strict: false,
            seen: Some(first.fingerprint),
            stamp: None,
            settling: Settling::default(),
            unfinished: None,
            notifier: None,
            is_notifier_outdated: false,
            has_missed_event: false,
            event_delay: Duration::ZERO,
            signals,
            received,
            compile: |sources, fingerprint| build(&sources, fingerprint, Options::default()),
            is_early: Box::new(move |loaded| compared.borrow().missing_in(&loaded.rules) > 0),
            on_change: Box::new(move |loaded| {
                reported.borrow_mut().push(match loaded {
                    Ok(loaded) => {
                        let rules = Arc::new(loaded.rules);
                        *active.borrow_mut() = Arc::clone(&rules);
                        Ok(limits(&rules))
                    }
                    Err(error) => Err(error.to_string()),
                });
            }),
        };
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

fn limits(rules: &Rules) -> Vec<(String, u64)> {
    let limit = |rule: &Arc<crate::Rule>| match rule.limit {
        Limit::Quota { quota, .. } => (rule.path(), quota.limit),
        Limit::Unlimited => panic!("no such rule"),
    };
    let mut limits: Vec<_> = rules.rules().map(limit).collect();
    limits.sort_unstable();
    limits
}

/// A file of these rules.
fn file(domain: &str, rules: usize, limit: u64) -> String {
    let rules = (0..rules).map(|rule| {
        format!("- key: {domain}{rule}\n  rate_limit: {{unit: day, requests_per_unit: {limit}}}\n")
    });
    format!("domain: {domain}\ndescriptors:\n{}", rules.collect::<String>())
}

fn small(rules: usize) -> String {
    file("web", rules, LIMITS[0])
}

/// Names of the rules reported, and nothing else.
#[track_caller]
fn assert_reports(simulation: &Simulation, rules: usize) {
    let reported = simulation.reported();
    assert!(matches!(&reported[..], [Ok(found)] if found.len() == rules), "{reported:?}");
}

#[test]
fn a_file_is_read_as_soon_as_its_writer_has_closed_it() {
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], true);
    let mut file = simulation.create("a.yaml");
    simulation.write(&mut file, "a.yaml", small(4).as_bytes());
    simulation.pass(Duration::from_secs(29));
    let reported = simulation.reported();
    assert!(matches!(&reported[..], [Err(error)] if error.contains("a.yaml still being written after 10 s")));
    simulation.event(CLOSED, &["a.yaml"]);
    simulation.pass(Duration::from_millis(250));
    assert_reports(&simulation, 4);
}

#[test]
fn a_reported_writer_that_leaves_the_file_as_it_was_is_reported_as_finished() {
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], true);
    let mut file = simulation.create("a.yaml");
    simulation.write(&mut file, "a.yaml", small(3).as_bytes());
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
    for part in small(5).as_bytes().chunks(40) {
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
    let mut simulation = Simulation::of(&[("a.yaml", small(3))], true);
    let mut file = simulation.create("a.yaml");
    simulation.write(&mut file, "a.yaml", small(4).as_bytes());
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

#[test]
fn at_startup_a_file_that_changed_within_three_seconds_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let file = File::create(directory.path().join("a.yaml")).unwrap();
    let (start, wall) = (Instant::now(), wall_clock());
    let is_waited_for = |modified: std::time::SystemTime, elapsed: &[u64]| {
        file.set_modified(modified).unwrap();
        let mut settling = Settling::default();
        let look = |elapsed: &u64| {
            let (now, listing) =
                (start + Duration::from_millis(*elapsed), DirectoryListing::of(directory.path()));
            !settling.observe(&listing.unwrap(), now, wall).is_empty()
        };
        elapsed.iter().map(look).collect::<Vec<_>>()
    };
    assert_eq!(is_waited_for(wall - Duration::from_secs(4), &[0]), [false]);
    assert_eq!(is_waited_for(wall - Duration::from_secs(2), &[0, 2_900, 3_000]), [true, true, false]);
    // Another machine's clock.
    assert_eq!(is_waited_for(wall + Duration::from_secs(60), &[0, 2_900, 3_000]), [true, true, false]);
}

#[test]
fn at_startup_files_that_kubernetes_published_are_complete() {
    use std::os::unix::fs::symlink;
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("..1")).unwrap();
    fs::write(directory.path().join("..1/a.yaml"), small(1)).unwrap();
    symlink("..1", directory.path().join("..data")).unwrap();
    symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
    let listing = DirectoryListing::of(directory.path()).unwrap();
    assert!(Settling::default().observe(&listing, Instant::now(), wall_clock()).is_empty());
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Rewrites a file of a directory: in place, by a rename, or anew.
fn rewrite(simulation: &mut Simulation, random: &mut Random, name: &str, content: &str) {
    let way = random.below(3);
    if way == 2 && simulation.path(name).exists() {
        simulation.remove(name);
        pause(simulation, random);
    }
    let target = if way == 1 { ".new" } else { name };
    let mut file = simulation.create(target);
    for byte in content.bytes() {
        if random.below(content.len()) < 10 {
            pause(simulation, random);
        }
        simulation.write(&mut file, target, &[byte]);
    }
    // Without events, a close is no sign that the writer goes on.
    if way != 1 && simulation.has_events {
        pause(simulation, random);
    }
    simulation.event(CLOSED, &[target]);
    if way == 1 {
        pause(simulation, random);
        simulation.rename(".new", name);
    }
}

/// Lets up to two seconds pass.
fn pause(simulation: &mut Simulation, random: &mut Random) {
    let millis = random.below(2_001) as u64;
    simulation.pass(Duration::from_millis(millis));
}

/// 200 files, with events and without, in directories of five. A look never finds fewer rules than the smaller of the
/// old and the new version has, nor a part of a limit.
#[test]
fn a_writer_that_pauses_for_up_to_two_seconds_is_never_read_too_early() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let names = ["a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml"];
    let mut versions = 0;
    for trial in 0..40 {
        let mut version = |limit| {
            names.map(|name| (name, file(name.trim_end_matches(".yaml"), 1 + random.below(6), limit)))
        };
        let (old, new) = (version(LIMITS[0]), version(LIMITS[1]));
        let count = |files: &[(&str, String)]| {
            files.iter().map(|(_, text)| text.matches("key").count()).sum::<usize>()
        };
        let fewest = count(&old).min(count(&new));
        let mut simulation = Simulation::of(&old, trial % 2 == 0);
        for (name, content) in &new {
            rewrite(&mut simulation, &mut random, name, content);
            pause(&mut simulation, &mut random);
        }
        simulation.pass(Duration::from_secs(5));
        let reported = simulation.reported();
        for version in &reported {
            let version = match version {
                Ok(version) => version,
                Err(error) if error.contains("still being written after 10 s") => continue,
                Err(error) => panic!("trial {trial}: {error}"),
            };
            versions += 1;
            assert!(version.len() >= fewest, "trial {trial}: {} of {fewest} rules", version.len());
            assert!(version.iter().all(|(_, limit)| LIMITS.contains(limit)), "trial {trial}: {version:?}");
        }
        let last =
            reported.last().and_then(|version| version.as_ref().ok()).expect("the new version is read");
        assert_eq!(last.len(), count(&new), "trial {trial}");
        assert!(last.iter().all(|(_, limit)| *limit == LIMITS[1]), "trial {trial}");
    }
    assert!(versions >= 40, "{versions}");
}
