//! Files that random writers change, with pauses.

use super::*;

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
        let count =
            |files: &[(&str, String)]| files.iter().map(|(_, text)| text.lines().count()).sum::<usize>();
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
