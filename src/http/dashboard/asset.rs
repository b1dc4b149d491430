//! A file of the page.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A file of the page, as the browser asks for it.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its path below `/assets/`.
    pub(super) name: &'static str,
    /// What is in it.
    pub(super) text: &'static str,
}

impl Asset {
    /// Tells this text from another one that the browser may have.
    pub(super) fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// What the browser is to take it for, by the name's end.
    pub(super) fn kind(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }
}
