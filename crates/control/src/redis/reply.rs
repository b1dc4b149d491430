//! Arguments and replies of the scripts.

use std::{fmt, vec};

use serde::{Serialize, de::DeserializeOwned};
use tollgate_store::redis::Reply;

use crate::{ControlError, ControlResult, metrics};

/// A number as an argument.
pub(super) fn argument(number: impl Copy + ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn to_json(value: &impl Serialize) -> ControlResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(malformed)
}

pub(super) fn read_json<T: DeserializeOwned>(text: &[u8]) -> ControlResult<T> {
    serde_json::from_slice(text).map_err(malformed)
}

/// Error of malformed data, which is counted.
pub(super) fn malformed(what: impl fmt::Display) -> ControlError {
    metrics::store_error("malformed_reply");
    ControlError::Malformed(what.to_string())
}

/// Returns the parts of a list of this length.
pub(super) fn list<const N: usize>(reply: Reply) -> ControlResult<[Reply; N]> {
    items(reply)?.try_into().map_err(|_| malformed("unexpected number of parts"))
}

/// Returns the parts of a list.
pub(super) fn items(reply: Reply) -> ControlResult<Vec<Reply>> {
    match reply {
        Reply::List(items) => Ok(items),
        _ => Err(malformed("no list")),
    }
}

pub(super) fn bytes(reply: Reply) -> ControlResult<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(malformed("no text")),
    }
}

pub(super) fn text(reply: Reply) -> ControlResult<String> {
    String::from_utf8(bytes(reply)?).map_err(|_| malformed("no text"))
}

/// Reads a number that the script returns as text.
pub(super) fn number(reply: Reply) -> ControlResult<u64> {
    parse(&bytes(reply)?)
}

pub(super) fn parse(text: &[u8]) -> ControlResult<u64> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| malformed("no number"))
}

/// Reads a number that the script returns as such.
pub(super) fn count(reply: &Reply) -> ControlResult<u64> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).map_err(malformed),
        _ => Err(malformed("no number")),
    }
}

/// Whether the reply is `made`; `otherwise` is the only other word that it may be.
pub(super) fn is_made(reply: Reply, otherwise: &[u8]) -> ControlResult<bool> {
    match bytes(reply)?.as_slice() {
        b"made" => Ok(true),
        word if word == otherwise => Ok(false),
        _ => Err(malformed("no result")),
    }
}

/// Parts of a list, read one after another.
pub(super) struct Parts(vec::IntoIter<Reply>);

impl Parts {
    pub(super) fn of(reply: Reply) -> ControlResult<Self> {
        items(reply).map(|items| Self(items.into_iter()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn reply(&mut self) -> ControlResult<Reply> {
        self.0.next().ok_or_else(|| malformed("a short list"))
    }

    pub(super) fn bytes(&mut self) -> ControlResult<Vec<u8>> {
        self.reply().and_then(bytes)
    }

    pub(super) fn text(&mut self) -> ControlResult<String> {
        self.reply().and_then(text)
    }

    pub(super) fn number(&mut self) -> ControlResult<u64> {
        self.reply().and_then(number)
    }
}
