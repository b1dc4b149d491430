//! Generation whose shares no instance of the own region exceeds.

use std::{convert::Infallible, time::Duration};

use tokio::time::sleep;
use tollgate_control::{Control, RulesStatus};

use crate::regions::Regions;

/// Interval of reading which tables the instances have, while a change is not announced.
const INTERVAL: Duration = Duration::from_secs(1);

/// States the own generation with each heartbeat, and announces it once every instance has it.
pub(super) async fn watch(regions: Regions, control: Control, status: RulesStatus) -> Infallible {
    loop {
        let generation = regions.generation();
        if status.now().region_generation != Some(generation) {
            status.update(|state| state.region_generation = Some(generation));
        } else if !regions.has_announced(generation) && have_all(&control, generation).await {
            regions.announce(generation);
        }
        sleep(INTERVAL).await;
    }
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
