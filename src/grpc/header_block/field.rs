//! Header fields: the parts of a head that admission needs, and those for which HTTP/2 would reset a call although gRPC has no
//! use for them.

use std::{str::FromStr, time::Duration};

use bytes::{BufMut as _, BytesMut};
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::grpc::{
    deadline::{GRPC_TIMEOUT, parse_timeout},
    huffman,
    unary::SHOULD_RATE_LIMIT_PATH,
};

/// The fields `:path: /` and `:scheme: http` of the static table.
const ROOT_PATH: u8 = 0x84;
const HTTP_SCHEME: u8 = 0x86;

/// [`SHOULD_RATE_LIMIT_PATH`] in the code of Huffman.
pub(super) const CODED_PATH: &[u8] =
    b"\x60\xb5\x77\x3f\xa5\xd0\x5b\x3b\x98\x85\x5e\xc1\xa4\xb4\x1a\x93\x25\x7e\xec\xaf\xb4\x69\x2e\x73\x52\
    \x64\xee\x2d\x9d\xcc\x42\xb1\xba\x73\xdb\x44\x9b\x46\x92\xe7\x35\x26\x4f";

/// Longest name or timeout that is read.
const MAX_TEXT_BYTES: usize = 64;

/// Longest text in the code of Huffman that is recognized as an authority or a path.
const MAX_URI_BYTES: usize = 320;

/// A header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Path {
        is_rate_limit: bool,
    },
    Timeout(Option<Duration>),
    Other(Name),
    /// For this one, HTTP/2 would reset the call.
    Unfit(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Authority,
    Path,
    Scheme,
    Te,
    Timeout,
    /// Of a connection of HTTP/1.
    Connection,
    Other,
}

impl Field {
    pub(super) fn of(name: Name, value: Text<'_>) -> Self {
        let is_fit = match name {
            Name::Path => {
                let path = if value.is_huffman { CODED_PATH } else { SHOULD_RATE_LIMIT_PATH.as_bytes() };
                let is_rate_limit = value.bytes == path;
                if is_rate_limit || value.is::<PathAndQuery>() {
                    return Self::Path { is_rate_limit };
                }
                false
            }
            Name::Timeout => {
                return Self::Timeout(value.text(&mut [0; MAX_TEXT_BYTES]).and_then(parse_timeout));
            }
            Name::Authority => value.is::<Authority>(),
            Name::Scheme => value.is::<Scheme>(),
            Name::Te => value.text(&mut [0; MAX_TEXT_BYTES]) == Some(b"trailers"),
            Name::Connection => false,
            Name::Other => true,
        };
        if is_fit { Self::Other(name) } else { Self::Unfit(name) }
    }

    /// Field with an index of the static table.
    pub(super) const fn of_static(index: usize) -> Self {
        match Name::of_static(index) {
            // Neither is the method of a service.
            Name::Path => Self::Path { is_rate_limit: false },
            // An empty value.
            name @ (Name::Authority | Name::Connection) => Self::Unfit(name),
            name => Self::Other(name),
        }
    }

    pub(super) const fn name(self) -> Name {
        match self {
            Self::Path { .. } => Name::Path,
            Self::Timeout(_) => Name::Timeout,
            Self::Other(name) | Self::Unfit(name) => name,
        }
    }

    /// Begins the copy of a field. Returns whether the field itself follows: not if it is unfit. The scheme is a constant,
    /// before the path.
    pub(super) fn begin_copy(self, copy: &mut BytesMut) -> bool {
        match self {
            Self::Path { .. } => copy.put_u8(HTTP_SCHEME),
            // No method of a service.
            Self::Unfit(Name::Path) => copy.put_slice(&[HTTP_SCHEME, ROOT_PATH]),
            _ => {}
        }
        !matches!(self, Self::Unfit(_) | Self::Other(Name::Scheme))
    }
}

impl Name {
    pub(super) const fn of_static(index: usize) -> Self {
        match index {
            1 => Self::Authority,
            4 | 5 => Self::Path,
            6 | 7 => Self::Scheme,
            57 => Self::Connection,
            _ => Self::Other,
        }
    }

    pub(super) fn of(text: Text<'_>) -> Self {
        match text.text(&mut [0; MAX_TEXT_BYTES]) {
            Some(b":authority") => Self::Authority,
            Some(b":path") => Self::Path,
            Some(b":scheme") => Self::Scheme,
            Some(b"te") => Self::Te,
            Some(b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade") => {
                Self::Connection
            }
            Some(name) if name == GRPC_TIMEOUT.as_str().as_bytes() => Self::Timeout,
            _ => Self::Other,
        }
    }
}

/// A name or a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'b> {
    pub(super) bytes: &'b [u8],
    /// With the length before.
    pub(super) raw: &'b [u8],
    pub(super) is_huffman: bool,
}

impl<'b> Text<'b> {
    /// Returns the text, or `None` if it is not one that is looked for.
    fn text<'t>(self, buffer: &'t mut [u8]) -> Option<&'t [u8]>
    where
        'b: 't,
    {
        if self.is_huffman { huffman::decode(self.bytes, buffer) } else { Some(self.bytes) }
    }

    /// Whether HTTP/2 accepts the text as this part of a URI.
    fn is<P: FromStr>(self) -> bool {
        let mut buffer = [0; MAX_URI_BYTES];
        let text = self.text(&mut buffer).and_then(|text| str::from_utf8(text).ok());
        text.is_some_and(|text| !text.is_empty() && text.parse::<P>().is_ok())
    }
}
