//! The list of active bans in Redis: a sorted set of ids by their ends, the watched ones of it, and a hash of records.

use tollgate_store::redis::Reply;

use super::{
    Redis,
    script_client::{
        ATTEMPT_TIMEOUT, ControlResult, Operation, bytes, list, malformed, number, read_json, text, to_json,
    },
};
use crate::{
    BanCounts, BanFilter, BanPage, BanPosition, ListedBan,
    bans::PageBuilder,
    bounds::{MAX_BAN_PAGE, MAX_BANS},
    stored::token,
};

fn operation(redis: &Redis, name: &'static str) -> Operation {
    Operation::new(name).on(redis.client.keys.bans().iter().cloned())
}

/// Adds bans, which replace earlier ones of their counters.
pub(crate) async fn record(redis: &Redis, bans: &[ListedBan]) -> ControlResult<BanCounts> {
    let mut arguments = vec![MAX_BANS.to_string().into_bytes()];
    for ban in bans {
        let end = ban.ends_at_ms.to_string().into_bytes();
        arguments.extend([ban.id.clone().into_bytes(), end, ban.mode.name().into(), to_json(ban)?]);
    }
    // Repeated by the caller, with what began since.
    let reply =
        redis.client.run_once(&operation(redis, "record_bans").with(arguments), ATTEMPT_TIMEOUT).await?;
    let [enforce, watch] = list(reply)?;
    Ok(BanCounts { enforce: count(&enforce)?, watch: count(&watch)? })
}

fn count(reply: &Reply) -> ControlResult<u64> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).map_err(malformed),
        _ => Err(malformed("no number")),
    }
}

/// Returns bans behind a position, read in chunks so that no call takes long.
pub(crate) async fn page(
    redis: &Redis,
    filter: BanFilter<'_>,
    after: Option<BanPosition>,
    limit: usize,
) -> ControlResult<BanPage> {
    let mut page = PageBuilder::new(filter, after, limit);
    loop {
        let BanPosition { ends_at_ms, id } =
            page.position().cloned().unwrap_or(BanPosition { ends_at_ms: u64::MAX, id: String::new() });
        let arguments = [ends_at_ms.to_string(), id, MAX_BAN_PAGE.to_string()].map(String::into_bytes);
        let reply = redis.client.run(&operation(redis, "bans").with(arguments)).await?;
        let Reply::List(elements) = reply else { return Err(malformed("no list")) };
        let is_last = elements.len() < MAX_BAN_PAGE;
        for element in elements {
            let [id, end, record] = list(element)?;
            let position = BanPosition { ends_at_ms: number(&bytes(end)?)?, id: text(bytes(id)?)? };
            // An unreadable record of another release does not hide the others.
            let ban = bytes(record).ok().and_then(|record| read_json(&record).ok());
            if !page.push(position, ban) {
                return Ok(page.part());
            }
        }
        if is_last {
            return Ok(page.last());
        }
    }
}

pub(crate) async fn get(redis: &Redis, id: &str) -> ControlResult<Option<ListedBan>> {
    match redis.client.run(&operation(redis, "ban").with([id.as_bytes().to_vec()])).await? {
        Reply::Nil => Ok(None),
        reply => read_json(&bytes(reply)?).map(Some),
    }
}

/// Removes a ban; whether it existed.
pub(crate) async fn remove(redis: &Redis, id: &str) -> ControlResult<bool> {
    let arguments = [id.as_bytes().to_vec(), token().into_bytes(), redis.earlier_overrides().to_vec()];
    let reply = redis.client.run(&operation(redis, "remove_ban").with(arguments)).await?;
    Ok(count(&reply)? > 0)
}
