use crate::{Control, Draft, Files, RulesSource, stored::token};

fn draft(based_on: Option<u64>, text: &str) -> Draft {
    Draft {
        files: Files::from([("a.yaml".to_owned(), text.to_owned())]),
        based_on,
        rollback_to: None,
        author: "ada".to_owned(),
        comment: token(),
    }
}

#[tokio::test]
async fn the_oldest_versions_are_dropped_and_the_current_one_never() {
    let control = Control::memory(RulesSource::Memory);
    let large = "#".repeat((2 << 20) - "a.yaml".len());
    for number in 0..40 {
        control.apply(draft((number > 0).then_some(number), &large)).await.expect("made");
    }
    let stored = control.versions(None, 100).await.expect("a response");
    assert_eq!((stored.len(), stored[0].number), (32, 40));
}
