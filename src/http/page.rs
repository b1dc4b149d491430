//! A page that is the same for everyone, and a lot of work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
};
use tokio::{
    sync::Mutex,
    task::{JoinError, spawn_blocking},
};

/// Pages that may be on their way to clients before they are shared.
const IN_FLIGHT: usize = 4;

/// How long one is shared then.
const SHARED: Duration = Duration::from_secs(1);

/// What renders a page, one at a time. What clients do not read costs little: many of them get the same.
#[derive(Clone)]
pub(super) struct Page {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    latest: Arc<Mutex<Option<Rendered>>>,
    /// Held by each page that is still needed.
    needed: Arc<()>,
}

struct Rendered {
    begun: Instant,
    bytes: Bytes,
}

/// A page's text, while anyone needs it.
struct Text {
    text: String,
    _needed: Arc<()>,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Shows a page of plain text.
pub(super) async fn plain(State(page): State<Page>) -> Result<impl IntoResponse, StatusCode> {
    let text = page.get().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], text))
}

impl Page {
    pub(super) fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { render: Arc::new(render), latest: Arc::default(), needed: Arc::default() }
    }

    /// The page as it is now; where clients don't read what they are sent, as it was within the last second.
    ///
    /// # Errors
    /// When rendering panicked, which is logged.
    pub(super) async fn get(&self) -> Result<Bytes, JoinError> {
        let asked = Instant::now();
        let mut latest = Arc::clone(&self.latest).lock_owned().await;
        if let Some(rendered) = latest.as_ref()
            && self.will_do(rendered, asked)
        {
            return Ok(rendered.bytes.clone());
        }
        let page = self.clone();
        // It holds the lock, so that a client that goes away does not let a second one begin beside it.
        spawn_blocking(move || {
            let begun = Instant::now();
            let text = Text { text: (page.render)(), _needed: Arc::clone(&page.needed) };
            let bytes = Bytes::from_owner(text);
            *latest = Some(Rendered { begun, bytes: bytes.clone() });
            bytes
        })
        .await
    }

    /// Whether a page will do for who asked at a time.
    fn will_do(&self, rendered: &Rendered, asked: Instant) -> bool {
        // One of them is the latest, and one is ours.
        let are_many = Arc::strong_count(&self.needed) > IN_FLIGHT;
        rendered.begun >= asked || are_many && rendered.begun.elapsed() < SHARED
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn counting() -> Page {
        let rendered = AtomicUsize::new(0);
        Page::new(move || rendered.fetch_add(1, Ordering::Relaxed).to_string())
    }

    #[tokio::test]
    async fn it_is_as_it_is_now_unless_many_are_not_read() {
        let page = counting();
        let mut kept = Vec::new();
        for number in 0..10 {
            assert_eq!(page.get().await.expect("a page"), number.to_string());
        }
        for _ in 0..10 {
            kept.push(page.get().await.expect("a page"));
        }
        assert_eq!(kept[0], "10");
        // Those in flight, which the first ones took.
        assert_eq!(kept[9], kept[IN_FLIGHT - 1]);
        drop(kept);
        assert_ne!(page.get().await.expect("a page"), "10");
    }

    #[tokio::test]
    async fn those_who_wait_get_one_together() {
        let page = counting();
        let got = join_all((0..20).map(|_| page.get())).await;
        assert!(got.iter().all(Result::is_ok));
        let next = page.get().await.expect("a page");
        assert!(["1", "2", "3"].iter().any(|few| next == *few), "{next:?}");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_one_is_not() {
        let rendered = AtomicUsize::new(0);
        let page = Page::new(move || match rendered.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            _ => "good".to_owned(),
        });
        assert!(page.get().await.is_err());
        assert_eq!(page.get().await.expect("a page"), "good");
    }
}
