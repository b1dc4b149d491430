//! Header blocks of all kinds, as HTTP/2 decodes them after the filter.

use std::{collections::VecDeque, str};

use h2::server;
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt as _, duplex};
use tollgate_fixtures::HTTP2_START;

use super::*;
use crate::header_field::tests::encode as coded;

const AUTHORITIES: [&str; 7] = [
    "tollgate:8081",
    "[::1]:8081",
    "outbound|8081||ratelimit.default.svc.cluster.local",
    "",
    "%2Frun%2Ftollgate.sock",
    "a b",
    "b\u{e4}r",
];
const SCHEMES: [&str; 4] = ["http", "https", "", "a b"];
const PATHS: [&str; 5] = ["/a.B/C", "/", "", "/a b", "/d?e"];
const OTHERS: [(&str, &str); 8] = [
    ("te", "trailers"),
    ("te", "gzip"),
    ("grpc-timeout", "20m"),
    ("x-a", "1"),
    ("x-a", "2"),
    ("content-type", "application/grpc"),
    ("keep-alive", "5"),
    ("transfer-encoding", "chunked"),
];

/// Form in which a field is written.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Representation in full: not added, never added, or added to the table.
    first: u8,
    is_coded: bool,
    /// Whether a name or a field in the table is written as its index.
    by_index: bool,
}

#[derive(Clone, Debug)]
struct Call {
    authority: Option<usize>,
    scheme: Option<usize>,
    path: usize,
    others: Vec<usize>,
    forms: Vec<Form>,
    is_padded: bool,
    has_priority: bool,
    /// Whether the table is emptied first.
    resets_table: bool,
    cut: Option<prop::sample::Index>,
}

impl Call {
    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        let mut fields = vec![(":method", "POST")];
        fields.extend(self.authority.map(|at| (":authority", AUTHORITIES[at])));
        fields.extend(self.scheme.map(|at| (":scheme", SCHEMES[at])));
        fields.push((":path", PATHS[self.path]));
        fields.extend(self.others.iter().map(|at| OTHERS[*at]));
        fields
    }

    fn headers(&self) -> Vec<(&'static str, &'static str)> {
        let is_fit = |field: &(&str, &str)| match field.0 {
            "te" => field.1 == "trailers",
            name => name != "keep-alive" && name != "transfer-encoding",
        };
        let mut headers: Vec<_> = self.others.iter().map(|at| OTHERS[*at]).filter(is_fit).collect();
        headers.sort_unstable();
        headers
    }
}

fn form() -> impl Strategy<Value = Form> {
    (prop::sample::select(vec![0x00, 0x10, 0x40]), any::<bool>(), any::<bool>())
        .prop_map(|(first, is_coded, by_index)| Form { first, is_coded, by_index })
}

fn call() -> impl Strategy<Value = Call> {
    let odd = (
        prop::option::of(0..AUTHORITIES.len()),
        prop::option::weighted(0.9, 0..SCHEMES.len()),
        0..PATHS.len(),
        prop::collection::vec(0..OTHERS.len(), 0..4),
    );
    let frames =
        (any::<bool>(), any::<bool>(), any::<bool>(), prop::option::of(any::<prop::sample::Index>()));
    (odd, prop::collection::vec(form(), 9), frames).prop_map(|(fields, forms, frames)| {
        let (authority, scheme, path, others) = fields;
        let (is_padded, has_priority, resets_table, cut) = frames;
        Call { authority, scheme, path, others, forms, is_padded, has_priority, resets_table, cut }
    })
}

/// A client's table.
#[derive(Default)]
struct Encoder(VecDeque<(&'static str, &'static str)>);

impl Encoder {
    fn put_text(block: &mut Vec<u8>, text: &str, form: Form) {
        // The code of other texts is not known to the encoder.
        let is_coded =
            form.is_coded && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":/-.".contains(&byte));
        let (bytes, flag) =
            if is_coded { (coded(text.as_bytes()), 0x80) } else { (text.as_bytes().to_vec(), 0) };
        block.push(u8::try_from(bytes.len()).expect("short") | flag);
        block.extend(bytes);
    }

    fn put(&mut self, block: &mut Vec<u8>, field: (&'static str, &'static str), form: Form) {
        let index = |at: usize| u8::try_from(at + 62).expect("few entries");
        if let Some(at) = self.0.iter().position(|entry| *entry == field).filter(|_| form.by_index) {
            return block.push(0x80 | index(at));
        }
        let name = self.0.iter().position(|entry| entry.0 == field.0).filter(|_| form.by_index);
        match name.map(index) {
            Some(at) if form.first == 0x40 && at < 63 => block.push(0x40 | at),
            Some(at) if form.first != 0x40 => block.extend([form.first | 0x0f, at - 15]),
            _ => {
                block.push(form.first);
                Self::put_text(block, field.0, form);
            }
        }
        Self::put_text(block, field.1, form);
        if form.first == 0x40 {
            self.0.push_front(field);
        }
        let size = |entries: &VecDeque<(&str, &str)>| {
            entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
        };
        // Indexes of one byte.
        while size(&self.0) > 4_096 || self.0.len() > 60 {
            self.0.pop_back();
        }
    }

    fn frames(&mut self, call: &Call, stream: u32) -> Vec<u8> {
        let mut block = Vec::new();
        if call.resets_table {
            self.0.clear();
            block.extend([0x20, 0x3f, 0xe1, 0x1f]);
        }
        for (field, form) in call.fields().into_iter().zip(&call.forms) {
            self.put(&mut block, field, *form);
        }
        let rest = call.cut.map(|cut| block.split_off(cut.index(block.len())));
        let mut flags = END_STREAM | if rest.is_none() { END_HEADERS } else { 0 };
        let mut payload = Vec::new();
        if call.is_padded {
            flags |= PADDED;
            payload.push(3);
        }
        if call.has_priority {
            flags |= WITH_PRIORITY;
            payload.extend([0, 0, 0, 0, 1]);
        }
        payload.extend(block);
        payload.extend_from_slice(if call.is_padded { &[0; 3] } else { &[] });
        let mut frames = frame(HEADERS, flags, stream, &payload);
        frames.extend(rest.map(|rest| frame(CONTINUATION, END_HEADERS, stream, &rest)).into_iter().flatten());
        frames
    }
}

/// Decodes frames as HTTP/2 does, and compares the calls.
async fn compare(frames: &[u8], calls: &[Call]) {
    let (mut near, far) = duplex(1 << 20);
    near.write_all(HTTP2_START).await.expect("room");
    near.write_all(frames).await.expect("room");
    let mut server = server::handshake(far).await.expect("a preface");
    for call in calls {
        let (request, _) = server.accept().await.expect("a call").expect("not refused");
        let (parts, _) = request.into_parts();
        let path = PATHS[call.path];
        let is_fit = !path.is_empty() && path.parse::<http::uri::PathAndQuery>().is_ok();
        assert_eq!(
            parts.uri.path_and_query().map(ToString::to_string).as_deref(),
            Some(if is_fit { path } else { "/" })
        );
        let authority = call
            .authority
            .map(|at| AUTHORITIES[at])
            .filter(|text| text.parse::<http::uri::Authority>().is_ok());
        assert_eq!(parts.uri.authority().map(http::uri::Authority::as_str), authority);
        let text =
            |value: &'_ http::HeaderValue| str::from_utf8(value.as_bytes()).expect("a text").to_owned();
        let mut headers: Vec<_> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
        headers.sort_unstable();
        let expected: Vec<_> =
            call.headers().into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        assert_eq!(headers, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn http2_accepts_every_call_with_the_fields_that_it_allows(
        calls in prop::collection::vec(call(), 1..40),
        cut in 1..200_usize,
    ) {
        let mut encoder = Encoder::default();
        let mut bytes = Vec::new();
        for (call, stream) in calls.iter().zip((1..).step_by(2)) {
            bytes.extend(encoder.frames(call, stream));
        }
        let chunks: Vec<&[u8]> = bytes.chunks(cut).collect();
        let (passed, _) = filtered(&chunks, &mut Refusing::default(), 64);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(compare(&passed, &calls));
    }
}
