//! Cache of a page that is expensive to render and the same for all clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::{body::Bytes, extract::State, response::IntoResponse};
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// Maximum number of different pages being sent; beyond it, clients share the latest one.
const MAX_UNSHARED: usize = 4;

/// Maximum age of a shared page.
const MAX_SHARED_AGE: Duration = Duration::from_secs(1);

/// Renders a page, once at a time. Clients that do not read their response use little memory, as they share pages.
#[derive(Clone)]
pub struct CachedPage {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    latest: Arc<Mutex<Option<RenderedPage>>>,
    /// Held by each page in memory; its reference count is their number.
    in_memory: Arc<()>,
}

struct RenderedPage {
    started_at: Instant,
    bytes: Bytes,
}

/// Text of a page; dropped with the last response that it is sent in.
struct PageText {
    text: String,
    _in_memory: Arc<()>,
}

impl AsRef<[u8]> for PageText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Responds with a page of plain text.
pub async fn plain_text(State(page): State<CachedPage>) -> Result<impl IntoResponse, StatusCode> {
    let text = page.get().await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], text))
}

impl CachedPage {
    pub fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self { render: Arc::new(render), latest: Arc::default(), in_memory: Arc::default() }
    }

    /// The current page, or one up to a second old while many responses are not read.
    ///
    /// # Errors
    /// If rendering panicked, which is logged.
    pub async fn get(&self) -> Result<Bytes, JoinError> {
        let requested_at = Instant::now();
        let mut latest = Arc::clone(&self.latest).lock_owned().await;
        // Two of the references are the latest page and `self`.
        let are_many = Arc::strong_count(&self.in_memory) > MAX_UNSHARED;
        let is_fresh = |rendered: &&RenderedPage| {
            rendered.started_at >= requested_at || are_many && rendered.started_at.elapsed() < MAX_SHARED_AGE
        };
        if let Some(rendered) = latest.as_ref().filter(is_fresh) {
            return Ok(rendered.bytes.clone());
        }
        let page = self.clone();
        // The blocking task holds the lock, so that no second one starts when the request is cancelled.
        spawn_blocking(move || {
            let started_at = Instant::now();
            let text = PageText { text: (page.render)(), _in_memory: Arc::clone(&page.in_memory) };
            let bytes = Bytes::from_owner(text);
            *latest = Some(RenderedPage { started_at, bytes: bytes.clone() });
            bytes
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn counting() -> CachedPage {
        let rendered = AtomicUsize::new(0);
        CachedPage::new(move || rendered.fetch_add(1, Ordering::Relaxed).to_string())
    }

    #[tokio::test]
    async fn pages_are_current_unless_many_are_unread() {
        let page = counting();
        let mut kept = Vec::new();
        for number in 0..10 {
            assert_eq!(page.get().await.expect("a page"), number.to_string());
        }
        for _ in 0..10 {
            kept.push(page.get().await.expect("a page"));
        }
        assert_eq!(kept[0], "10");
        // The first ones hold all unshared pages.
        assert_eq!(kept[9], kept[MAX_UNSHARED - 1]);
        drop(kept);
        assert_ne!(page.get().await.expect("a page"), "10");
    }

    #[tokio::test]
    async fn waiting_clients_share_a_page() {
        let page = counting();
        let got = join_all((0..20).map(|_| page.get())).await;
        assert!(got.iter().all(Result::is_ok));
        let next = page.get().await.expect("a page");
        assert!(["1", "2", "3"].iter().any(|few| next == *few), "{next:?}");
    }

    #[tokio::test]
    async fn rendering_recovers_after_a_panic() {
        let rendered = AtomicUsize::new(0);
        let page = CachedPage::new(move || match rendered.fetch_add(1, Ordering::Relaxed) {
            0 => panic!("on purpose"),
            _ => "good".to_owned(),
        });
        assert!(page.get().await.is_err());
        assert_eq!(page.get().await.expect("a page"), "good");
    }
}
