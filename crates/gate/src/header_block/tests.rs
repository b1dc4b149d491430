//! Header blocks, with a dynamic table.

use super::*;
use crate::SHOULD_RATE_LIMIT_PATH;
use crate::header_field::{self, CODED_PATH};

/// Appends a field with a name and a value in full, in the representation `first`.
fn literal(block: &mut Vec<u8>, first: u8, name: &[u8], value: &[u8]) {
    block.push(first);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).expect("short"));
        block.extend_from_slice(text);
    }
}

fn head(is_rate_limit: bool, millis: Option<u64>, changes_table: bool) -> Option<Head> {
    Some(Head { is_rate_limit, timeout: millis.map(Duration::from_millis), changes_table, is_unfit: false })
}

#[test]
fn fields_are_found_in_full_and_in_the_table() {
    let (mut table, mut block) = (HeaderTable::default(), vec![0x83, 0x86]);
    literal(&mut block, 0x40, b":path", SHOULD_RATE_LIMIT_PATH.as_bytes());
    literal(&mut block, 0x40, b"grpc-timeout", b"20m");
    literal(&mut block, 0x40, b"x", b"y");
    assert_eq!(table.read(&block, None), head(true, Some(20), true));
    assert_eq!(table.read(&[0x83, 0x86, 0xc0, 0xbf, 0xbe], None), head(true, Some(20), false));
    // Another value under the same name, which moves the entries by one if it is kept.
    assert_eq!(table.read(&[0x87, 0xc0, 0x0f, 0x30, 2, b'9', b'm'], None), head(true, Some(9), false));
    assert_eq!(table.read(&[0x87, 0xc0, 0x40 | 0x3f, 0, 2, b'9', b'm'], None), head(true, Some(9), true));
    assert_eq!(table.read(&[0x87, 0xc1, 0xc0], None), head(true, Some(20), false));
    assert_eq!(table.read(&[0x87, 0xc1, 0xbe], None), head(true, Some(9), false));
    assert_eq!(table.read(&[0x87, 0x84, 0xbe], None), head(false, Some(9), false), "the path `/`");
    assert_eq!(table.read(&[0x3f, 0xe1, 0x1f, 0x87, 0xc1], None), head(true, None, true), "a new size");
    assert_eq!(table.read(&[0x87, 0x04, 2, b'/', b'a'], None), head(false, None, false));
    assert_eq!(table.read(&[], None), head(false, None, false));
}

#[test]
fn fields_in_the_code_of_huffman_are_read() {
    let coded = |text: &[u8]| {
        let coded = header_field::tests::encode(text);
        [&[0x80 | u8::try_from(coded.len()).expect("short")], &coded[..]].concat()
    };
    let path = coded(SHOULD_RATE_LIMIT_PATH.as_bytes());
    let block = [&[0x86, 0x44], &path[..], &[0x00], &coded(b"grpc-timeout"), &coded(b"1500u")].concat();
    assert_eq!(header_field::tests::encode(SHOULD_RATE_LIMIT_PATH.as_bytes()), CODED_PATH);
    let timeout = Some(Duration::from_micros(1_500));
    let read = HeaderTable::default().read(&block, None);
    assert_eq!(read, Some(Head { is_rate_limit: true, timeout, changes_table: true, is_unfit: false }));
}

#[test]
fn a_copy_of_a_block_depends_on_no_table() {
    let mut table = HeaderTable::default();
    let mut block = vec![0x83, 0x87];
    literal(&mut block, 0x40, b"a", b"b");
    block.extend_from_slice(&[0x5f, 1, b'c', 0x84]);
    let mut copy = BytesMut::new();
    assert_eq!(table.read(&block, Some(&mut copy)), head(false, None, true));
    let expected = b"\x83\x00\x01a\x01b\x0f\x10\x01c\x86\x84";
    assert_eq!(copy[..], expected[..]);
    copy.clear();
    // Both entries, a new value under a name of each, and a new size.
    let block = b"\x21\x83\x87\xbf\xbe\x0f\x30\x01d\x7e\x01e\x84";
    assert_eq!(table.read(block, Some(&mut copy)), head(false, None, true));
    let expected = b"\x83\x00\x01a\x01b\x0f\x10\x01c\x00\x01a\x01d\x0f\x10\x01e\x86\x84";
    assert_eq!(copy[..], expected[..]);
}

#[test]
fn a_block_that_is_not_read_hides_all_later_ones() {
    let mut table = HeaderTable::default();
    assert_eq!(table.read(&[0x83], None), head(false, None, false));
    for malformed in [&[0xbe][..], &[0xff, 0xff, 0xff, 0xff, 0xff], &[0x40, 3, b'a'], &[0x00, 0x7f]] {
        let mut table = HeaderTable::default();
        assert_eq!(table.read(malformed, None), None, "{malformed:?}");
        assert_eq!(table.read(&[0x83], None), None);
    }
    table.skip();
    assert_eq!(table.read(&[0x83], None), None);
}

#[test]
fn the_number_of_entries_is_bounded() {
    let mut table = HeaderTable::default();
    let mut block = vec![0x86];
    literal(&mut block, 0x40, b":path", SHOULD_RATE_LIMIT_PATH.as_bytes());
    literal(&mut block, 0x00, b"", b"");
    (0..MAX_ENTRIES).for_each(|_| assert!(table.read(&block, None).is_some()));
    for _ in 0..1_000 {
        literal(&mut block, 0x40, b"a", b"b");
    }
    assert_eq!(table.read(&block, None), head(true, None, true));
    assert_eq!(table.read(&[], None), head(false, None, false));
    assert_eq!(table.entries.len(), MAX_ENTRIES);
}

#[test]
fn a_block_that_http2_would_refuse_is_copied_without_the_reason() {
    let istio = "outbound|8081||ratelimit.default.svc.cluster.local";
    let fields: [(&[u8], &[u8]); 12] = [
        (b":authority", istio.as_bytes()),
        (b":authority", b""),
        (b":authority", b"%2Frun%2Ftollgate.sock"),
        (b":authority", b"unix:/run/tollgate.sock"),
        (b":authority", b"a b"),
        (b":authority", "\u{e4}".as_bytes()),
        (b":authority", b"\xff"),
        (b":scheme", b""),
        (b":scheme", b"\xff"),
        (b"te", b"deflate"),
        (b"keep-alive", b"5"),
        (b"transfer-encoding", b"chunked"),
    ];
    for (name, value) in fields {
        let (mut table, mut block) = (HeaderTable::default(), vec![0x83, 0x86]);
        literal(&mut block, 0x40, b"a", b"b");
        literal(&mut block, 0x40, name, value);
        literal(&mut block, 0x00, b":path", b"/x");
        let text = String::from_utf8_lossy(value);
        assert!(table.read(&block, None).expect("read").is_unfit, "{text}");
        table.undo();
        assert_eq!((table.entries.len(), table.text_bytes), (0, 0));
        let mut copy = BytesMut::new();
        assert!(table.read(&block, Some(&mut copy)).expect("read").is_unfit);
        assert_eq!(copy[..], b"\x83\x00\x01a\x01b\x86\x00\x05:path\x02/x"[..], "{text}");
        copy.clear();
        // The field in the table, and another value under its name.
        let mut block = vec![0x83, 0x86, 0xbe, 0x0f, 0x2f, 1, b'x'];
        literal(&mut block, 0x00, b":path", b"/x");
        assert!(table.read(&block, Some(&mut copy)).expect("read").is_unfit);
    }
}

#[test]
fn authorities_that_http2_accepts_are_left_as_they_are() {
    let authorities =
        ["tollgate", "tollgate:8081", "10.0.0.1:8081", "[::1]:8081", "user@host", "a_b-c.d~e", "a%20b"];
    for authority in authorities {
        for is_coded in [false, true] {
            let mut block = vec![0x83, 0x86, 0x84, 0x41];
            let coded = header_field::tests::encode(authority.as_bytes());
            let (text, flag) = if is_coded { (&coded[..], 0x80) } else { (authority.as_bytes(), 0) };
            block.push(u8::try_from(text.len()).expect("short") | flag);
            block.extend_from_slice(text);
            let is_fit = authority.parse::<http::uri::Authority>().is_ok();
            let read = HeaderTable::default().read(&block, None).expect("read");
            assert_eq!(read.is_unfit, !is_fit, "{authority}");
        }
    }
    let path = |path: &str| {
        let mut block = vec![0x83, 0x86];
        literal(&mut block, 0x00, b":path", path.as_bytes());
        let (mut table, mut copy) = (HeaderTable::default(), BytesMut::new());
        let is_unfit = table.read(&block, Some(&mut copy)).expect("read").is_unfit;
        (is_unfit, copy)
    };
    assert!(!path("/a?b").0);
    for odd in ["", "/a b", "/\u{1}"] {
        let (is_unfit, copy) = path(odd);
        assert!(is_unfit, "{odd}");
        assert_eq!(copy[..], [0x83, 0x86, 0x84], "the path `/`");
    }
    let no_scheme = HeaderTable::default().read(&[0x83, 0x84], None);
    assert!(no_scheme.expect("read").is_unfit);
}
