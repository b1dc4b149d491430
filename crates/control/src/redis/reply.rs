//! Arguments and replies of the scripts.

use std::{fmt, time::Duration, vec};

use serde::{Serialize, de::DeserializeOwned};
use tollgate_store::redis::Reply;

use crate::{ControlError, ControlResult, metrics};

/// A number as an argument.
pub(crate) fn argument(number: impl Copy + ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Whole milliseconds, at least one, as an expiry has to be.
pub(crate) fn millis(time: Duration) -> Vec<u8> {
    argument(time.as_millis().max(1))
}

pub(crate) fn to_json(value: &impl Serialize) -> ControlResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(malformed)
}

pub(crate) fn read_json<T: DeserializeOwned>(text: &[u8]) -> ControlResult<T> {
    serde_json::from_slice(text).map_err(malformed)
}

/// Error of malformed data, which is counted.
pub(crate) fn malformed(what: impl fmt::Display) -> ControlError {
    metrics::STORE_ERRORS.increment(["malformed_reply"]);
    ControlError::Malformed(what.to_string())
}

/// Returns the parts of a list of this length.
pub(crate) fn list<const N: usize>(reply: Reply) -> ControlResult<[Reply; N]> {
    items(reply)?.try_into().map_err(|_| malformed("unexpected number of parts"))
}

/// Returns the parts of a list.
pub(crate) fn items(reply: Reply) -> ControlResult<Vec<Reply>> {
    match reply {
        Reply::List(items) => Ok(items),
        _ => Err(malformed("no list")),
    }
}

pub(crate) fn bytes(reply: Reply) -> ControlResult<Vec<u8>> {
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(malformed("no text")),
    }
}

pub(crate) fn text(reply: Reply) -> ControlResult<String> {
    String::from_utf8(bytes(reply)?).map_err(|_| malformed("no text"))
}

/// Reads a number that the script returns as text.
pub(crate) fn number(reply: Reply) -> ControlResult<u64> {
    parse(&bytes(reply)?)
}

pub(crate) fn parse(text: &[u8]) -> ControlResult<u64> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| malformed("no number"))
}

/// Reads a number that the script returns as such.
pub(crate) fn count(reply: &Reply) -> ControlResult<u64> {
    match reply {
        Reply::Integer(number) => u64::try_from(*number).map_err(malformed),
        _ => Err(malformed("no number")),
    }
}

/// The result that the word in a reply stands for, of the words that the script may return.
pub(crate) fn result_of<T>(
    reply: Reply,
    words: impl IntoIterator<Item = (&'static str, T)>,
) -> ControlResult<T> {
    let word = bytes(reply)?;
    let known = words.into_iter().find(|(known, _)| known.as_bytes() == word);
    known.map(|(_, result)| result).ok_or_else(|| malformed("no result"))
}

/// Parts of a list, read one after another.
pub(crate) struct Parts(vec::IntoIter<Reply>);

impl Parts {
    pub(crate) fn of(reply: Reply) -> ControlResult<Self> {
        items(reply).map(|items| Self(items.into_iter()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn reply(&mut self) -> ControlResult<Reply> {
        self.0.next().ok_or_else(|| malformed("a short list"))
    }

    pub(crate) fn bytes(&mut self) -> ControlResult<Vec<u8>> {
        self.reply().and_then(bytes)
    }

    pub(crate) fn text(&mut self) -> ControlResult<String> {
        self.reply().and_then(text)
    }

    pub(crate) fn number(&mut self) -> ControlResult<u64> {
        self.reply().and_then(number)
    }
}
