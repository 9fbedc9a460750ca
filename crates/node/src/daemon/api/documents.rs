//! Documents that the program makes of more than the daemon knows, kept for some seconds.

use axum::body::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_wire::mesh::ApiError;
use tokio::sync::Mutex;

/// How long the document of paths is kept: making it asks the oracle, and stores its answer.
const PATHS_VALIDITY: Duration = Duration::from_secs(10);

/// How long the document of interfaces is kept: pages show it once a second.
const INTERFACES_VALIDITY: Duration = Duration::from_millis(900);

/// Makes the documents. Blocking work is its own business: the daemon awaits it on a thread of the runtime.
pub trait Documents: fmt::Debug + Send + Sync {
    /// What is known of paths: the document of `thalweg paths --full --json`.
    fn paths(&self) -> BoxFuture<'_, Result<Value, ApiError>>;

    /// The interfaces of this host: the document of `thalweg interfaces status --json`.
    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>>;
}

/// Makes no documents, for daemons without a program around them.
#[derive(Clone, Copy, Debug)]
pub struct NoDocuments;

impl NoDocuments {
    fn refuse() -> BoxFuture<'static, Result<Value, ApiError>> {
        let message = "this daemon does not make this document".to_owned();
        Box::pin(async { Err(ApiError { code: "no_document".to_owned(), message }) })
    }
}

impl Documents for NoDocuments {
    fn paths(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        Self::refuse()
    }

    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        Self::refuse()
    }
}

/// The documents as they were last made. Requests that arrive while one is being made wait for it.
#[derive(Debug)]
pub struct DocumentCache {
    documents: Arc<dyn Documents>,
    paths: Mutex<Option<Made>>,
    interfaces: Mutex<Option<Made>>,
}

#[derive(Debug)]
struct Made {
    at: Instant,
    document: Result<Bytes, ApiError>,
}

impl DocumentCache {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self { documents, paths: Mutex::default(), interfaces: Mutex::default() }
    }

    /// The document of paths.
    ///
    /// # Errors
    /// If nothing is known, or it cannot be read.
    pub async fn paths(&self) -> Result<Bytes, ApiError> {
        recent(&self.paths, PATHS_VALIDITY, || self.documents.paths()).await
    }

    /// The document of interfaces.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn interfaces(&self) -> Result<Bytes, ApiError> {
        recent(&self.interfaces, INTERFACES_VALIDITY, || self.documents.interfaces()).await
    }
}

/// The document if it is recent; otherwise makes it. Failures are kept, too: asking an oracle that is down takes time.
async fn recent<'a>(
    last: &Mutex<Option<Made>>,
    validity: Duration,
    make: impl FnOnce() -> BoxFuture<'a, Result<Value, ApiError>>,
) -> Result<Bytes, ApiError> {
    let mut last = last.lock().await;
    if let Some(made) = last.as_ref().filter(|made| made.at.elapsed() < validity) {
        return made.document.clone();
    }
    let document = make().await.map(|value| Bytes::from(value.to_string()));
    *last = Some(Made { at: Instant::now(), document: document.clone() });
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl Documents for Counting {
        fn paths(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
            let n = self.0.fetch_add(1, Relaxed);
            Box::pin(async move {
                tokio::task::yield_now().await;
                Ok(n.into())
            })
        }

        fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
            self.0.fetch_add(1, Relaxed);
            NoDocuments::refuse()
        }
    }

    #[tokio::test]
    async fn a_document_is_made_once_for_all_who_ask_within_its_validity() {
        let made = Arc::new(Counting::default());
        let cache = DocumentCache::new(made.clone());
        let (first, second) = tokio::join!(cache.paths(), cache.paths());
        assert_eq!((first.unwrap(), second.unwrap()), (Bytes::from("0"), Bytes::from("0")));
        let refused = cache.interfaces().await.unwrap_err();
        assert_eq!(cache.interfaces().await.unwrap_err(), refused);
        assert_eq!(made.0.load(Relaxed), 2);
        let later = recent(&cache.paths, Duration::ZERO, || made.paths()).await.unwrap();
        assert_eq!(later, Bytes::from("2"));
    }
}
