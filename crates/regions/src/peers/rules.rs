//! Rule versions and records of the writing region.

use tollgate_control::{ReadRules, Reading, RecordsHead, RecordsPage};
use tollgate_proto::tollgate::region::v1::{
    ReadRecordsRequest, ReadRulesRequest, regions_client::RegionsClient,
};
use tollgate_runtime::redact::with_sources;
use tonic::{Response, Status, transport::Channel};

use crate::Regions;

/// Maximum length of a reply in bytes: the largest version.
const MAX_REPLY_BYTES: usize = 24 << 20;

impl ReadRules for Regions {
    fn writing_region(&self) -> Option<String> {
        self.writing()
    }

    fn read<'r>(&'r self, region: &'r str, known_version: &'r str) -> Reading<'r> {
        Box::pin(async move {
            let (sender, version_token) = (Some(self.announcement()), known_version.to_owned());
            let request = ReadRulesRequest { sender, version_token };
            replied(self.client(region)?.read_rules(request).await)
        })
    }

    fn read_records<'r>(
        &'r self,
        region: &'r str,
        known: &'r RecordsHead,
        is_continued: bool,
    ) -> Reading<'r, RecordsPage> {
        Box::pin(async move {
            let (sender, known) = (Some(self.announcement()), Some(known.clone()));
            let request = ReadRecordsRequest { sender, known, is_continued };
            replied(self.client(region)?.read_records(request).await)
        })
    }
}

impl Regions {
    fn client(&self, region: &str) -> Result<RegionsClient<Channel>, String> {
        Ok(RegionsClient::new(self.channel(region)?).max_decoding_message_size(MAX_REPLY_BYTES))
    }
}

fn replied<T>(reply: Result<Response<T>, Status>) -> Result<T, String> {
    reply.map(Response::into_inner).map_err(|status| with_sources(&status))
}
