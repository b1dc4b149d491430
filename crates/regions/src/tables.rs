//! The region's tables in its control store: the ones before the active table and the primary region, for instances that
//! start, and which table all instances have.

use std::{convert::Infallible, time::Duration};

use tokio::time::{sleep, timeout};
use tollgate_control::{Control, ControlError, RegionRecord, RulesStatus};

use super::Regions;

/// Interval of comparing the tables with the record.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval until the first comparison.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Time for which a start waits for the record.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes over the records of the region before the first decision. While the store does not respond, the shares are those of
/// the file.
pub async fn settle(regions: &Regions, control: &Control) {
    let mut last = None;
    let settled = async {
        while let Err(error) = take_over(regions, control).await {
            last = Some(error.to_string());
            sleep(FIRST_INTERVAL).await;
        }
    };
    if timeout(START_TIMEOUT, settled).await.is_err() {
        let error = last.unwrap_or_else(|| "no response".to_owned());
        tracing::warn!(%error, "cannot read region tables; using the file");
    }
}

/// Keeps the record, states the own generation with each heartbeat, and announces it once every instance has it.
pub(super) async fn watch(regions: Regions, control: Control, status: RulesStatus) -> Infallible {
    loop {
        let generation = regions.generation();
        let is_recorded = take_over(&regions, &control).await.is_ok();
        // An instance that starts from here on finds the table in the record.
        if is_recorded && status.now().region_generation != Some(generation) {
            status.update(|state| state.region_generation = Some(generation));
        } else if is_recorded && !regions.has_announced(generation) && have_all(&control, generation).await {
            regions.announce(generation);
        }
        sleep(if regions.is_settled() { INTERVAL } else { FIRST_INTERVAL }).await;
    }
}

/// Takes over the records, and replaces those that lack a table.
async fn take_over(regions: &Regions, control: &Control) -> Result<(), ControlError> {
    if !control.is_shared() {
        // A restart forgets hits as well as tables.
        if !regions.is_settled() {
            regions.has_no_records();
        }
        regions.take_over("", true);
        return Ok(());
    }
    // First, since the other one is what makes the start complete.
    let record = control.region_record(RegionRecord::Primary).await?;
    let new = regions.take_over_primary(&record);
    replace(control, RegionRecord::Primary, &record, new).await?;
    let record = control.region_record(RegionRecord::Tables).await?;
    let is_running = record.is_empty() && !regions.is_settled() && is_running(control, regions).await?;
    let new = regions.take_over(&record, is_running);
    replace(control, RegionRecord::Tables, &record, new).await
}

/// Replaces a record. One that another instance has replaced meanwhile is taken over again before anything is announced.
async fn replace(
    control: &Control,
    record: RegionRecord,
    from: &str,
    to: Option<String>,
) -> Result<(), ControlError> {
    let Some(to) = to else { return Ok(()) };
    if control.replace_region_record(record, from, to).await? {
        return Ok(());
    }
    Err(ControlError::Unavailable("the record of region tables changed".into()))
}

/// Whether another instance that shares the store has the table.
async fn is_running(control: &Control, regions: &Regions) -> Result<bool, ControlError> {
    let (instances, generation) = (control.instances().await?, regions.generation());
    let mut others = instances.iter().filter(|instance| *instance.id != *control.instance());
    Ok(others.any(|instance| instance.region_generation == Some(generation)))
}

/// Whether every instance that shares the store has this generation, this one included.
async fn have_all(control: &Control, generation: u64) -> bool {
    if !control.is_shared() {
        return true;
    }
    let Ok(instances) = control.instances().await else { return false };
    instances.iter().any(|instance| *instance.id == *control.instance())
        && instances.iter().all(|instance| instance.region_generation == Some(generation))
}
