//! Traffic of the fleet and its baselines in Redis. `lua/fleet.lua` has the operations.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::script_client::{
    ATTEMPT_TIMEOUT, ControlResult, ScriptClient, bytes, list, malformed, number, read_json, text, to_json,
};
use crate::{Baselines, MinuteTotals, SeriesCounts};

/// Lifetime of the counts of a minute.
const MINUTE_LIFETIME: Duration = Duration::from_secs(600);

/// Lifetime of baselines and of the view after they were stored.
const BASELINES_LIFETIME: Duration = Duration::from_secs(28 * 24 * 3_600);

/// Maximum number of fields of a minute: further series of other instances are not counted.
const MAX_MINUTE_FIELDS: usize = 8_000;

/// Series that are added, and baselines that are stored or read, in one call, so that none keeps the server busy for long.
const COUNTS_OF_CALL: usize = 250;
const BASELINES_OF_CALL: usize = 50;

/// First characters of the fields of a minute: hits and denied hits of a series, and an instance that reported.
const HITS: char = 'h';
const DENIED: char = 'd';
const REPORTER: char = 'r';

/// Fields of the view.
const VIEW: &str = "view";
const INDEX: &str = "index";

/// Traffic of the fleet.
pub(crate) struct SharedTraffic<'c>(pub(super) &'c ScriptClient);

impl SharedTraffic<'_> {
    async fn run(&self, operation: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> ControlResult<Reply> {
        self.0.run_shared(operation, keys, arguments, ATTEMPT_TIMEOUT).await
    }

    fn minute_key(&self, minute: u64) -> Vec<u8> {
        self.0.keys.named(&format!("traffic:{minute}"))
    }

    fn baselines_key(&self) -> Vec<u8> {
        self.0.keys.named("baselines")
    }

    fn view_key(&self) -> Vec<u8> {
        self.0.keys.named("anomalies")
    }

    pub(crate) async fn add_minute(
        &self,
        minute: u64,
        instance: &str,
        counts: &[SeriesCounts],
    ) -> ControlResult<bool> {
        let key = [self.minute_key(minute)];
        let add = async |fields: Vec<(char, &str, u64)>| {
            let head = [minute.to_string().into_bytes(), millis(MINUTE_LIFETIME), decimal(MAX_MINUTE_FIELDS)];
            let fields = fields.into_iter().filter(|(.., amount)| *amount > 0);
            let fields =
                fields.flat_map(|(kind, name, amount)| [field(kind, name), amount.to_string().into_bytes()]);
            let arguments: Vec<_> = head.into_iter().chain(fields).collect();
            // Not repeated: an attempt whose outcome is unknown may have added.
            Ok(self.run("add_minute", &key, &arguments).await? == Reply::Integer(1))
        };
        for part in counts.chunks(COUNTS_OF_CALL) {
            let fields = part.iter().flat_map(|series| {
                [(HITS, &*series.name, series.hits), (DENIED, &*series.name, series.denied)]
            });
            if !add(fields.collect()).await? {
                return Ok(false);
            }
        }
        // Last, so that a minute without it is incomplete.
        add(vec![(REPORTER, instance, 1)]).await
    }

    pub(crate) async fn minute(&self, minute: u64) -> ControlResult<MinuteTotals> {
        let [.., seen] = self.0.keys.fixed();
        let [present, fields] =
            list(self.run("minute", &[self.minute_key(minute), seen.clone()], &[]).await?)?;
        let (Reply::List(present), Reply::List(fields)) = (present, fields) else {
            return Err(malformed("no minute"));
        };
        let mut totals = MinuteTotals::default();
        let mut reporters = Vec::new();
        let mut fields = fields.into_iter();
        while let (Some(name), Some(amount)) = (fields.next(), fields.next()) {
            let (name, amount) = (text(bytes(name)?)?, number(&bytes(amount)?)?);
            let mut rest = name.chars();
            match rest.next() {
                Some(HITS) => totals.counts.entry(rest.as_str().to_owned()).or_default().0 = amount,
                Some(DENIED) => totals.counts.entry(rest.as_str().to_owned()).or_default().1 = amount,
                Some(REPORTER) => reporters.push(rest.as_str().to_owned()),
                // Of another release.
                _ => {}
            }
        }
        for instance in present {
            let instance = text(bytes(instance)?)?;
            totals.missing = totals.missing.saturating_add(usize::from(!reporters.contains(&instance)));
        }
        totals.reporters = reporters.len();
        Ok(totals)
    }

    pub(crate) async fn baselines(&self) -> ControlResult<Baselines> {
        let Some(index) = self.read_view(INDEX).await? else { return Ok(Baselines::new()) };
        let names: Vec<String> = read_json(&index)?;
        let mut baselines = Baselines::new();
        for names in names.chunks(BASELINES_OF_CALL) {
            let arguments: Vec<_> = names.iter().map(|name| name.clone().into_bytes()).collect();
            let Reply::List(records) = self.run("read_fields", &[self.baselines_key()], &arguments).await?
            else {
                return Err(malformed("no baselines"));
            };
            for (name, record) in names.iter().zip(records) {
                if let Reply::Bytes(record) = record {
                    baselines.insert(name.clone(), record);
                }
            }
        }
        Ok(baselines)
    }

    pub(crate) async fn store_baselines(
        &self,
        baselines: &Baselines,
        dropped: &[String],
    ) -> ControlResult<()> {
        let all: Vec<_> = baselines.iter().collect();
        for part in all.chunks(BASELINES_OF_CALL) {
            let fields = part.iter().map(|(name, record)| (name.as_bytes().to_vec(), record.to_vec()));
            self.store_fields(self.baselines_key(), fields).await?;
        }
        let names: Vec<&String> = baselines.keys().collect();
        self.store_fields(self.view_key(), [(INDEX.into(), to_json(&names)?)]).await?;
        for part in dropped.chunks(BASELINES_OF_CALL) {
            let arguments: Vec<_> = part.iter().map(|name| name.clone().into_bytes()).collect();
            self.run("drop_fields", &[self.baselines_key()], &arguments).await?;
        }
        Ok(())
    }

    pub(crate) async fn store_view(&self, view: String) -> ControlResult<()> {
        self.store_fields(self.view_key(), [(VIEW.into(), view.into_bytes())]).await
    }

    pub(crate) async fn view(&self) -> ControlResult<Option<String>> {
        self.read_view(VIEW).await?.map(text).transpose()
    }

    async fn read_view(&self, field: &str) -> ControlResult<Option<Vec<u8>>> {
        let [value] = list(self.run("read_fields", &[self.view_key()], &[field.into()]).await?)?;
        match value {
            Reply::Nil => Ok(None),
            value => bytes(value).map(Some),
        }
    }

    async fn store_fields(
        &self,
        key: Vec<u8>,
        fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> ControlResult<()> {
        let fields = fields.into_iter().flat_map(|(name, value)| [name, value]);
        let arguments: Vec<_> = [millis(BASELINES_LIFETIME)].into_iter().chain(fields).collect();
        self.run("store_fields", &[key], &arguments).await.map(drop)
    }
}

fn field(kind: char, name: &str) -> Vec<u8> {
    format!("{kind}{name}").into_bytes()
}

fn decimal(number: usize) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn millis(time: Duration) -> Vec<u8> {
    time.as_millis().to_string().into_bytes()
}
