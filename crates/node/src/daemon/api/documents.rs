//! Documents that the program makes of more than the daemon knows, kept for some seconds, and changes of what they show.

use super::path_matrix::{MAX_NODES, PathMatrix};
use axum::body::Bytes;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_uplinks::interfaces::Change;
use thalweg_wire::mesh::{ApiError, measure::PathsReply};
use tokio::sync::Mutex;

/// How long a failure to make the document of paths is kept: asking an oracle that is down takes time.
const FAILURE_VALIDITY: Duration = Duration::from_secs(10);

/// How long the document of interfaces is kept: pages show it once a second.
const INTERFACES_VALIDITY: Duration = Duration::from_millis(900);

/// Makes the documents. Blocking work is its own business: the daemon awaits it on a thread of the runtime.
pub trait Documents: fmt::Debug + Send + Sync {
    /// What is known of paths: the document of `thalweg paths --full --json`.
    fn paths(&self) -> BoxFuture<'_, Result<PathDocument, ApiError>>;

    /// The interfaces of this host: the document of `thalweg interfaces status --json`.
    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>>;

    /// Makes these changes, in order, in all running processes of this host, as `thalweg interfaces` does. Returns the
    /// document of interfaces afterwards.
    fn change_interfaces(&self, changes: Vec<Change>) -> BoxFuture<'_, Result<Value, ApiError>>;
}

/// What is known of paths. As JSON it is the document of `thalweg paths --full --json`.
#[derive(Clone, Debug, Serialize)]
pub struct PathDocument {
    /// The oracle's answer, which is long for a large mesh.
    pub paths: Option<PathsReply>,
    /// The other fields, an object.
    #[serde(flatten)]
    pub rest: Value,
    /// How long ago the oracle was asked.
    #[serde(skip)]
    pub age: Duration,
    /// How long the document is kept: making it asks the oracle, and stores its answer.
    #[serde(skip)]
    pub valid_for: Duration,
}

/// Makes no documents, for daemons without a program around them.
#[derive(Clone, Copy, Debug)]
pub struct NoDocuments;

impl NoDocuments {
    fn refuse<T>() -> BoxFuture<'static, Result<T, ApiError>> {
        let message = "this daemon does not make this document".to_owned();
        Box::pin(async { Err(ApiError { code: "no_document".to_owned(), message }) })
    }
}

impl Documents for NoDocuments {
    fn paths(&self) -> BoxFuture<'_, Result<PathDocument, ApiError>> {
        Self::refuse()
    }

    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        Self::refuse()
    }

    fn change_interfaces(&self, _: Vec<Change>) -> BoxFuture<'_, Result<Value, ApiError>> {
        Self::refuse()
    }
}

/// The documents as they were last made. Requests that arrive while one is being made wait for it.
#[derive(Debug)]
pub struct DocumentCache {
    documents: Arc<dyn Documents>,
    paths: Mutex<KnownPaths>,
    interfaces: Mutex<Option<Made>>,
}

/// What is known of paths, as it was last made.
#[derive(Debug)]
struct KnownPaths {
    /// When it was made, and how long it is kept.
    made: Option<(Instant, Duration)>,
    document: Result<Arc<PathDocument>, ApiError>,
    /// When the clock of the matrix began.
    began: Instant,
    matrix: PathMatrix,
    /// The number of nodes, if they are too many for a matrix.
    too_many: Option<usize>,
}

impl KnownPaths {
    fn new() -> Self {
        let mut run = [0; 8];
        // Without random bytes a client that outlives the daemon may need to be loaded again.
        _ = getrandom::fill(&mut run);
        let none = ApiError { code: "no_paths".to_owned(), message: String::new() };
        let matrix = PathMatrix::new(u64::from_le_bytes(run));
        Self { made: None, document: Err(none), began: Instant::now(), matrix, too_many: None }
    }

    /// Makes the document again if it is too old.
    async fn refresh(&mut self, documents: &dyn Documents) -> Result<Arc<PathDocument>, ApiError> {
        if self.made.is_none_or(|(at, validity)| at.elapsed() >= validity) {
            let document = documents.paths().await;
            let validity = document.as_ref().map_or(FAILURE_VALIDITY, |made| made.valid_for);
            if let Ok(document) = &document {
                self.fill(document);
            }
            self.made = Some((Instant::now(), validity));
            self.document = document.map(Arc::new);
        }
        self.document.clone()
    }

    fn fill(&mut self, document: &PathDocument) {
        let mut rest = document.rest.clone();
        let empty = PathsReply::default();
        let paths = document.paths.as_ref();
        if let Some(fields) = rest.as_object_mut() {
            // All but what the cells tell.
            fields.insert("paths".to_owned(), paths.map_or(Value::Null, without_legs));
        }
        let now = self.began.elapsed();
        let reply = paths.unwrap_or(&empty);
        self.too_many = self.matrix.update(reply, document.age, &rest, now).err();
    }
}

/// The oracle's answer without nodes and legs.
fn without_legs(reply: &PathsReply) -> Value {
    serde_json::json!({
        "down": reply.down, "disagreements": reply.disagreements, "measuring": reply.measuring,
    })
}

/// The matrix for a client that has an earlier one.
#[derive(Debug)]
pub struct MatrixReply {
    /// The version that the client has then, in quotes.
    pub etag: String,
    /// `None`: the client has it already.
    pub body: Option<Bytes>,
}

#[derive(Debug)]
struct Made {
    at: Instant,
    document: Result<Bytes, ApiError>,
}

impl DocumentCache {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        let (paths, interfaces) = (Mutex::new(KnownPaths::new()), Mutex::default());
        Self { documents, paths, interfaces }
    }

    /// The document of paths.
    ///
    /// # Errors
    /// If nothing is known, or it cannot be read.
    pub async fn paths(&self) -> Result<Arc<PathDocument>, ApiError> {
        self.paths.lock().await.refresh(&*self.documents).await
    }

    /// The changes of the matrix since the version `known`, unless the client has the newest one, as its `If-None-Match`
    /// tells.
    ///
    /// # Errors
    /// If nothing is known, it cannot be read, or there are too many nodes.
    pub async fn matrix(
        &self,
        known: Option<&str>,
        if_none_match: &str,
    ) -> Result<MatrixReply, ApiError> {
        let mut paths = self.paths.lock().await;
        let valid_for = paths.refresh(&*self.documents).await?.valid_for;
        if let Some(nodes) = paths.too_many {
            let message = format!(
                "the mesh has {nodes} nodes, more than the {MAX_NODES} that a matrix can show; \
                 `thalweg paths` shows them"
            );
            return Err(ApiError { code: "no_matrix".to_owned(), message });
        }
        let etag = format!("\"{}\"", paths.matrix.version());
        let is_known = if_none_match.split(',').any(|tag| tag.trim() == etag);
        let encode = || paths.matrix.encode(known, paths.began.elapsed(), valid_for);
        let body = (!is_known).then(encode);
        Ok(MatrixReply { etag, body })
    }

    /// The document of interfaces.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn interfaces(&self) -> Result<Bytes, ApiError> {
        recent(&self.interfaces, INTERFACES_VALIDITY, || self.documents.interfaces()).await
    }

    /// Makes these changes. Returns the document of interfaces afterwards, which replaces the kept one.
    ///
    /// # Errors
    /// If no process runs, or one refuses.
    pub async fn change_interfaces(&self, changes: Vec<Change>) -> Result<Bytes, ApiError> {
        let mut last = self.interfaces.lock().await;
        // After a failure some processes may have changed.
        *last = None;
        let document = self.documents.change_interfaces(changes).await?;
        let document = Bytes::from(document.to_string());
        *last = Some(Made { at: Instant::now(), document: Ok(document.clone()) });
        Ok(document)
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
    use serde_json::json;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[derive(Debug, Default)]
    struct Counting(AtomicU64);

    impl Documents for Counting {
        fn paths(&self) -> BoxFuture<'_, Result<PathDocument, ApiError>> {
            let n = self.0.fetch_add(1, Relaxed);
            Box::pin(async move {
                tokio::task::yield_now().await;
                let (age, valid_for) = (Duration::ZERO, Duration::from_secs(3600));
                let paths = Some(PathsReply::default());
                Ok(PathDocument { paths, rest: json!({ "n": n }), age, valid_for })
            })
        }

        fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
            self.0.fetch_add(1, Relaxed);
            NoDocuments::refuse()
        }

        fn change_interfaces(&self, _: Vec<Change>) -> BoxFuture<'_, Result<Value, ApiError>> {
            let n = self.0.fetch_add(1, Relaxed);
            Box::pin(async move { Ok(n.into()) })
        }
    }

    #[tokio::test]
    async fn a_document_is_made_once_for_all_who_ask_within_its_validity() {
        let made = Arc::new(Counting::default());
        let cache = DocumentCache::new(made.clone());
        let (first, second) = tokio::join!(cache.paths(), cache.paths());
        assert_eq!(first.unwrap().rest, second.unwrap().rest);
        let matrix = cache.matrix(None, "").await.unwrap();
        assert!(matrix.body.is_some());
        let again = cache.matrix(None, &matrix.etag).await.unwrap();
        assert_eq!((again.etag, again.body), (matrix.etag, None));
        let refused = cache.interfaces().await.unwrap_err();
        assert_eq!(cache.interfaces().await.unwrap_err(), refused);
        assert_eq!(made.0.load(Relaxed), 2);
        cache.change_interfaces(Vec::new()).await.unwrap();
        let later = recent(&cache.interfaces, INTERFACES_VALIDITY, || made.interfaces()).await;
        assert_eq!(later.unwrap(), Bytes::from("2"), "the reply to the change");
    }
}
