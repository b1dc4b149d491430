//! The documented figures of capacity follow from `benches/RESULTS.md`.

use crate::support::prelude::*;

#[test]
fn the_tables_of_capacity_follow_from_the_results() {
    let page = fs::read_to_string(project("docs/guides/capacity.md")).expect("a text");
    let (_, shown) = page.split_once("\n<!-- capacity: ").expect("where they begin");
    let (shown, _) = shown.split_once("\n<!-- end of capacity -->").expect("where they end");
    let (_, shown) = shown.split_once('\n').expect("the rest of the first line");
    let words = ["-f", "benches/compare/capacity.awk", "benches/RESULTS.md"];
    let found = output_of(Command::new("awk").args(words).current_dir(project("")));
    assert_eq!(shown, found.trim_end(), "benches/compare/capacity.sh puts them there");
}
