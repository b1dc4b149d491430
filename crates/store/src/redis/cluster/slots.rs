//! Query of one node for the slots, by `CLUSTER SLOTS`.

use std::{collections::HashSet, time::Duration};

use ::redis::{Value, cmd};
use tokio::time::timeout;
use tollgate_runtime::redact;

use super::SharedCluster;
use crate::redis::connect::{named, text};
use crate::redis::{connection::Connection, error::SendError, url::Address};

/// Number of slots of a cluster.
pub(super) const SLOTS: usize = 16_384;

/// Maximum number of ranges in a reply. Each slot alone would be as many.
const MAX_RANGES: usize = SLOTS;

/// Maximum number of masters in a reply, the recommended maximum of a cluster. Each worker connects to each of them.
pub(super) const MAX_MASTERS: usize = 1_000;

/// Time limit of a reply, a new connection to the node included.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Consecutive slots with the same master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Address,
}

/// Queries a node, over its connection if there is one.
///
/// # Errors
/// The reason why there is no usable reply, for logs.
pub(super) async fn query_slots(
    shared: &SharedCluster,
    node: Address,
    connection: Option<Connection>,
) -> Result<Vec<Range>, String> {
    let reply = match connection {
        Some(connection) => read_reply(&node, connection.send(cmd("CLUSTER").arg("SLOTS"))).await,
        None => read_reply(&node, query_on_new_connection(shared, &node)).await,
    };
    reply.map_err(|error| format!("{node}: {}", redact::bounded(&error)))
}

/// Queries over a new connection.
async fn query_on_new_connection(shared: &SharedCluster, node: &Address) -> Result<Value, SendError> {
    let mut connection = shared.template.connect(node).await.map_err(SendError::Failed)?;
    let reply = connection.send_packed_command(cmd("CLUSTER").arg("SLOTS")).await;
    reply.and_then(Value::extract_error).map_err(SendError::Failed)
}

/// Reads the reply of a node. A reply without slots is that of a node that left the cluster or never joined it.
async fn read_reply(
    node: &Address,
    reply: impl Future<Output = Result<Value, SendError>>,
) -> Result<Vec<Range>, String> {
    match timeout(QUERY_TIMEOUT, reply).await {
        Ok(Ok(reply)) => match parse(&reply, node) {
            Some(ranges) if ranges.is_empty() => Err("no slots in its reply".into()),
            Some(ranges) => Ok(ranges),
            None => Err("malformed reply".into()),
        },
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {QUERY_TIMEOUT:?}")),
    }
}

/// The ranges in a reply of the node `queried`; `None` for a malformed reply, or one with more ranges or masters than a
/// cluster has. A malformed range, or one whose master has no known address, is skipped: the others may be right.
pub(super) fn parse(reply: &Value, queried: &Address) -> Option<Vec<Range>> {
    let Value::Array(entries) = reply else { return None };
    if entries.len() > MAX_RANGES {
        return None;
    }
    let ranges: Vec<_> = entries.iter().filter_map(|entry| parse_range(entry, queried)).collect();
    let masters: HashSet<&Address> = ranges.iter().map(|range| &range.master).collect();
    (masters.len() <= MAX_MASTERS).then_some(ranges)
}

/// Number of distinct slots in the ranges, which may overlap.
#[allow(clippy::arithmetic_side_effects)] // Slots are below 16,384.
pub(super) fn count_slots(ranges: &[Range]) -> usize {
    let mut bounds: Vec<(u16, u16)> = ranges.iter().map(|range| (range.first, range.last)).collect();
    bounds.sort_unstable();
    let (mut slots, mut next) = (0_usize, 0_u16);
    for (first, last) in bounds {
        let first = first.max(next);
        let after = last + 1;
        slots += usize::from(after.saturating_sub(first));
        next = next.max(after);
    }
    slots
}

fn parse_range(entry: &Value, queried: &Address) -> Option<Range> {
    let Value::Array(parts) = entry else { return None };
    // Entries after the master are its replicas.
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let is_valid = first <= last && usize::from(last) < SLOTS;
    let master = parse_master(master, queried).filter(|_| is_valid)?;
    Some(Range { first, last, master })
}

fn parse_master(parts: &[Value], queried: &Address) -> Option<Address> {
    let [host, Value::Int(port), rest @ ..] = parts else { return None };
    let host = match host {
        // The node does not announce an address.
        Value::Nil => "",
        host => text(host)?,
    };
    // The node is configured to announce its name and has none; since Redis 7, the metadata may contain its address.
    let host = match rest {
        [_id, Value::Array(pairs), ..] if host == "?" => named(pairs, "ip").unwrap_or(host),
        _ => host,
    };
    Address::from_node(host, u16::try_from(*port).ok()?, queried)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn entry(first: i64, last: i64, host: Value, more: Vec<Value>) -> Value {
        let mut node = vec![host, Value::Int(7000), bulk("id")];
        node.extend(more);
        let replica = Value::Array(vec![bulk("replica"), Value::Int(1), bulk("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(node), replica])
    }

    fn masters(entries: Vec<Value>) -> Option<Vec<String>> {
        let ranges = parse(&Value::Array(entries), &Address::new("queried", 1))?;
        Some(ranges.iter().map(|range| format!("{}-{} {}", range.first, range.last, range.master)).collect())
    }

    #[test]
    fn masters_are_read_in_every_form_that_redis_announces() {
        let ip = Value::Array(vec![bulk("hostname"), bulk("x"), bulk("ip"), bulk("10.0.0.2")]);
        let found = masters(vec![
            entry(0, 1, bulk("10.0.0.1"), vec![]),
            entry(2, 2, bulk(""), vec![]),
            entry(3, 3, Value::Nil, vec![Value::Array(vec![])]),
            entry(4, 5, bulk("::1"), vec![]),
            entry(6, 7, bulk("node.example"), vec![Value::Array(vec![bulk("ip"), bulk("10.0.0.9")])]),
            entry(8, 8, bulk("?"), vec![ip]),
            entry(9, 16_383, bulk("?"), vec![]),
        ]);
        let expected = [
            "0-1 10.0.0.1:7000",
            "2-2 queried:7000",
            "3-3 queried:7000",
            "4-5 [::1]:7000",
            "6-7 node.example:7000",
            "8-8 10.0.0.2:7000",
        ];
        assert_eq!(found.expect("a valid reply"), expected);
    }

    #[test]
    fn malformed_ranges_are_skipped() {
        assert!(parse(&Value::Okay, &Address::new("a", 1)).is_none());
        let valid = || entry(2, 3, bulk("b"), vec![]);
        let no_port = vec![bulk("c"), Value::Int(0), bulk("id")];
        let no_port = Value::Array(vec![Value::Int(0), Value::Int(1), Value::Array(no_port)]);
        let invalid = [(-1, 1), (2, 1), (0, 16_384), (0, 70_000)];
        let invalid = invalid.map(|(first, last)| entry(first, last, bulk("a"), vec![]));
        for other in invalid.into_iter().chain([no_port, Value::Array(vec![Value::Int(0)]), Value::Okay]) {
            assert_eq!(masters(vec![other, valid()]).expect("a valid rest"), ["2-3 b:7000"]);
        }
    }

    #[test]
    fn slots_in_several_ranges_count_once() {
        let count = |bounds: &[(u16, u16)]| {
            let range = |(first, last): &(u16, u16)| Range {
                first: *first,
                last: *last,
                master: Address::new("a", 1),
            };
            count_slots(&bounds.iter().map(range).collect::<Vec<_>>())
        };
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&[(0, 0), (5, 16_383)]), 16_380);
        assert_eq!(count(&[(0, 8_191), (0, 8_191)]), 8_192);
        assert_eq!(count(&[(10, 20), (0, 16), (12, 14), (20, 30)]), 31);
        assert_eq!(count(&[(0, 16_383), (16_383, 16_383)]), SLOTS);
    }

    #[test]
    fn replies_with_more_masters_or_ranges_than_a_cluster_has_are_malformed() {
        let masters = |count: usize| {
            let one =
                |number: usize| entry(number as i64, number as i64, bulk(&format!("h{number}")), vec![]);
            parse(&Value::Array((0..count).map(one).collect()), &Address::new("a", 1))
                .map(|ranges| ranges.len())
        };
        assert_eq!((masters(MAX_MASTERS), masters(MAX_MASTERS + 1)), (Some(MAX_MASTERS), None));
        let ranges = |count: usize| {
            let all = vec![entry(0, 16_383, bulk("h"), vec![]); count];
            parse(&Value::Array(all), &Address::new("a", 1)).map(|ranges| ranges.len())
        };
        assert_eq!((ranges(MAX_RANGES), ranges(MAX_RANGES + 1)), (Some(MAX_RANGES), None));
    }
}
