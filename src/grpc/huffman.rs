//! Huffman code of header fields (RFC 7541, appendix B), for the symbols with codes of up to 13 bits: those of paths,
//! names, numbers and authorities.

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
pub(super) fn decode<'t>(coded: &[u8], buffer: &'t mut [u8]) -> Option<&'t [u8]> {
    // Bits that are not yet decoded, the last `bits` of `window`.
    let (mut window, mut bits, mut length) = (0_u32, 0_u32, 0_usize);
    let mut coded = coded.iter();
    loop {
        while bits < MAX_CODE_BITS
            && let Some(byte) = coded.next()
        {
            window = (window << 8) | u32::from(*byte);
            bits = bits.saturating_add(8);
        }
        let Some((symbol, used)) = symbol(window, bits) else { break };
        *buffer.get_mut(length)? = symbol;
        length = length.saturating_add(1);
        bits = bits.saturating_sub(used);
        window &= ones(bits);
    }
    // The end is filled up with ones.
    (bits < 8 && window == ones(bits)).then_some(())?;
    buffer.get(..length)
}

/// Returns the first symbol in the last `bits` of `window`, and the length of its code.
fn symbol(window: u32, bits: u32) -> Option<(u8, u32)> {
    ROWS.iter().find_map(|row| {
        let code = window.checked_shr(bits.checked_sub(row.bits)?)?;
        let at = usize::try_from(code.checked_sub(row.first_code)?).ok()?;
        row.symbols.get(at).map(|symbol| (*symbol, row.bits))
    })
}

/// The lowest `bits` bits.
fn ones(bits: u32) -> u32 {
    1_u32.checked_shl(bits).unwrap_or_default().wrapping_sub(1)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Encodes a text of symbols that can be decoded.
    pub(in crate::grpc) fn encode(text: &[u8]) -> Vec<u8> {
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
