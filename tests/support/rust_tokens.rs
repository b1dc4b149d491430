//! Tokens of Rust sources, as far as the checks of texts and imports need them.

/// A token and the line that it begins in, counted from 1.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

/// The kinds of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A line of a comment with its slashes, or a block comment.
    Comment(String),
    /// The content of a string literal, as written.
    Text(String),
    /// An identifier, a keyword or a number.
    Word(String),
    /// Any other character.
    Sign(char),
}

impl Kind {
    /// Whether this is the word.
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// Characters of a source, read once.
struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, mut belongs: impl FnMut(char) -> bool) -> &'a str {
        let end = self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// Takes up to and including an ending, and returns what stands before it.
    fn take_until(&mut self, ending: &str) -> &'a str {
        let end = self.rest.find(ending).unwrap_or(self.rest.len());
        let text = self.take(end);
        self.take(ending.len().min(self.rest.len()));
        text
    }

    fn text(&mut self) -> &'a str {
        let mut is_escaped = false;
        let text = self.take_while(|character| {
            let is_end = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            !is_end
        });
        self.take(1.min(self.rest.len()));
        text
    }

    /// A raw string after its `r`, if there is one.
    fn raw_text(&mut self) -> Option<&'a str> {
        let marks = self.rest.len() - self.rest.trim_start_matches('#').len();
        if !self.rest[marks..].starts_with('"') {
            return None;
        }
        self.take(marks + 1);
        Some(self.take_until(&format!("\"{}", "#".repeat(marks))))
    }

    /// A character literal or a lifetime after its quote: neither has a text of interest.
    fn quoted(&mut self) {
        let mut characters = self.rest.chars();
        match (characters.next(), characters.next()) {
            (Some('\\'), _) => {
                self.take(2);
                self.take_until("'");
            }
            (Some(first), Some('\'')) => {
                self.take(first.len_utf8() + 1);
            }
            _ => {}
        }
    }

    fn word(&mut self) -> Kind {
        let word = self.take_while(|character| character.is_alphanumeric() || character == '_');
        if matches!(word, "r" | "br")
            && let Some(text) = self.raw_text()
        {
            return Kind::Text(text.to_owned());
        }
        if word == "b" && self.rest.starts_with('\'') {
            self.take(1);
            self.quoted();
        }
        Kind::Word(word.to_owned())
    }
}

/// The tokens of a source.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, line: 1 };
    let mut tokens = Vec::new();
    loop {
        reader.take_while(char::is_whitespace);
        let line = reader.line;
        let Some(first) = reader.rest.chars().next() else { return tokens };
        let kind = if reader.rest.starts_with("//") {
            Kind::Comment(reader.take_while(|character| character != '\n').to_owned())
        } else if reader.rest.starts_with("/*") {
            Kind::Comment(reader.take_until("*/").to_owned())
        } else if first == '"' {
            reader.take(1);
            Kind::Text(reader.text().to_owned())
        } else if first == '\'' {
            reader.take(1);
            reader.quoted();
            continue;
        } else if first.is_alphanumeric() || first == '_' {
            reader.word()
        } else {
            reader.take(first.len_utf8());
            Kind::Sign(first)
        };
        tokens.push(Token { line, kind });
    }
}
