//! Operations on the traffic of the fleet.

use super::{Baselines, MAX_SERIES_NAME_BYTES, MinuteTotals, SeriesCounts};
use crate::{Control, ControlError, backend::Backend, redis::SharedTraffic};

impl Control {
    /// Adds the traffic of this instance in a minute, numbered since 1970, and records that it reported the minute. Not for
    /// a second time: after an error, it is not recorded, so that the minute is incomplete. Whether the server's clock
    /// agrees on the minute.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn add_minute(&self, minute: u64, mut counts: Vec<SeriesCounts>) -> Result<bool, ControlError> {
        counts.retain(|series| series.name.len() <= MAX_SERIES_NAME_BYTES);
        match self.traffic() {
            Some(traffic) => traffic.add_minute(minute, self.instance(), &counts).await,
            None => Ok(true),
        }
    }

    /// Returns the sums of a minute over the fleet.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn minute(&self, minute: u64) -> Result<MinuteTotals, ControlError> {
        match self.traffic() {
            Some(traffic) => traffic.minute(minute).await,
            None => Ok(MinuteTotals::default()),
        }
    }

    /// Returns the stored baselines; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn baselines(&self) -> Result<Baselines, ControlError> {
        match self.traffic() {
            Some(traffic) => traffic.baselines().await,
            None => Ok(Baselines::new()),
        }
    }

    /// Stores all baselines, and drops the `dropped` ones. For the holder of a lease.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn store_baselines(
        &self,
        baselines: &Baselines,
        dropped: &[String],
    ) -> Result<(), ControlError> {
        match self.traffic() {
            Some(traffic) => traffic.store_baselines(baselines, dropped).await,
            None => Ok(()),
        }
    }

    /// Stores the view of anomalies. For the holder of a lease.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn store_anomalies(&self, view: String) -> Result<(), ControlError> {
        match self.traffic() {
            Some(traffic) => traffic.store_view(view).await,
            None => Ok(()),
        }
    }

    /// Returns the view of anomalies, if one was stored; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn anomalies(&self) -> Result<Option<String>, ControlError> {
        match self.traffic() {
            Some(traffic) => traffic.view().await,
            None => Ok(None),
        }
    }

    fn traffic(&self) -> Option<SharedTraffic<'_>> {
        match self.backend() {
            Backend::Memory(_) => None,
            Backend::Redis(redis) => Some(redis.traffic()),
        }
    }
}
