//! Versions, lists and switches in the Redis that instances share.
//!
//! Each operation is one run of the script in `lua/control.lua`, on keys of one hash tag. Whatever an outage or a failover
//! leaves unknown is asked again: the script knows by its token what it has done.

mod keys;
mod runtime;
mod script_client;
mod versions;

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use self::{
    keys::Keys,
    script_client::{Answer, BEAT, Operation, bytes, list, text, to_json},
};
use super::{
    Instance,
    stored::{Content, Current, Enforced, Head, Reach},
};
use tollgate_store::{
    RedisStore, StoreError,
    redis::{RedisSettings, Reply, Script},
};

const SOURCE: &str = include_str!("../../../../lua/control.lua");

/// Between two attempts to listen whose settings make no sense, which they did at the start.
const LONG: Duration = Duration::from_secs(60);

/// A handle on the servers.
#[derive(Debug)]
pub(super) struct Redis {
    store: RedisStore,
    settings: RedisSettings,
    keys: Keys,
    script: Script,
    /// Whether this instance enforces lists or switches, so that a store that never had any has lost them.
    has_lists: AtomicBool,
}

impl Redis {
    /// Connects in the background, by tasks on the current runtime.
    pub(super) fn open(settings: &RedisSettings) -> Result<Self, StoreError> {
        let store = RedisStore::open(settings)?;
        let (keys, script) = (Keys::new(&settings.key_prefix), Script::new(SOURCE));
        Ok(Self { store, settings: settings.clone(), keys, script, has_lists: AtomicBool::new(false) })
    }

    /// Hears of changes that others make.
    pub(super) async fn listen(&self, news: &Notify) -> Infallible {
        loop {
            let heard = || news.notify_one();
            match self.store.subscribe(&self.settings, self.keys.channel(), heard).await {
                Ok(never) => match never {},
                Err(error) => {
                    tracing::error!("changes of rules and lists are polled: {error}");
                    sleep(LONG).await;
                }
            }
        }
    }

    pub(super) async fn beat(&self, instance: &Instance, enforced: Enforced) -> Answer<Head> {
        self.has_lists.store(!enforced.runtime_token.is_empty(), Ordering::Relaxed);
        let key = enforced.version.as_ref().map(|version| self.keys.version(version.number));
        let (number, token) =
            enforced.version.map(|version| (version.number.to_string(), version.token)).unwrap_or_default();
        let operation = Operation::new("beat").on(key).with([
            instance.id.as_bytes().to_vec(),
            to_json(instance)?,
            number.into_bytes(),
            token.into_bytes(),
            enforced.runtime_token.into_bytes(),
        ]);
        let [number, token, is_whole, generation, runtime_token, size] =
            list(self.ask_once(&operation, BEAT).await?)?;
        let current = match (number, token) {
            (Reply::Bytes(number), Reply::Bytes(token)) => {
                Some(Current { number: script_client::number(&number)?, token: text(token)? })
            }
            _ => None,
        };
        let content = match is_whole {
            Reply::Integer(1) => Content::There,
            Reply::Integer(_) => Content::Lost,
            _ => Content::Unknown,
        };
        let (generation, size) =
            (script_client::number(&bytes(generation)?)?, script_client::number(&bytes(size)?)?);
        Ok(Head { current, content, size, generation, runtime_token: text(bytes(runtime_token)?)? })
    }

    pub(super) async fn current(&self) -> Answer<Option<u64>> {
        match self.ask(&Operation::new("current")).await? {
            Reply::Nil => Ok(None),
            reply => script_client::number(&bytes(reply)?).map(Some),
        }
    }
}

/// How the script names it.
fn name_of(reach: Reach) -> Vec<u8> {
    match reach {
        Reach::Steady => b"steady".to_vec(),
        Reach::CutOff => b"cut off".to_vec(),
    }
}
