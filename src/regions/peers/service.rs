//! Service that other regions call.

use std::{sync::Arc, time::Duration};

use tollgate_control::Control;
use tollgate_runtime::log_budget::LogBudget;
use tonic::{Request, Response, Status, async_trait};

use super::{port::PeerNames, rules};
use crate::{
    proto::tollgate::region::v1::{
        Announcement, ExchangeReply, ExchangeRequest, ReadRulesReply, ReadRulesRequest, regions_server,
    },
    regions::{Regions, metrics},
};

/// Reason of a refused message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::regions) enum Refusal {
    /// The message lacks its sender.
    Malformed,
    /// The sender is not another region of the table.
    UnknownRegion,
    /// The certificate is not one of the sender's region.
    Certificate,
    /// The sender exceeds the bounds of messages.
    Flood,
}

impl Refusal {
    /// Every reason.
    pub(in crate::regions) const ALL: [Self; 4] =
        [Self::Malformed, Self::UnknownRegion, Self::Certificate, Self::Flood];

    /// Label in metrics.
    pub(in crate::regions) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownRegion => "unknown_region",
            Self::Certificate => "certificate",
            Self::Flood => "flood",
        }
    }

    fn status(self) -> Status {
        match self {
            Self::Malformed => Status::invalid_argument("no sender; expected an announcement"),
            Self::UnknownRegion => {
                Status::permission_denied("not another region of the table; expected a known one")
            }
            Self::Certificate => {
                Status::permission_denied("not a certificate of the region; expected its certificate_name")
            }
            Self::Flood => Status::resource_exhausted("too many messages; expected fewer"),
        }
    }
}

/// Lines logged at once about refused messages, and the time after which there is another one.
const REFUSALS_LOGGED: u32 = 4;
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

static REFUSAL_LOG: LogBudget = LogBudget::new(REFUSALS_LOGGED, REFUSAL_LOG_INTERVAL);

/// Answers the messages of other regions.
#[derive(Clone, Debug)]
pub(super) struct RegionsService {
    regions: Regions,
    control: Control,
}

impl RegionsService {
    pub(super) const fn new(regions: Regions, control: Control) -> Self {
        Self { regions, control }
    }

    /// The announcement of a message whose sender has a certificate of its region.
    fn sender<T>(
        &self,
        request: &Request<T>,
        sender: Option<&Announcement>,
    ) -> Result<Announcement, Refusal> {
        let names = request.extensions().get::<PeerNames>().ok_or(Refusal::Certificate)?;
        let sender = sender.ok_or(Refusal::Malformed)?;
        let entry = self.regions.other(&sender.region).ok_or(Refusal::UnknownRegion)?;
        if !names.contain(&entry.certificate_name) {
            return Err(Refusal::Certificate);
        }
        if !self.regions.admits_message(&sender.region) {
            return Err(Refusal::Flood);
        }
        Ok(sender.clone())
    }
}

#[async_trait]
impl regions_server::Regions for RegionsService {
    async fn exchange(&self, request: Request<ExchangeRequest>) -> Result<Response<ExchangeReply>, Status> {
        let sender = self.sender(&request, request.get_ref().sender.as_ref()).map_err(refused)?;
        self.regions.announced(&sender);
        Ok(Response::new(ExchangeReply { sender: Some(self.regions.announcement()) }))
    }

    async fn read_rules(
        &self,
        request: Request<ReadRulesRequest>,
    ) -> Result<Response<ReadRulesReply>, Status> {
        let sender = self.sender(&request, request.get_ref().sender.as_ref()).map_err(refused)?;
        self.regions.announced(&sender);
        rules::answer(&self.regions, &self.control, request.into_inner()).await.map(Response::new)
    }
}

/// Counts and logs a refused message.
fn refused(refusal: Refusal) -> Status {
    metrics::refused(refusal);
    if let Some(suppressed) = REFUSAL_LOG.take() {
        tracing::warn!(reason = refusal.name(), suppressed, "message between regions refused");
    }
    refusal.status()
}

/// Names of the certificate of a connection's client.
impl PeerNames {
    fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|known| **known == *name)
    }
}

/// The shared names of a certificate.
pub(super) type Names = Arc<[Box<str>]>;
