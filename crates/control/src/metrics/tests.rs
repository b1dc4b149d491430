use std::sync::{Arc, mpsc};
use std::{thread, time::Duration};

use tollgate_metrics::Exporter;
use tollgate_rules::{Lists, Overridden, RuleOverrides};

use super::*;

/// Overrides of which a number has no effect. Their counts may be slow: until a message, or for some time.
#[derive(Debug)]
struct Counted {
    unmatched: usize,
    slow: Option<(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>)>,
}

impl OverrideTarget for Counted {
    fn set_lists(&self, _: Arc<Lists>) {}

    fn override_rules(&self, _: Arc<RuleOverrides>) -> Arc<Overridden> {
        Arc::default()
    }

    fn overridden_counts(&self) -> OverriddenCounts {
        if let Some((begun, end)) = &self.slow {
            begun.send(()).expect("the test waits");
            // Without an end, the later change waits for this one.
            let _ = end.lock().recv_timeout(Duration::from_millis(50));
        }
        OverriddenCounts { rules: 0, keys: 0, unmatched: self.unmatched }
    }
}

#[test]
fn the_counts_of_a_change_do_not_replace_those_of_a_later_one() {
    let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel());
    let earlier = Counted { unmatched: 1, slow: Some((begun, Mutex::new(ends))) };
    thread::scope(|scope| {
        scope.spawn(|| rule_overrides(&earlier));
        begins.recv().expect("it counts");
        rule_overrides(&Counted { unmatched: 2, slow: None });
        // The earlier change may have been recorded by now.
        let _ = end.send(());
    });
    let page = Exporter::new([&UNMATCHED_OVERRIDES as &dyn Metric]).render();
    assert!(page.contains("\ntollgate_rule_overrides_unmatched 2\n"), "{page}");
}
