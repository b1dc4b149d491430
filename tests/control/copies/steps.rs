//! Steps of copies of records, in the script.

use super::*;

/// Steps of copies of records, as instances of a region make them.
struct Steps(redis::Connection);

impl Steps {
    /// Makes a step from one source to another, up to a revision, with changes by revision, id and payload. The words after
    /// the name of a step are arguments of its own.
    fn adopt(
        &mut self,
        attempt: &str,
        (before, after): (&str, &str),
        (step, revision): (&str, u64),
        changes: &[(u64, &str, &str)],
    ) -> String {
        let script = redis::Script::new(tollgate::control::BOOK_SCRIPT);
        let mut call = script.prepare_invoke();
        let [book, records @ ..] = BOOK_KEYS;
        let gathered = ["copied-records", "copied-record-revisions", "copied-record-ends"];
        for name in [book, "audit"].into_iter().chain(records).chain(gathered) {
            call.key(rules_key(name));
        }
        call.arg("adopt").arg("channel").arg(attempt).arg("token").arg("{}").arg(before).arg(after);
        let (step, own) = step.split_once(' ').unwrap_or((step, ""));
        call.arg(revision).arg(step);
        own.split(' ').for_each(|own| _ = call.arg(own));
        for (revision, id, payload) in changes {
            call.arg(*revision).arg(*id).arg("0").arg(*payload);
        }
        call.invoke(&mut self.0).expect("a reply")
    }

    /// Time after which a key expires, in milliseconds, -1 for never; `None` for an absent one.
    fn time_to_live(&mut self, name: &str) -> Option<i64> {
        let mut expiry = cmd("PTTL");
        let millis = expiry.arg(rules_key(name)).query(&mut self.0).expect("a reply");
        (millis != -2).then_some(millis)
    }

    /// The last revision, and the records.
    fn state(&mut self) -> (String, BTreeMap<String, String>) {
        let mut revision = cmd("HGET");
        let revision = revision.arg(rules_key("book")).arg("revision").query(&mut self.0);
        let all = cmd("HGETALL").arg(rules_key("records")).query(&mut self.0);
        (revision.expect("a revision"), all.expect("a hash"))
    }
}

#[test]
fn a_slower_instance_does_not_move_copied_records_back() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    assert_eq!(steps.adopt("first", ("", "copying"), ("begin", 0), &[]), "made");
    assert_eq!(steps.adopt("again", ("", "copying"), ("begin", 0), &[]), "made", "it was made before");
    assert_eq!(steps.adopt("first", ("", "other"), ("begin", 0), &[]), "other");
    steps.adopt("first", ("copying", "copying"), ("more", 3), &[(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]);
    steps.adopt("first", ("copying", "copying"), ("more", 4), &[(4, "c", "")]);
    assert_eq!(steps.adopt("first", ("copying", "us"), ("end lineage 2 0", 3), &[]), "made");
    let named = |all: &[(&str, &str)]| {
        all.iter().map(|(id, payload)| ((*id).to_owned(), (*payload).to_owned())).collect()
    };
    assert_eq!(steps.state(), ("3".to_owned(), named(&[("a", "1"), ("b", "2")])));
    let part = |steps: &mut Steps, revision, changes: &[_]| {
        assert_eq!(steps.adopt("first", ("us", "us"), ("part 3", revision), changes), "made");
    };
    part(&mut steps, 9, &[(7, "a", ""), (8, "b", "8"), (9, "d", "9")]);
    let last = ("9".to_owned(), named(&[("b", "8"), ("d", "9")]));
    assert_eq!(steps.state(), last);
    // Read before the others were.
    part(&mut steps, 6, &[(4, "a", "4"), (5, "b", "5"), (6, "d", "")]);
    part(&mut steps, 6, &[]);
    assert_eq!(steps.state(), last);
    part(&mut steps, 11, &[(9, "d", "9"), (10, "a", "10")]);
    let last = ("11".to_owned(), named(&[("a", "10"), ("b", "8"), ("d", "9")]));
    assert_eq!(steps.state(), last);
    // Of a store that has lost the changes before these.
    assert_eq!(steps.adopt("first", ("us", "us"), ("part 12", 13), &[(13, "e", "13")]), "other");
    assert_eq!(steps.state(), last);
}

#[test]
fn a_whole_copy_that_lacks_what_it_has_gathered_replaces_nothing() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    assert_eq!(steps.adopt("first", ("", "us"), ("part 0", 1), &[(1, "own", "1")]), "made");
    let before = steps.state();
    steps.adopt("first", ("us", "copying:0"), ("begin", 0), &[]);
    steps.adopt("first", ("copying:0", "copying:2"), ("more", 2), &[(1, "a", "1"), (2, "b", "2")]);
    // After a failover that has lost the last step.
    let changes = [(3, "c", "3")];
    assert_eq!(steps.adopt("first", ("copying:3", "copying:4"), ("more", 4), &changes), "other");
    for (end, result) in [("end l 3 0", "lacking"), ("end l 1 0", "lacking"), ("end l 2 1", "lacking")] {
        assert_eq!(steps.adopt("first", ("copying:2", "eu"), (end, 2), &[]), result, "{end}");
        assert_eq!(steps.state(), before, "{end}");
    }
    assert_eq!(steps.adopt("first", ("copying:2", "failed"), ("release", 0), &[]), "made");
    assert_eq!((steps.time_to_live("copied-records"), steps.state()), (None, before), "it is freed");
}

#[test]
fn what_a_whole_copy_has_gathered_expires_until_it_replaces_records() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    let mut source = "";
    for (permission, does_expire) in [("-persist", false), ("+persist", true)] {
        cmd("ACL").arg("SETUSER").arg("default").arg(permission).exec(&mut steps.0).expect("changed");
        steps.adopt("first", (source, "copying:0"), ("begin", 0), &[]);
        steps.adopt("first", ("copying:0", "copying:1"), ("more", 1), &[(1, "a", "1")]);
        for name in ["copied-records", "copied-record-revisions"] {
            let millis = steps.time_to_live(name).expect("gathered");
            assert_eq!((60_000..=600_000).contains(&millis), does_expire, "{name}: {millis} ms");
        }
        assert_eq!(steps.adopt("first", ("copying:1", "us"), ("end l 1 0", 1), &[]), "made");
        for name in ["records", "record-revisions"] {
            assert_eq!(steps.time_to_live(name), Some(-1), "{permission}: {name} does not expire");
        }
        source = "us";
    }
}

#[test]
fn what_a_whole_copy_replaces_is_freed_in_the_background_if_the_acl_permits_that() {
    let redis = Redis::start();
    let mut steps = Steps(redis.connect());
    let mut source = "";
    for (permission, is_freed) in [("-unlink", false), ("+unlink", true)] {
        cmd("ACL").arg("SETUSER").arg("default").arg(permission).exec(&mut steps.0).expect("changed");
        assert_eq!(steps.adopt("first", (source, "copying"), ("begin", 3), &[]), "made");
        let changes = [(3, permission, "1")];
        assert_eq!(steps.adopt("first", ("copying", "copying"), ("more", 3), &changes), "made");
        assert_eq!(steps.adopt("first", ("copying", "us"), ("end lineage 1 0", 3), &[]), "made");
        source = "us";
        let all = BTreeMap::from([(permission.to_owned(), "1".to_owned())]);
        assert_eq!(steps.state(), ("3".to_owned(), all));
        let counts: String = cmd("INFO").arg("commandstats").query(&mut steps.0).expect("a reply");
        let calls = counts.lines().find_map(|line| line.strip_prefix("cmdstat_unlink:calls="));
        assert_eq!(calls.is_some_and(|calls| !calls.starts_with('0')), is_freed, "{calls:?}");
    }
}
