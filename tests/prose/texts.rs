//! The prose of a file: comments, docs, and the texts that users and developers read.

use super::*;

/// A piece of prose.
pub(super) struct Text {
    /// Where it begins.
    pub(super) line: usize,
    pub(super) text: String,
    /// Whether it documents an item, so that its beginning is a summary.
    pub(super) is_doc: bool,
}

/// Texts with fewer words are taken for data.
const MIN_WORDS: usize = 3;

/// The prose of a source, in order.
pub(super) fn of(source: &Source) -> Vec<Text> {
    if source.has_extension("rs") {
        rust(&source.tokens)
    } else if source.has_extension("md") {
        markdown(&source.text)
    } else if source.has_extension("lua") {
        commented(&source.text, "--", true)
    } else if source.has_extension("proto") {
        commented(&source.text, "//", true)
    } else if source.has_extension("js") {
        let mut texts = commented(&source.text, "//", false);
        texts.extend(literals(&source.text, 1, " // ", '\''));
        texts
    } else if source.has_extension("py") {
        let mut texts = commented(&source.text, "#", false);
        texts.extend(python_texts(&source.text));
        texts
    } else {
        commented(&source.text, "#", false)
    }
}

/// Joins successive lines of comments, and adds the literals that read as prose and the names of tests.
fn rust(tokens: &[Token]) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let mut last_comment = (0, "");
    for (at, token) in tokens.iter().enumerate() {
        match &token.kind {
            Kind::Comment(comment) => {
                let marker = ["///", "//!", "//"]
                    .into_iter()
                    .find(|marker| comment.starts_with(marker))
                    .unwrap_or("/*");
                let content = comment.trim_start_matches(marker);
                let continues = last_comment == (token.line.saturating_sub(1), marker);
                match texts.last_mut().filter(|_| continues) {
                    Some(text) => text.text.push_str(&format!("\n{}", content.trim())),
                    None => {
                        let text = content.trim().to_owned();
                        texts.push(Text { line: token.line, text, is_doc: matches!(marker, "///" | "//!") });
                    }
                }
                last_comment = (token.line, marker);
            }
            Kind::Text(text) if text.split_whitespace().count() >= MIN_WORDS => {
                texts.push(Text { line: token.line, text: text.clone(), is_doc: false });
                last_comment = (0, "");
            }
            Kind::Word(name) if at > 0 && tokens[at - 1].kind.is("fn") => {
                let text = name.replace('_', " ");
                if text.split(' ').count() > MIN_WORDS {
                    texts.push(Text { line: token.line, text, is_doc: false });
                }
                last_comment = (0, "");
            }
            _ => last_comment = (0, ""),
        }
    }
    texts
}

/// Blocks of comments that stand on lines of their own.
fn commented(text: &str, marker: &str, is_doc: bool) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let mut continues = false;
    for (at, line) in text.lines().enumerate() {
        let Some(content) = line.trim_start().strip_prefix(marker) else {
            continues = false;
            continue;
        };
        match texts.last_mut().filter(|_| continues) {
            Some(text) => text.text.push_str(&format!("\n{}", content.trim())),
            None => texts.push(Text { line: at + 1, text: content.trim().to_owned(), is_doc }),
        }
        continues = true;
    }
    texts
}

/// Docstrings, and other texts that read as prose.
fn python_texts(text: &str) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut line = 1;
    for (at, part) in text.split("\"\"\"").enumerate() {
        if at % 2 == 1 {
            texts.push(Text { line, text: part.to_owned(), is_doc: true });
        } else {
            texts.extend(literals(part, line, " # ", '"'));
        }
        line += part.matches('\n').count();
    }
    texts
}

/// Literals that read as prose, in code that begins at a line.
fn literals(code: &str, first_line: usize, comment: &str, quote: char) -> Vec<Text> {
    let mut texts = Vec::new();
    for (offset, line) in code.lines().enumerate() {
        let line = line.split(comment).next().unwrap_or_default();
        let literals = line.split(quote).skip(1).step_by(2);
        let prose = literals.filter(|literal| literal.split_whitespace().count() >= MIN_WORDS);
        texts.extend(prose.map(|text| Text {
            line: first_line + offset,
            text: text.to_owned(),
            is_doc: false,
        }));
    }
    texts
}

/// Paragraphs, without the content of code blocks.
fn markdown(text: &str) -> Vec<Text> {
    let mut texts: Vec<Text> = Vec::new();
    let mut is_code = false;
    let mut continues = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.trim().is_empty() || line.trim_start().starts_with("```") {
            continues = false;
            continue;
        }
        match texts.last_mut().filter(|_| continues) {
            Some(text) => text.text.push_str(&format!("\n{line}")),
            None => texts.push(Text { line: at + 1, text: line.to_owned(), is_doc: false }),
        }
        continues = true;
    }
    texts
}
