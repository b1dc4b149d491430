//! Extractors: bodies, query and path parameters, and the field types that they share.

mod body;
mod descriptor;
mod force;
mod integer;
mod query;
mod reason;

pub(super) use self::{
    body::{JsonBody, MAX_BODY_BYTES, WriteRequest},
    descriptor::{ApiDescriptor, DescriptorText, check_descriptors},
    force::Force,
    integer::Integer,
    query::{LogQuery, PathParam, QueryParams, RuleQuery, VersionSelector, page_size},
    reason::{Reason, expires_at, now_ms},
};
