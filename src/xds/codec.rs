//! A codec that leaves responses encoded, because a large one must not be decoded on a shared thread.

use bytes::{Buf as _, Bytes};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

use crate::proto::envoy::service::discovery::v3::DiscoveryRequest;

/// Encodes requests; returns responses as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawCodec;

impl Codec for RawCodec {
    type Encode = DiscoveryRequest;
    type Decode = Bytes;
    type Encoder = ProstEncoder<DiscoveryRequest>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
