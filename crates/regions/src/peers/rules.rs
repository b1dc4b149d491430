//! Rule versions, lists, switches and overrides of the writing region.

use tollgate_control::{Control, OverridesHead, OverridesPage, ReadRules, Reading, RulesCopy, RulesIdentity};
use tollgate_proto::tollgate::region::v1::{
    ReadOverridesRequest, ReadRulesRequest, regions_client::RegionsClient,
};
use tollgate_runtime::redact::with_sources;
use tonic::{Response, Status};

use crate::Regions;

/// Maximum length of a reply in bytes: the largest version with the longest lists.
const MAX_REPLY_BYTES: usize = 24 << 20;

/// Answers a region that copies.
pub(super) async fn answer(
    regions: &Regions,
    control: &Control,
    request: ReadRulesRequest,
) -> Result<RulesCopy, Status> {
    require_writing(regions)?;
    let known = RulesIdentity { version: request.version_token, lists: request.lists_token };
    control.rules_after(&known).await.map_err(|error| Status::unavailable(error.to_string()))
}

/// Answers a region that copies overrides.
pub(super) async fn answer_overrides(
    regions: &Regions,
    control: &Control,
    request: ReadOverridesRequest,
) -> Result<OverridesPage, Status> {
    require_writing(regions)?;
    let known = request.known.unwrap_or_default();
    let page = control.overrides_after(&known, request.is_continued).await;
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

    fn read<'r>(&'r self, region: &'r str, known: &'r RulesIdentity) -> Reading<'r> {
        Box::pin(async move {
            let channel = self.channel(region)?;
            let request = ReadRulesRequest {
                sender: Some(self.announcement()),
                version_token: known.version.clone(),
                lists_token: known.lists.clone(),
            };
            let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
            let reply = client.read_rules(request).await;
            reply.map(Response::into_inner).map_err(|status| with_sources(&status))
        })
    }

    fn read_overrides<'r>(
        &'r self,
        region: &'r str,
        known: &'r OverridesHead,
        is_continued: bool,
    ) -> Reading<'r, OverridesPage> {
        Box::pin(async move {
            let channel = self.channel(region)?;
            let (sender, known) = (Some(self.announcement()), Some(known.clone()));
            let request = ReadOverridesRequest { sender, known, is_continued };
            let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
            let reply = client.read_overrides(request).await;
            reply.map(Response::into_inner).map_err(|status| with_sources(&status))
        })
    }
}
