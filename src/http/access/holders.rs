//! Who holds which token, as a file says. Of the tokens only digests are kept.

use std::{collections::HashMap, sync::Arc};

use sha2::{Digest as _, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::caller::{Caller, Role};
use crate::redact::is_printable;

/// Bytes that a token has at least.
const LEAST: usize = 16;

/// Bytes of a name at most.
const LONGEST_NAME: usize = 64;

/// Tokens in a file at most: each of them is compared with what is shown.
const MOST: usize = 1_000;

/// The name of who holds the only token of a file, which has none.
const ONLY: &str = "admin";

/// What some editors put before a text; it would be part of the first word.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

type TokenDigest = [u8; 32];

/// Everyone who holds a token, in the file's order.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Holders(Vec<(TokenDigest, Caller)>);

impl std::fmt::Debug for Holders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, caller)| caller)).finish()
    }
}

impl Holders {
    /// Reads a file of lines `NAME ROLE TOKEN`, or of a token alone. What is wrong is told without a word of the file.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        if text.starts_with(BYTE_ORDER_MARK) {
            return Err("expected no byte order mark".to_owned());
        }
        let is_content = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1_usize..);
        let lines: Vec<(&[u8], usize)> = lines.filter(|(line, _)| is_content(line)).collect();
        match &*lines {
            [] => Err(format!("expected a token of {LEAST} bytes or more")),
            [(line, at)] if !line.iter().any(u8::is_ascii_whitespace) => {
                let holder = Caller { name: ONLY.into(), role: Role::Operator };
                Ok(Self(vec![(digest(line, *at)?, holder)]))
            }
            lines if lines.len() > MOST => Err(format!("expected {MOST} tokens at the most")),
            lines => Self::parse_lines(lines),
        }
    }

    fn parse_lines(lines: &[(&[u8], usize)]) -> Result<Self, String> {
        let mut holders = Vec::with_capacity(lines.len());
        let (mut names, mut digests) = (HashMap::new(), HashMap::new());
        for (line, at) in lines {
            let (digest, caller) = holder(line, *at)?;
            if let Some(before) = names.insert(Arc::clone(&caller.name), *at) {
                return Err(format!("line {at}: the name of line {before} again"));
            }
            if let Some(before) = digests.insert(digest, *at) {
                return Err(format!("line {at}: the token of line {before} again"));
            }
            holders.push((digest, caller));
        }
        Ok(Self(holders))
    }

    /// Who holds that token, in a time that depends neither on how much of it is right, nor on whose it is.
    pub(super) fn holder(&self, shown: &[u8]) -> Option<&Caller> {
        let digest: TokenDigest = Sha256::digest(shown).into();
        let mut found = u32::MAX;
        for ((known, _), at) in self.0.iter().zip(0_u32..) {
            found.conditional_assign(&at, digest.ct_eq(known));
        }
        self.0.get(usize::try_from(found).ok()?).map(|(_, caller)| caller)
    }
}

fn holder(line: &[u8], at: usize) -> Result<(TokenDigest, Caller), String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(name), Some(role), Some(token), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!("line {at}: expected NAME ROLE TOKEN"));
    };
    let is_named = |name: &&str| name.len() <= LONGEST_NAME && name.chars().all(is_printable);
    let Some(name) = str::from_utf8(name).ok().filter(is_named) else {
        return Err(format!("line {at}: expected a name of {LONGEST_NAME} bytes at the most"));
    };
    let Some(role) = str::from_utf8(role).ok().and_then(Role::parse) else {
        return Err(format!("line {at}: expected viewer or operator behind the name"));
    };
    Ok((digest(token, at)?, Caller { name: name.into(), role }))
}

fn digest(token: &[u8], at: usize) -> Result<TokenDigest, String> {
    // A header can hold nothing else, or not the same way for every client.
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(format!("line {at}: expected a token of ASCII letters, digits and signs"));
    }
    match token.len() >= LEAST {
        true => Ok(Sha256::digest(token).into()),
        false => Err(format!("line {at}: expected a token of {LEAST} bytes or more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# who may\n\nann  operator  ann-0123456789abcd\n bob\tviewer bob-0123456789abcd \n";

    fn shown(text: &str, token: &str) -> Option<(String, Role)> {
        let holders = Holders::parse(text.as_bytes()).expect("good");
        holders.holder(token.as_bytes()).map(|caller| (caller.name.to_string(), caller.role))
    }

    #[test]
    fn each_token_tells_who_holds_it() {
        assert_eq!(shown(FILE, "ann-0123456789abcd"), Some(("ann".to_owned(), Role::Operator)));
        assert_eq!(shown(FILE, "bob-0123456789abcd"), Some(("bob".to_owned(), Role::Viewer)));
        for wrong in ["", "ann", "ann-0123456789abc", "ann operator ann-0123456789abcd", "# who may"] {
            assert_eq!(shown(FILE, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_alone_is_the_administrators() {
        for file in ["first-0123456789", " first-0123456789\n", "# today's\r\nfirst-0123456789\r\n"] {
            assert_eq!(shown(file, "first-0123456789"), Some(("admin".to_owned(), Role::Operator)), "{file}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_without_its_text() {
        let other = "\nsecret-name viewer secret-0123456789";
        for (file, expected) in [
            ("secret".to_owned(), "line 1: expected a token of 16 bytes"),
            ("# nothing\n".to_owned(), "expected a token of 16 bytes"),
            (format!("secret operator{other}"), "line 1: expected NAME ROLE TOKEN"),
            (format!("secret operator secret-0123456789 x{other}"), "line 1: expected NAME ROLE TOKEN"),
            (
                format!("\n\nsecret-0123456789 secret secret-0123456789{other}"),
                "line 3: expected viewer or operator",
            ),
            ("\u{feff}secret-0123456789".to_owned(), "expected no byte order mark"),
            ("secret-0123456789é".to_owned(), "line 1: expected a token of ASCII"),
            ("secret-0123456789\0".to_owned(), "line 1: expected a token of ASCII"),
            (format!("\u{202e}secret viewer secret-9876543210{other}"), "line 1: expected a name"),
            (format!("secret viewer secret-01234567{other}"), "line 1: expected a token of 16 bytes"),
            (format!("secret viewer secret-0123456789{other}"), "line 2: the token of line 1 again"),
            (format!("secret-name viewer secret-9876543210{other}"), "line 2: the name of line 1 again"),
        ] {
            let error = Holders::parse(file.as_bytes()).expect_err("refused");
            assert!(error.starts_with(expected) && !error.contains("secret"), "{file:?}: {error}");
        }
        let many: String = (0..=MOST).map(|at| format!("n{at} viewer token-{at:020}\n")).collect();
        assert!(Holders::parse(many.as_bytes()).is_err());
        assert!(!format!("{:?}", Holders::parse(FILE.as_bytes())).contains("0123"));
    }
}
