use ::redis::RedisError;
use smallvec::smallvec;
use tokio::sync::oneshot;

use super::*;
use crate::redis::batch::queue::{PendingRequest, Waiter};
use crate::redis::batch::{Command, split};
use crate::{request::Cell, test_prelude::*};

fn request(value: &str) -> TagRequest {
    request_of(value, check(policy(Algorithm::FixedWindow, 9, 60), Hits::ONE))
}

fn pending(value: &str) -> BoxedRequest {
    pending_at(value, None)
}

fn pending_at(value: &str, fixed: Option<Timestamp>) -> BoxedRequest {
    let (sender, _) = oneshot::channel();
    Box::new(PendingRequest::new(request(value), fixed, Waiter::new(sender, Instant::now()), None))
}

fn several(count: usize) -> Vec<BoxedRequest> {
    (0..count).map(|number| pending(&number.to_string())).collect()
}

fn slot_of(pending: &PendingRequest) -> u16 {
    pending.request.cells[0].key.slot()
}

/// The keys of each command, and how many calls it has.
fn sizes(commands: &[Command]) -> Vec<(CommandKeys, usize)> {
    commands.iter().map(|command| (command.keys, command.pending.len())).collect()
}

fn refusal(text: &str) -> SendError {
    let reply = ::redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply");
    let ::redis::Value::ServerError(error) = reply else { panic!("{reply:?}") };
    SendError::Failed(RedisError::from(error))
}

fn connected(keys: CommandKeys) -> AcrossSlots {
    let mut slots = AcrossSlots::new(keys);
    slots.connected();
    slots
}

/// A connection whose server executed the probe.
fn granted(now: Instant) -> AcrossSlots {
    let mut slots = connected(CommandKeys::OneSlot);
    assert!(slots.keys_to_probe(&several(2), now).is_some());
    assert!(slots.probed(Ok(()), now).is_none());
    slots
}

#[test]
fn a_server_without_slots_is_not_probed() {
    let (mut slots, now) = (connected(CommandKeys::NoSlots), Instant::now());
    assert!(slots.keys_to_probe(&several(2), now).is_none());
    let expected = [(CommandKeys::NoSlots, 64), (CommandKeys::NoSlots, 6)];
    assert_eq!(sizes(&split(&mut slots, several(70), now)), expected);
}

/// Calls of a hundred checks, or of as many permits, and releases.
#[test]
fn commands_have_a_bounded_number_of_checks() {
    let (mut slots, now) = (connected(CommandKeys::NoSlots), Instant::now());
    let concurrency = RecordId::alone(Algorithm::Concurrency);
    let [permits, log] =
        [Algorithm::Concurrency, Algorithm::SlidingWindowLog].map(|algorithm| policy(algorithm, 1_000, 60));
    let lease = LeaseId::random();
    let amount = NonZeroU64::new(64).expect("not 0");
    let mut sizes_of = |change: &dyn Fn(&mut Cell)| {
        let mut pending = several(70);
        pending.iter_mut().for_each(|pending| change(&mut pending.request.cells[0]));
        let commands = split(&mut slots, pending, now);
        commands.iter().map(|command| command.pending.len()).take(2).collect::<Vec<_>>()
    };
    let with = |policy, hits| move |cell: &mut Cell| cell.checks[0] = Check::own(concurrency, policy, hits);
    assert_eq!(sizes_of(&|cell| cell.checks = smallvec![cell.checks[0]; 64]), [3, 3]);
    assert_eq!(sizes_of(&|cell| cell.checks = smallvec![cell.checks[0]; 1_000]), [1, 1]);
    assert_eq!(sizes_of(&with(permits, Hits::Acquire { amount, lease })), [3, 3]);
    assert_eq!(sizes_of(&with(permits, Hits::Release(lease))), [64, 6]);
    assert_eq!(sizes_of(&with(log, Hits::charge(64))), [48, 22]);
    assert_eq!(sizes_of(&|cell| cell.checks = smallvec![cell.checks[0]; 3]), [64, 6]);
}

fn keys<'p>(pending: impl IntoIterator<Item = &'p BoxedRequest>) -> Vec<CellKey> {
    pending.into_iter().map(|pending| pending.request.cells[0].key.clone()).collect()
}

fn order(commands: &[Command]) -> Vec<CellKey> {
    keys(commands.iter().flat_map(|command| &command.pending))
}

/// Calls with two kinds of checks in turn, and their keys.
fn mixed() -> (Vec<BoxedRequest>, Vec<CellKey>) {
    let mut mixed = several(6);
    for pending in mixed.iter_mut().step_by(2) {
        pending.request.cells[0].checks[0].record = RecordId::numbered(7, Algorithm::FixedWindow);
    }
    let keys = keys(&mixed);
    (mixed, keys)
}

#[test]
fn calls_with_the_same_checks_follow_each_other_in_order_of_arrival() {
    let (mixed, keys) = mixed();
    let order = order(&split(&mut AcrossSlots::new(CommandKeys::NoSlots), mixed, Instant::now()));
    let [evens, odds] = [0, 1].map(|first| keys.iter().skip(first).step_by(2).cloned().collect::<Vec<_>>());
    assert!(order == [odds.clone(), evens.clone()].concat() || order == [evens, odds].concat(), "{order:?}");
}

#[test]
fn calls_with_a_command_each_keep_their_order() {
    let (mixed, keys) = mixed();
    assert_eq!(order(&split(&mut AcrossSlots::new(CommandKeys::OneSlot), mixed, Instant::now())), keys);
}

#[test]
fn commands_have_one_slot_until_a_probe_of_two_slots_succeeds() {
    let (mut slots, now) = (connected(CommandKeys::OneSlot), Instant::now());
    assert_eq!(sizes(&split(&mut slots, several(3), now)), [(CommandKeys::OneSlot, 1); 3]);
    let same = || vec![pending("a"), pending("a")];
    assert!(slots.keys_to_probe(&same(), now).is_none());
    let [first, second] = slots.keys_to_probe(&several(3), now).expect("two slots");
    assert_ne!(first.slot(), second.slot());
    assert!(slots.keys_to_probe(&several(3), now).is_none(), "one probe at a time");
    assert_eq!(sizes(&split(&mut slots, several(3), now)), [(CommandKeys::OneSlot, 1); 3]);
    assert!(slots.probed(Ok(()), now).is_none());
    let expected = [(CommandKeys::AnySlotOfNode, 64), (CommandKeys::AnySlotOfNode, 6)];
    assert_eq!(sizes(&split(&mut slots, several(70), now)), expected);
    // Another connection may lead to another server.
    slots.connected();
    assert_eq!(sizes(&split(&mut slots, several(2), now)), [(CommandKeys::OneSlot, 1); 2]);
}

#[test]
fn a_call_alone_and_calls_of_different_clocks_have_commands_of_their_own() {
    let now = Instant::now();
    let mut slots = granted(now);
    let fixed = |value| pending_at(value, Some(Timestamp::from_micros(7)));
    let parts = [several(2), vec![fixed("a"), fixed("b"), fixed("c")], several(1)];
    let mixed = parts.into_iter().flatten().collect();
    let across = CommandKeys::AnySlotOfNode;
    assert_eq!(sizes(&split(&mut slots, mixed, now)), [(across, 2), (across, 3), (CommandKeys::OneSlot, 1)]);
}

#[test]
fn a_refused_probe_is_repeated_after_longer_and_longer_pauses() {
    let (mut slots, mut now) = (connected(CommandKeys::OneSlot), Instant::now());
    let mut pauses = Vec::new();
    for attempt in 0..9 {
        assert!(slots.keys_to_probe(&several(2), now).is_some());
        let logged = slots.probed(Err(refusal("ERR Error compiling script")), now);
        assert_eq!(logged.is_some(), attempt == 0, "logged once");
        let mut seconds = 0;
        while !slots.is_due(now) {
            now += INITIAL_PAUSE;
            seconds += 1;
        }
        pauses.push(seconds);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
}

#[test]
fn calls_of_an_unreached_slot_are_alone_for_a_while() {
    let now = Instant::now();
    let mut slots = granted(now);
    let unreached = slot_of(&several(3)[1]);
    slots.decided(2, &[unreached], now);
    let commands = split(&mut slots, several(3), now);
    assert_eq!(sizes(&commands), [(CommandKeys::AnySlotOfNode, 2), (CommandKeys::OneSlot, 1)]);
    assert_eq!(slot_of(&commands[1].pending[0]), unreached);
    assert_eq!(sizes(&split(&mut slots, several(3), now + APART_TIME)), [(CommandKeys::AnySlotOfNode, 3)]);
    let many: Vec<u16> = (0..2 * MAX_APART as u16).collect();
    slots.decided(1_000, &many, now);
    assert_eq!(slots.apart.len(), MAX_APART);
}

#[test]
fn a_server_that_reaches_too_few_slots_gets_commands_of_one_slot() {
    let now = Instant::now();
    let mut slots = granted(now);
    // One of eight: a part of the slots moves.
    (0..1_000).for_each(|_| slots.decided(56, &[1; 8], now));
    assert!(slots.is_granted());
    // One of two: any node may get a command.
    (0..20).for_each(|_| slots.decided(32, &[1; 32], now));
    assert!(!slots.is_granted());
    assert_eq!(sizes(&split(&mut slots, several(2), now + APART_TIME)), [(CommandKeys::OneSlot, 1); 2]);
    let probed_after = |slots: &mut AcrossSlots, now: Instant, seconds: u32| {
        let at = now + INITIAL_PAUSE * seconds;
        assert!(slots.keys_to_probe(&several(2), at - Duration::from_millis(1)).is_none());
        assert!(slots.keys_to_probe(&several(2), at).is_some());
        slots.probed(Ok(()), at);
        at
    };
    let again = probed_after(&mut slots, now, 1);
    slots.decided(0, &[1; 512], again);
    let third = probed_after(&mut slots, again, 2);
    // Pauses are short again once the server was trusted for long.
    slots.decided(TRUSTED_CALLS + 1, &[], third);
    slots.decided(0, &[1; 512], third);
    probed_after(&mut slots, third, 1);
}

#[test]
fn only_errors_that_precede_every_write_lead_to_another_attempt() {
    for (text, expected) in [
        ("ERR Script attempted to access a non local key in a cluster node script: 0a, on @x:1.", true),
        ("ERR Script attempted to execute a command while the cluster is down", true),
        ("ERR Script attempted to access keys that do not hash to the same slot", true),
        ("ERR half written: ERR Script attempted to access a non local key in a cluster node", false),
        ("ERR Script attempted to access nonexistent global variable 'x'", false),
        ("ERR Error compiling script", false),
        ("WRONGTYPE Script attempted", false),
        ("NOPERM no permission", false),
    ] {
        assert_eq!(is_unreached(&refusal(text)), expected, "{text}");
    }
}
