//! The list of active bans in Redis: a sorted set of ids by their ends, the watched ones of it, and a hash of records.

use tollgate_store::redis::Reply;

use super::Redis;
use super::reply::{argument, bytes, count, items, list, number, read_json, text, to_json};
use super::script_client::{ATTEMPT_TIMEOUT, Operation};
use crate::bounds::{MAX_BAN_PAGE, MAX_BANS};
use crate::{BanCounts, BanFilter, BanPage, BanPosition, ControlResult, ListedBan, listed_bans::PageBuilder};

fn on_bans(redis: &Redis, name: &'static str) -> Operation {
    Operation::new(name).on(redis.client.keys.bans.iter().cloned())
}

pub(crate) async fn record_bans(redis: &Redis, bans: &[ListedBan]) -> ControlResult<BanCounts> {
    let mut arguments = vec![argument(MAX_BANS)];
    for ban in bans {
        let (id, mode) = (ban.id.as_str().into(), ban.mode.name().into());
        arguments.extend([id, argument(ban.ends_at_ms), mode, to_json(ban)?]);
    }
    let operation = on_bans(redis, "record_bans").with(arguments);
    // Repeated by the caller, with what began since.
    let [enforce, watch] = list(redis.client.run_once(&operation, ATTEMPT_TIMEOUT).await?)?;
    Ok(BanCounts { enforce: count(&enforce)?, watch: count(&watch)? })
}

/// Returns bans behind a position, read in chunks so that no call takes long.
pub(crate) async fn bans(
    redis: &Redis,
    filter: BanFilter<'_>,
    after: Option<BanPosition>,
    limit: usize,
) -> ControlResult<BanPage> {
    let mut page = PageBuilder::new(filter, after, limit);
    loop {
        let BanPosition { ends_at_ms, id } =
            page.page.next.clone().unwrap_or(BanPosition { ends_at_ms: u64::MAX, id: String::new() });
        let arguments = [argument(ends_at_ms), id.into(), argument(MAX_BAN_PAGE)];
        let elements = items(redis.client.run(&on_bans(redis, "bans").with(arguments)).await?)?;
        let is_last = elements.len() < MAX_BAN_PAGE;
        for element in elements {
            let [id, end, record] = list(element)?;
            let position = BanPosition { ends_at_ms: number(end)?, id: text(id)? };
            // An unreadable record of another release does not hide the others.
            let ban = bytes(record).ok().and_then(|record| read_json(&record).ok());
            if !page.push(position, ban) {
                return Ok(page.page);
            }
        }
        if is_last {
            return Ok(page.last());
        }
    }
}

pub(crate) async fn ban(redis: &Redis, id: &str) -> ControlResult<Option<ListedBan>> {
    match redis.client.run(&on_bans(redis, "ban").with([id.into()])).await? {
        Reply::Nil => Ok(None),
        reply => read_json(&bytes(reply)?).map(Some),
    }
}

pub(crate) async fn remove_ban(redis: &Redis, id: &str) -> ControlResult<bool> {
    let reply = redis.client.run(&on_bans(redis, "remove_ban").with([id.into()])).await?;
    Ok(count(&reply)? > 0)
}
