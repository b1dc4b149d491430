//! Tokens of the admin port, reloaded when their file changes. Only their digests are kept.

use std::path::{Path, PathBuf};
use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tollgate_control::is_like_system_author;
use tollgate_runtime::bounded_file::{self, Polled};
use tollgate_runtime::redact::{self, is_printable};

use crate::caller::{Caller, Role};

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Interval between two reads of the file.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The tokens of a file, shared by clones. Only their digests are kept.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<ArcSwap<TokenTable>>);

impl Tokens {
    /// Reads the file. The returned future reloads it on changes and never completes.
    ///
    /// # Errors
    /// If the file cannot be read or parsed. The error contains nothing of its content.
    pub fn load(path: PathBuf) -> Result<(Self, impl Future<Output = ()> + Send + 'static), String> {
        let tokens = Self(Arc::new(ArcSwap::from_pointee(read(&path)?)));
        Ok((tokens.clone(), tokens.watch(path)))
    }

    /// The caller with this token.
    pub(super) fn caller(&self, token: &[u8]) -> Option<Caller> {
        self.0.load().caller(token).cloned()
    }

    async fn watch(self, path: PathBuf) {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut polled = Polled::new(Ok(TokenTable::clone(&self.0.load())));
        loop {
            polls.tick().await;
            let file = path.clone();
            // The file may be on a hung mount, which must not block accepting connections.
            if let Ok(found) = spawn_blocking(move || read(&file)).await {
                self.update(polled.changed(found));
            }
        }
    }

    /// Activates changed tokens if they are valid.
    fn update(&self, changed: Option<&Result<TokenTable, String>>) {
        match changed {
            Some(Ok(table)) => {
                self.0.store(Arc::new(table.clone()));
                tracing::info!("admin tokens reloaded");
            }
            Some(Err(error)) => tracing::error!(%error, "invalid admin tokens; keeping the active ones"),
            None => {}
        }
    }
}

fn read(path: &Path) -> Result<TokenTable, String> {
    let error = |reason: String| format!("--admin-token-file: {}: {reason}", redact::path(path));
    let text = bounded_file::read_up_to(path, MAX_FILE_BYTES).map_err(|cause| error(cause.to_string()))?;
    TokenTable::parse(&text).map_err(error)
}

const MIN_TOKEN_BYTES: usize = 16;

const MAX_NAME_BYTES: usize = 64;

/// Maximum number of tokens in a file.
const MAX_TOKENS: usize = 1_000;

/// The name of the caller whose token is alone in a file, without a name.
const DEFAULT_NAME: &str = "admin";

/// Inserted by some editors; it would become part of the first word.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

type TokenDigest = [u8; 32];

/// Callers by the digests of their tokens. How long a search takes depends on the digest alone, from which nothing of a
/// token follows.
#[derive(Clone, PartialEq, Eq)]
struct TokenTable(HashMap<TokenDigest, Caller>);

impl std::fmt::Debug for TokenTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.values()).finish()
    }
}

impl TokenTable {
    /// Parses lines `NAME ROLE TOKEN`, or a token alone. Errors contain nothing of the file's content.
    fn parse(text: &[u8]) -> Result<Self, String> {
        if text.starts_with(BYTE_ORDER_MARK) {
            return Err("unexpected byte order mark; expected plain UTF-8".to_owned());
        }
        let is_content = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1_usize..);
        let lines: Vec<(&[u8], usize)> = lines.filter(|(line, _)| is_content(line)).collect();
        match &*lines {
            [] => Err(format!("no token; expected one of {MIN_TOKEN_BYTES} bytes or more")),
            [(line, at)] if !line.iter().any(u8::is_ascii_whitespace) => {
                let caller = Caller { name: DEFAULT_NAME.into(), role: Role::Operator };
                Ok(Self(HashMap::from([(digest(line, *at)?, caller)])))
            }
            lines if lines.len() > MAX_TOKENS => Err(format!("expected at most {MAX_TOKENS} tokens")),
            lines => Self::parse_lines(lines),
        }
    }

    fn parse_lines(lines: &[(&[u8], usize)]) -> Result<Self, String> {
        let (mut names, mut callers) = (HashMap::new(), HashMap::new());
        for (line, at) in lines {
            let (digest, caller) = parse_line(line, *at)?;
            if let Some(before) = names.insert(Arc::clone(&caller.name), *at) {
                return Err(format!("line {at}: duplicate of the name in line {before}"));
            }
            if let Some((before, _)) = callers.insert(digest, (*at, caller)) {
                return Err(format!("line {at}: duplicate of the token in line {before}"));
            }
        }
        Ok(Self(callers.into_iter().map(|(digest, (_, caller))| (digest, caller)).collect()))
    }

    /// The caller with this token.
    fn caller(&self, token: &[u8]) -> Option<&Caller> {
        let digest: TokenDigest = Sha256::digest(token).into();
        self.0.get(&digest)
    }
}

fn parse_line(line: &[u8], at: usize) -> Result<(TokenDigest, Caller), String> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(name), Some(role), Some(token), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!("line {at}: expected NAME ROLE TOKEN"));
    };
    let is_valid = |name: &&str| name.len() <= MAX_NAME_BYTES && name.chars().all(is_printable);
    if str::from_utf8(name).is_ok_and(is_like_system_author) {
        return Err(format!(
            "line {at}: the name is reserved for the program's own changes, or looks like it; expected another name"
        ));
    }
    let Some(name) = str::from_utf8(name).ok().filter(is_valid) else {
        return Err(format!("line {at}: expected a printable name of at most {MAX_NAME_BYTES} bytes"));
    };
    let role = match role {
        b"viewer" => Role::Viewer,
        b"operator" => Role::Operator,
        _ => return Err(format!("line {at}: expected viewer or operator after the name")),
    };
    Ok((digest(token, at)?, Caller { name: name.into(), role }))
}

fn digest(token: &[u8], at: usize) -> Result<TokenDigest, String> {
    // Clients do not agree on other characters in a header.
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err(format!("line {at}: expected a token of printable ASCII characters"));
    }
    if token.len() < MIN_TOKEN_BYTES {
        return Err(format!("line {at}: expected a token of {MIN_TOKEN_BYTES} bytes or more"));
    }
    Ok(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use tollgate_fixtures::temporary_file;

    #[test]
    fn tokens_are_reloaded_and_kept_while_their_file_is_invalid() {
        let (_directory, path) = temporary_file("token");
        fs::write(&path, "too-short").expect("written");
        let error = Tokens::load(path.clone()).map(|_| ()).expect_err("refused");
        assert!(error.starts_with("--admin-token-file: ") && !error.contains("too-short"), "{error}");

        fs::write(&path, "first-0123456789\n").expect("written");
        let (tokens, _) = Tokens::load(path.clone()).expect("good");
        assert!(tokens.caller(b"first-0123456789").is_some());
        assert!(tokens.caller(b"first-012345678").is_none() && tokens.caller(b"").is_none());
        let mut polled = Polled::new(read(&path));
        for (text, holds) in [
            ("short", "first-0123456789"),
            ("second-0123456789", "second-0123456789"),
            ("ann viewer third-0123456789\n#", "third-0123456789"),
        ] {
            // The first half may be valid too.
            for text in [&text[..text.len() - 1], text] {
                fs::write(&path, text).expect("written");
                tokens.update(polled.changed(read(&path)));
            }
            let last = text.as_bytes();
            assert!(tokens.caller(last).is_none(), "active though it may still be written");
            tokens.update(polled.changed(read(&path)));
            assert!(tokens.caller(holds.as_bytes()).is_some(), "{text}");
        }
        assert!(tokens.caller(b"first-0123456789").is_none());
        assert!(tokens.caller(b"second-0123456789").is_none());

        fs::write(&path, vec![b'x'; (1 << 20) + 1]).expect("written");
        assert!(read(&path).is_err());
    }

    const FILE: &str = "# tokens\n\nann  operator  ann-0123456789abcd\n bob\tviewer bob-0123456789abcd \n";

    fn lookup(text: &str, token: &str) -> Option<(String, Role)> {
        let table = TokenTable::parse(text.as_bytes()).expect("good");
        table.caller(token.as_bytes()).map(|caller| (caller.name.to_string(), caller.role))
    }

    #[test]
    fn each_token_identifies_its_caller() {
        assert_eq!(lookup(FILE, "ann-0123456789abcd"), Some(("ann".to_owned(), Role::Operator)));
        assert_eq!(lookup(FILE, "bob-0123456789abcd"), Some(("bob".to_owned(), Role::Viewer)));
        for wrong in ["", "ann", "ann-0123456789abc", "ann operator ann-0123456789abcd", "# tokens"] {
            assert_eq!(lookup(FILE, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_alone_belongs_to_admin() {
        for file in ["first-0123456789", " first-0123456789\n", "# today's\r\nfirst-0123456789\r\n"] {
            assert_eq!(
                lookup(file, "first-0123456789"),
                Some(("admin".to_owned(), Role::Operator)),
                "{file}"
            );
        }
    }

    #[test]
    fn errors_have_the_line_and_nothing_of_its_text() {
        let other = "\nsecret-name viewer secret-0123456789";
        for (file, expected) in [
            ("secret".to_owned(), "line 1: expected a token of 16 bytes"),
            ("# nothing\n".to_owned(), "no token; expected one of 16 bytes"),
            (format!("secret operator{other}"), "line 1: expected NAME ROLE TOKEN"),
            (format!("secret operator secret-0123456789 x{other}"), "line 1: expected NAME ROLE TOKEN"),
            (
                format!("\n\nsecret-0123456789 secret secret-0123456789{other}"),
                "line 3: expected viewer or operator",
            ),
            ("\u{feff}secret-0123456789".to_owned(), "unexpected byte order mark; expected plain UTF-8"),
            ("secret-0123456789é".to_owned(), "line 1: expected a token of printable ASCII"),
            ("secret-0123456789\0".to_owned(), "line 1: expected a token of printable ASCII"),
            (format!("\u{202e}secret viewer secret-9876543210{other}"), "line 1: expected a printable name"),
            (format!("toll.gate viewer secret-9876543210{other}"), "line 1: the name is reserved"),
            (format!("secret viewer secret-01234567{other}"), "line 1: expected a token of 16 bytes"),
            (format!("secret viewer secret-0123456789{other}"), "line 2: duplicate of the token in line 1"),
            (
                format!("secret-name viewer secret-9876543210{other}"),
                "line 2: duplicate of the name in line 1",
            ),
        ] {
            let error = TokenTable::parse(file.as_bytes()).expect_err("refused");
            assert!(error.starts_with(expected) && !error.contains("secret"), "{file:?}: {error}");
        }
        let many: String = (0..=MAX_TOKENS).map(|at| format!("n{at} viewer token-{at:020}\n")).collect();
        assert!(TokenTable::parse(many.as_bytes()).is_err());
        assert!(!format!("{:?}", TokenTable::parse(FILE.as_bytes())).contains("0123"));
    }
}
