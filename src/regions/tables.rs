//! The region's tables in its control store: the ones before the active table, for instances that start, and which one all
//! instances have.

use std::{convert::Infallible, time::Duration};

use tokio::time::{sleep, timeout};
use tollgate_control::{Control, ControlError, RulesStatus};

use super::Regions;

/// Interval of comparing the tables with the record.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval until the first comparison.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Time for which a start waits for the record.
const START_TIMEOUT: Duration = Duration::from_secs(2);

impl Regions {
    /// Takes over the record of the region's tables before the first decision. While the store does not respond, the shares
    /// are those of the file.
    pub(crate) async fn settle(&self, control: &Control) {
        let settled = async {
            while let Err(error) = take_over(self, control).await {
                tracing::debug!(%error, "no record of region tables");
                sleep(FIRST_INTERVAL).await;
            }
        };
        if timeout(START_TIMEOUT, settled).await.is_err() {
            tracing::warn!("no record of region tables; shares of the file apply until Redis responds");
        }
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

/// Takes over the record, and replaces it if it lacks a table.
async fn take_over(regions: &Regions, control: &Control) -> Result<(), ControlError> {
    if !control.is_shared() {
        // A restart forgets hits as well as tables.
        regions.take_over("", true);
        return Ok(());
    }
    let record = control.region_tables().await?;
    let is_running = record.is_empty() && !regions.is_settled() && is_running(control, regions).await?;
    if let Some(new) = regions.take_over(&record, is_running) {
        // Replaced by another instance in the meantime, it is taken over again before anything is announced.
        match control.replace_region_tables(&record, new).await? {
            true => Ok(()),
            false => Err(ControlError::Unavailable("the record of region tables changed".into())),
        }
    } else {
        Ok(())
    }
}

/// Whether another instance that shares the store has the table.
async fn is_running(control: &Control, regions: &Regions) -> Result<bool, ControlError> {
    let (instances, generation) = (control.instances().await?, regions.generation());
    let has_it = |known: Option<u64>| known == Some(generation);
    let mut others = instances.iter().filter(|instance| *instance.id != *control.instance());
    Ok(others.any(|instance| has_it(instance.region_generation)))
}

/// Whether every instance that shares the store has this generation, this one included.
async fn have_all(control: &Control, generation: u64) -> bool {
    if !control.is_shared() {
        return true;
    }
    let Ok(instances) = control.instances().await else { return false };
    let is_own = |id: &str| id == control.instance();
    let has_it = |known: Option<u64>| known == Some(generation);
    instances.iter().any(|instance| is_own(&instance.id))
        && instances.iter().all(|instance| has_it(instance.region_generation))
}
