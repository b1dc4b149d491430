//! Service that other regions call.

use std::{sync::Arc, time::Duration};

use tollgate_control::Control;
use tollgate_runtime::log_budget::LogBudget;
use tonic::{Request, Response, Status, async_trait};

use super::{port::PeerNames, rules};
use crate::{
    proto::tollgate::region::v1::{
        Announcement, CounterLoanRequest, CounterReply, DecideReply, DecideRequest, ExchangeReply,
        ExchangeRequest, ReadOverridesReply, ReadOverridesRequest, ReadRulesReply, ReadRulesRequest,
        counter_reply::Result as Outcome, regions_server,
    },
    regions::{
        Regions,
        loans::{Lender, wire::refused},
        metrics,
        primary::{MAX_CALLS, PrimaryServer},
    },
};
use futures_util::future::join_all;

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

    /// Counts and logs a refused message, and returns its status.
    fn recorded(self) -> Status {
        metrics::refused(self);
        if let Some(suppressed) = REFUSAL_LOG.take() {
            tracing::warn!(reason = self.name(), suppressed, "message between regions refused");
        }
        self.status()
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

/// Maximum number of loan requests in a message, and of those that are answered at once.
pub(super) const MAX_LOAN_REQUESTS: usize = 256;
const MAX_CONCURRENT_LOAN_REQUESTS: usize = 32;

/// Lines logged at once about refused messages, and the time after which there is another one.
const REFUSALS_LOGGED: u32 = 4;
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

static REFUSAL_LOG: LogBudget = LogBudget::new(REFUSALS_LOGGED, REFUSAL_LOG_INTERVAL);

/// Answers the messages of other regions.
#[derive(Clone, Debug)]
pub(super) struct RegionsService {
    regions: Regions,
    control: Control,
    lender: Lender,
    primary: PrimaryServer,
}

impl RegionsService {
    pub(super) fn new(
        regions: Regions,
        control: Control,
        (lender, primary): (Lender, PrimaryServer),
    ) -> Self {
        Self { regions, control, lender, primary }
    }

    /// A reply to each loan request, in their order.
    async fn answers(&self, sender: &Announcement, requests: &[CounterLoanRequest]) -> Vec<CounterReply> {
        if !self.regions.has_same_table(sender) {
            return requests.iter().map(|_| refused(Outcome::Generation)).collect();
        }
        let mut replies = Vec::with_capacity(requests.len());
        for some in requests.chunks(MAX_CONCURRENT_LOAN_REQUESTS) {
            let mut answers = Vec::with_capacity(some.len());
            for request in some {
                answers.push(self.lender.answer(&sender.region, request));
            }
            replies.extend(join_all(answers).await);
        }
        replies
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
        let loan_requests = &request.get_ref().loan_requests;
        let sender = self.sender(&request, request.get_ref().sender.as_ref());
        let sender = sender.and_then(|sender| {
            if loan_requests.len() > MAX_LOAN_REQUESTS { Err(Refusal::Flood) } else { Ok(sender) }
        });
        let sender = sender.map_err(Refusal::recorded)?;
        self.regions.announced(&sender);
        let replies = self.answers(&sender, loan_requests).await;
        Ok(Response::new(ExchangeReply { sender: Some(self.regions.announcement()), replies }))
    }

    async fn read_rules(
        &self,
        request: Request<ReadRulesRequest>,
    ) -> Result<Response<ReadRulesReply>, Status> {
        let sender = self.sender(&request, request.get_ref().sender.as_ref());
        let sender = sender.map_err(Refusal::recorded)?;
        self.regions.announced(&sender);
        rules::answer(&self.regions, &self.control, request.into_inner()).await.map(Response::new)
    }

    async fn read_overrides(
        &self,
        request: Request<ReadOverridesRequest>,
    ) -> Result<Response<ReadOverridesReply>, Status> {
        let sender = self.sender(&request, request.get_ref().sender.as_ref());
        let sender = sender.map_err(Refusal::recorded)?;
        self.regions.announced(&sender);
        rules::answer_overrides(&self.regions, &self.control, request.into_inner()).await.map(Response::new)
    }

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<DecideReply>, Status> {
        let calls = &request.get_ref().calls;
        let sender = self.sender(&request, request.get_ref().sender.as_ref());
        let sender =
            sender.and_then(|sender| if calls.len() > MAX_CALLS { Err(Refusal::Flood) } else { Ok(sender) });
        let sender = sender.map_err(Refusal::recorded)?;
        self.regions.announced(&sender);
        let replies = self.primary.answer(&sender.region, calls).await;
        Ok(Response::new(DecideReply { replies }))
    }
}

/// Names of the certificate of a connection's client.
impl PeerNames {
    fn contain(&self, name: &str) -> bool {
        self.0.iter().any(|known| **known == *name)
    }
}

/// The shared names of a certificate.
pub(super) type Names = Arc<[Box<str>]>;
