mod history;
mod laws;
mod server;

use super::*;

fn head(lineage: &str, revision: u64, epoch: u64, floor: u64) -> BookHead {
    BookHead { lineage: lineage.to_owned(), revision, epoch, floor }
}

#[test]
fn an_instance_fetches_what_it_lacks_and_restores_what_the_store_lost() {
    let held = head("a", 5, 1, 0);
    for (store, plan) in [
        (head("a", 5, 1, 0), Plan::Nothing),
        (head("a", 9, 1, 5), Plan::Changes),
        (head("a", 9, 1, 6), Plan::Everything),
        (head("a", 9, 2, 0), Plan::Everything),
        (head("a", 4, 0, 0), Plan::Restore(4)),
        (head("", 0, 0, 0), Plan::Restore(0)),
        (head("b", 3, 1, 0), Plan::Restore(0)),
        (head("b", 9, 1, 2), Plan::Restore(2)),
    ] {
        assert_eq!(Plan::of(&held, &store), plan, "{store:?}");
    }
    let of_memory = head("", 5, 0, 0);
    assert_eq!(Plan::of(&of_memory, &head("", 0, 0, 0)), Plan::Restore(0));
    assert_eq!(Plan::of(&of_memory, &head("a", 9, 1, 3)), Plan::Restore(3));
    assert_eq!(Plan::of(&head("", 0, 0, 0), &head("", 0, 0, 0)), Plan::Nothing);
    assert_eq!(Plan::of(&head("", 0, 0, 0), &head("a", 1, 0, 0)), Plan::Everything);
}
