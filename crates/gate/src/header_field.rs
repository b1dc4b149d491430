//! Header fields: the parts of a head that admission needs, those for which HTTP/2 would reset a call although gRPC has no
//! use for them, and their Huffman code.

use std::{str::FromStr, time::Duration};

use bytes::{BufMut as _, BytesMut};
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::{SHOULD_RATE_LIMIT_PATH, parse_timeout};

/// The fields `:path: /` and `:scheme: http` of the static table.
const ROOT_PATH: u8 = 0x84;
const HTTP_SCHEME: u8 = 0x86;

/// [`SHOULD_RATE_LIMIT_PATH`] in the code of Huffman.
pub(crate) const CODED_PATH: &[u8] =
    b"\x60\xb5\x77\x3f\xa5\xd0\x5b\x3b\x98\x85\x5e\xc1\xa4\xb4\x1a\x93\x25\x7e\xec\xaf\xb4\x69\x2e\x73\x52\
    \x64\xee\x2d\x9d\xcc\x42\xb1\xba\x73\xdb\x44\x9b\x46\x92\xe7\x35\x26\x4f";

/// Longest name or timeout that is read.
const MAX_TEXT_BYTES: usize = 64;

/// Longest text in the code of Huffman that is recognized as an authority or a path.
const MAX_URI_BYTES: usize = 320;

/// A header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Path {
        is_rate_limit: bool,
    },
    Timeout(Option<Duration>),
    Other(Name),
    /// For this one, HTTP/2 would reset the call.
    Unfit(Name),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
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
    pub(crate) fn of(name: Name, value: Text<'_>) -> Self {
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
    pub(crate) const fn of_static(index: usize) -> Self {
        match Name::of_static(index) {
            // Neither is the method of a service.
            Name::Path => Self::Path { is_rate_limit: false },
            // An empty value.
            name @ (Name::Authority | Name::Connection) => Self::Unfit(name),
            name => Self::Other(name),
        }
    }

    pub(crate) const fn name(self) -> Name {
        match self {
            Self::Path { .. } => Name::Path,
            Self::Timeout(_) => Name::Timeout,
            Self::Other(name) | Self::Unfit(name) => name,
        }
    }

    /// Begins the copy of a field. Returns whether the field itself follows: not if it is unfit. The scheme is a constant,
    /// before the path.
    pub(crate) fn begin_copy(self, copy: &mut BytesMut) -> bool {
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
    pub(crate) const fn of_static(index: usize) -> Self {
        match index {
            1 => Self::Authority,
            4 | 5 => Self::Path,
            6 | 7 => Self::Scheme,
            57 => Self::Connection,
            _ => Self::Other,
        }
    }

    pub(crate) fn of(text: Text<'_>) -> Self {
        match text.text(&mut [0; MAX_TEXT_BYTES]) {
            Some(b":authority") => Self::Authority,
            Some(b":path") => Self::Path,
            Some(b":scheme") => Self::Scheme,
            Some(b"te") => Self::Te,
            Some(b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade") => {
                Self::Connection
            }
            Some(name) if name == b"grpc-timeout" => Self::Timeout,
            _ => Self::Other,
        }
    }
}

/// A name or a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'b> {
    pub bytes: &'b [u8],
    /// With the length before.
    pub raw: &'b [u8],
    pub is_huffman: bool,
}

impl<'b> Text<'b> {
    /// Returns the text, or `None` if it is not one that is looked for.
    fn text<'t>(self, buffer: &'t mut [u8]) -> Option<&'t [u8]>
    where
        'b: 't,
    {
        if self.is_huffman { decode(self.bytes, buffer) } else { Some(self.bytes) }
    }

    /// Whether HTTP/2 accepts the text as this part of a URI.
    fn is<P: FromStr>(self) -> bool {
        let mut buffer = [0; MAX_URI_BYTES];
        let text = self.text(&mut buffer).and_then(|text| str::from_utf8(text).ok());
        text.is_some_and(|text| !text.is_empty() && text.parse::<P>().is_ok())
    }
}

/// Symbols of one length of code, in the order of their codes, which are consecutive.
struct Row {
    bits: u32,
    first_code: u32,
    symbols: &'static [u8],
}

/// Bits of the longest of these codes.
const MAX_CODE_BITS: u32 = 13;

const ROWS: [Row; 8] = [
    Row { bits: 5, first_code: 0x00, symbols: b"012aceiost" },
    Row { bits: 6, first_code: 0x14, symbols: b" %-./3456789=A_bdfghlmnpru" },
    Row { bits: 7, first_code: 0x5c, symbols: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz" },
    Row { bits: 8, first_code: 0xf8, symbols: b"&*,;XZ" },
    Row { bits: 10, first_code: 0x3f8, symbols: b"!\"()?" },
    Row { bits: 11, first_code: 0x7fa, symbols: b"'+|" },
    Row { bits: 12, first_code: 0xffa, symbols: b"#>" },
    Row { bits: MAX_CODE_BITS, first_code: 0x1ff8, symbols: b"\0$@[]~" },
];

/// Decodes `coded` into `buffer`. Returns `None` if it is malformed, does not fit, or has a symbol with a longer code.
pub(crate) fn decode<'t>(coded: &[u8], buffer: &'t mut [u8]) -> Option<&'t [u8]> {
    // Bits that are not yet decoded, the last `bits` of `window`.
    let (mut window, mut bits, mut length) = (0_u32, 0_u32, 0_usize);
    let mut coded = coded.iter();
    loop {
        while bits < MAX_CODE_BITS
            && let Some(byte) = coded.next()
        {
            window = (window << 8) | u32::from(*byte);
            bits += 8;
        }
        let Some((symbol, used)) = symbol(window, bits) else { break };
        *buffer.get_mut(length)? = symbol;
        length += 1;
        bits -= used;
        window &= ones(bits);
    }
    // The end is filled up with ones.
    (bits < 8 && window == ones(bits)).then_some(())?;
    buffer.get(..length)
}

/// Returns the first symbol in the last `bits` of `window`, and the length of its code.
fn symbol(window: u32, bits: u32) -> Option<(u8, u32)> {
    ROWS.iter().find_map(|row| {
        let code = window >> bits.checked_sub(row.bits)?;
        let at = usize::try_from(code.checked_sub(row.first_code)?).ok()?;
        row.symbols.get(at).map(|symbol| (*symbol, row.bits))
    })
}

/// The lowest `bits` bits, of which there are at most 20.
const fn ones(bits: u32) -> u32 {
    (1 << bits) - 1
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a text of symbols that can be decoded.
    pub(crate) fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = String::new();
        for symbol in text {
            let coded = ROWS.iter().find_map(|row| {
                let at = row.symbols.iter().position(|one| one == symbol)?;
                let code = usize::try_from(row.first_code).ok()? + at;
                Some(format!("{code:0width$b}", width = row.bits as usize))
            });
            bits.push_str(&coded.expect("a symbol with a short code"));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push('1');
        }
        let byte = |at| u8::from_str_radix(&bits[at..at + 8], 2).expect("eight bits");
        (0..bits.len()).step_by(8).map(byte).collect()
    }

    fn decoded(coded: &[u8]) -> Option<String> {
        let mut buffer = [0; 24];
        decode(coded, &mut buffer).map(|text| String::from_utf8_lossy(text).into_owned())
    }

    #[test]
    fn the_examples_of_the_standard_are_decoded() {
        let examples: [(&[u8], &str); 6] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (b"", ""),
        ];
        for (coded, text) in examples {
            assert_eq!(decoded(coded).as_deref(), Some(text));
            assert_eq!(encode(text.as_bytes()), coded, "{text}");
        }
        let authority = "~user!$(x)@[::1]:8081";
        assert_eq!(decoded(&encode(authority.as_bytes())).as_deref(), Some(authority));
        assert_eq!(decoded(b"\xfe\x3f").as_deref(), Some("!"));
    }

    #[test]
    fn malformed_and_other_texts_are_refused() {
        assert_eq!(decoded(b"\xa8\xeb\x10\x64\x9c"), None, "cut within a code that is not all ones");
        assert_eq!(decoded(b"\xff"), None, "eight bits of padding");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), None);
        assert_eq!(decoded(b"\xff\xfe\x1f"), None, "a backslash, of 19 bits");
        assert_eq!(decoded(&[0; 24]), None, "38 symbols");
    }
}
