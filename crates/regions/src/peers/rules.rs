//! Rule versions, lists, switches and overrides of the writing region.

use tollgate_control::{
    Control, CopiedChange, ListsCopy, OverridesHead, OverridesPage, ReadRules, Reading, RulesCopy,
    RulesIdentity, StoredField, VersionCopy,
};
use tollgate_proto::tollgate::region::v1::{
    Field, Lists, OverrideChange, OverridesHead as SentHead, ReadOverridesReply, ReadOverridesRequest,
    ReadRulesReply, ReadRulesRequest, RulesVersion, regions_client::RegionsClient,
};
use tollgate_runtime::redact::with_sources;
use tonic::Status;

use crate::Regions;

/// Maximum length of a reply in bytes: the largest version with the longest lists.
const MAX_REPLY_BYTES: usize = 24 << 20;

/// Answers a region that copies.
pub(super) async fn answer(
    regions: &Regions,
    control: &Control,
    request: ReadRulesRequest,
) -> Result<ReadRulesReply, Status> {
    require_writing(regions)?;
    let known = RulesIdentity { version: request.version_token, lists: request.lists_token };
    let copy = control.rules_after(&known).await;
    let RulesCopy { version, lists, overrides } =
        copy.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(ReadRulesReply {
        version: version.map(to_version),
        lists: lists.map(to_lists),
        overrides: overrides.map(to_head),
    })
}

/// Answers a region that copies overrides.
pub(super) async fn answer_overrides(
    regions: &Regions,
    control: &Control,
    request: ReadOverridesRequest,
) -> Result<ReadOverridesReply, Status> {
    require_writing(regions)?;
    let known = request.known.map(of_head).unwrap_or_default();
    let page = control.overrides_after(&known, request.is_continued).await;
    let OverridesPage { head, is_whole, changes, has_more } =
        page.map_err(|error| Status::unavailable(error.to_string()))?;
    let changes = changes.into_iter().map(|change| {
        let CopiedChange { revision, id, payload } = change;
        OverrideChange { revision, id, payload }
    });
    Ok(ReadOverridesReply { head: Some(to_head(head)), is_whole, changes: changes.collect(), has_more })
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
            let reply =
                client.read_rules(request).await.map_err(|status| with_sources(&status))?.into_inner();
            Ok(RulesCopy {
                version: reply.version.map(of_version),
                lists: reply.lists.map(of_lists),
                overrides: reply.overrides.map(of_head),
            })
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
            let (sender, known) = (Some(self.announcement()), Some(to_head(known.clone())));
            let request = ReadOverridesRequest { sender, known, is_continued };
            let mut client = RegionsClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES);
            let reply = client.read_overrides(request).await.map_err(|status| with_sources(&status))?;
            let ReadOverridesReply { head, is_whole, changes, has_more } = reply.into_inner();
            let changes = changes.into_iter().map(|change| {
                let OverrideChange { revision, id, payload } = change;
                CopiedChange { revision, id, payload }
            });
            let head = head.map(of_head).unwrap_or_default();
            Ok(OverridesPage { head, is_whole, changes: changes.collect(), has_more })
        })
    }
}

fn to_head(head: OverridesHead) -> SentHead {
    let OverridesHead { lineage, revision, epoch } = head;
    SentHead { lineage, revision, epoch }
}

fn of_head(head: SentHead) -> OverridesHead {
    let SentHead { lineage, revision, epoch } = head;
    OverridesHead { lineage, revision, epoch }
}

fn to_version(copy: VersionCopy) -> RulesVersion {
    let VersionCopy { number, token, trail, meta, files } = copy;
    RulesVersion { number, token, trail, meta, files }
}

fn of_version(version: RulesVersion) -> VersionCopy {
    let RulesVersion { number, token, trail, meta, files } = version;
    VersionCopy { number, token, trail, meta, files }
}

fn to_lists(copy: ListsCopy) -> Lists {
    let fields = |fields: Vec<StoredField>| {
        fields.into_iter().map(|StoredField { name, value }| Field { name, value }).collect()
    };
    let ListsCopy { generation, token, trail, entries, switches } = copy;
    Lists { generation, token, trail, entries: fields(entries), switches: fields(switches) }
}

fn of_lists(lists: Lists) -> ListsCopy {
    let fields = |fields: Vec<Field>| {
        fields.into_iter().map(|Field { name, value }| StoredField { name, value }).collect()
    };
    let Lists { generation, token, trail, entries, switches } = lists;
    ListsCopy { generation, token, trail, entries: fields(entries), switches: fields(switches) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_carried_whole() {
        let field = |name: &str| StoredField { name: name.into(), value: b"0\n{}".to_vec() };
        let lists = ListsCopy {
            generation: 7,
            token: "t".into(),
            trail: "r".into(),
            entries: vec![field("e")],
            switches: vec![field("s"), field("t")],
        };
        assert_eq!(of_lists(to_lists(lists.clone())), lists);
        let version = VersionCopy {
            number: 3,
            token: "t".into(),
            trail: "r".into(),
            meta: b"m".to_vec(),
            files: b"f".to_vec(),
        };
        assert_eq!(of_version(to_version(version.clone())), version);
    }
}
