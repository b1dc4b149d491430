//! Rule versions and records of the writing region.

use tollgate_control::{Control, ReadRules, Reading, RecordsHead, RecordsPage, RulesCopy};
use tollgate_proto::tollgate::region::v1::{
    ReadRecordsRequest, ReadRulesRequest, regions_client::RegionsClient,
};
use tollgate_runtime::redact::with_sources;
use tonic::{Response, Status};

use crate::Regions;

/// Maximum length of a reply in bytes: the largest version.
const MAX_REPLY_BYTES: usize = 24 << 20;

/// Answers a region that copies.
pub(super) async fn answer(
    regions: &Regions,
    control: &Control,
    request: ReadRulesRequest,
) -> Result<RulesCopy, Status> {
    require_writing(regions)?;
    control.rules_after(&request.version_token).await.map_err(|error| Status::unavailable(error.to_string()))
}

/// Answers a region that copies records.
pub(super) async fn answer_records(
    regions: &Regions,
    control: &Control,
    request: ReadRecordsRequest,
) -> Result<RecordsPage, Status> {
    require_writing(regions)?;
    let known = request.known.unwrap_or_default();
    let page = control.records_after(&known, request.is_continued).await;
    page.map_err(|error| Status::unavailable(error.to_string()))
}

fn require_writing(regions: &Regions) -> Result<(), Status> {
    if regions.is_writing() {
        return Ok(());
    }
    Err(Status::failed_precondition("this region does not write the rules; expected the same region table"))
}

impl ReadRules for Regions {
    fn writing_region(&self) -> Option<String> {
        self.writing()
    }

    fn read<'r>(&'r self, region: &'r str, known_version: &'r str) -> Reading<'r> {
        Box::pin(async move {
            let channel = self.channel(region)?;
            let (sender, version_token) = (Some(self.announcement()), known_version.to_owned());
            let request = ReadRulesRequest { sender, version_token };
            let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
            let reply = client.read_rules(request).await;
            reply.map(Response::into_inner).map_err(|status| with_sources(&status))
        })
    }

    fn read_records<'r>(
        &'r self,
        region: &'r str,
        known: &'r RecordsHead,
        is_continued: bool,
    ) -> Reading<'r, RecordsPage> {
        Box::pin(async move {
            let channel = self.channel(region)?;
            let (sender, known) = (Some(self.announcement()), Some(known.clone()));
            let request = ReadRecordsRequest { sender, known, is_continued };
            let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
            let reply = client.read_records(request).await;
            reply.map(Response::into_inner).map_err(|status| with_sources(&status))
        })
    }
}
