//! Files that change while the program starts.

use super::*;

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
