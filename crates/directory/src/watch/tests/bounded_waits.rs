//! Waits that end although files never look complete.

use std::time::Duration;

use super::{CLOSED, Simulation, assert_reports, being_written, file, small};

#[test]
fn a_file_that_is_never_closed_is_read_once_it_has_not_changed_for_thirty_seconds() {
    let (mut simulation, mut file) = being_written(4);
    simulation.pass(Duration::from_secs(20));
    simulation.write(&mut file, "a.yaml", b"# more to come\n");
    simulation.pass(Duration::from_secs(29));
    assert!(matches!(&simulation.reported()[..], [Err(_)]));
    simulation.pass(Duration::from_millis(1_500));
    assert_reports(&simulation, 4);
}

#[test]
fn a_removal_takes_effect_beside_a_file_that_changes_all_the_time() {
    let mut simulation = Simulation::of(&[("a.yaml", small(3)), ("b.yaml", file("other", 2, 1))], true);
    let mut heartbeat = simulation.create("heartbeat");
    simulation.event(CLOSED, &["heartbeat"]);
    simulation.pass(Duration::from_secs(4));
    simulation.remove("b.yaml");
    for _ in 0..59 {
        simulation.write(&mut heartbeat, "heartbeat", b".");
        simulation.pass(Duration::from_secs(1));
    }
    assert!(matches!(&simulation.reported()[..], [Err(_)]));
    for _ in 0..3 {
        simulation.write(&mut heartbeat, "heartbeat", b".");
        simulation.pass(Duration::from_secs(1));
    }
    assert_reports(&simulation, 3);
}
