//! A minimal file server for a directory: lengths, strong tags, single ranges, and uploads, whose bytes it counts.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinSet};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: String,
    pub path: String,
    pub via: String,
    pub content: usize,
}

/// The server; stops when dropped.
pub struct Files {
    pub at: SocketAddr,
    asks: Arc<Mutex<Vec<Ask>>>,
    _tasks: JoinSet<()>,
}

impl Files {
    pub async fn serve(directory: &Path, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let at = listener.local_addr().unwrap();
        let asks: Arc<Mutex<Vec<Ask>>> = Arc::default();
        let mut tasks = JoinSet::new();
        let (directory, noted) = (directory.to_owned(), Arc::clone(&asks));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let (directory, noted) = (directory.clone(), Arc::clone(&noted));
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let (directory, noted) = (directory.clone(), Arc::clone(&noted));
                        async move { Ok::<_, Infallible>(answer(directory, &noted, request).await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    _ = http.serve_connection(TokioIo::new(tcp), service).await;
                });
            }
        });
        Self { at, asks, _tasks: tasks }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.at)
    }

    /// All requests so far.
    pub fn asks(&self) -> Vec<Ask> {
        self.asks.lock().unwrap().clone()
    }

    /// The number of requests through the proxy, which adds itself to `Via`.
    pub fn by_proxy(&self) -> usize {
        self.asks().iter().filter(|ask| ask.via.contains("thalweg-")).count()
    }
}

async fn answer(
    directory: PathBuf,
    asks: &Mutex<Vec<Ask>>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let content = body.collect().await.map_or(0, |c| c.to_bytes().len());
    let field = |name: &str| head.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    asks.lock().unwrap().push(Ask {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        via: field("via").unwrap_or_default(),
        content,
    });
    if matches!(head.method, Method::PUT | Method::POST) {
        let counted = Bytes::from(format!("{content} bytes"));
        return Response::builder().status(201).body(Full::new(counted)).unwrap();
    }
    let file = directory.join(head.uri.path().trim_start_matches('/'));
    let Ok(bytes) = std::fs::read(&file).map(Bytes::from) else {
        return Response::builder().status(404).body(Full::default()).unwrap();
    };
    let response = Response::builder()
        .header("accept-ranges", "bytes")
        .header(
            "content-type",
            if file.extension().is_some_and(|e| e == "html") {
                "text/html"
            } else {
                "application/octet-stream"
            },
        )
        .header("etag", format!("\"{}\"", blake(&bytes)));
    let Some((first, last)) = field("range").and_then(|r| range(&r, bytes.len())) else {
        return response.body(Full::new(bytes)).unwrap();
    };
    let of = format!("bytes {first}-{}/{}", last - 1, bytes.len());
    let part = response.status(StatusCode::PARTIAL_CONTENT).header("content-range", of);
    part.body(Full::new(bytes.slice(first..last))).unwrap()
}

/// A checksum, enough to tell two files of a test apart.
fn blake(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(7u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
    format!("{sum:x}-{:x}", bytes.len())
}

fn range(text: &str, length: usize) -> Option<(usize, usize)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    let last = last.parse::<usize>().map_or(length, |last| (last + 1).min(length));
    (first < last).then_some((first, last))
}

/// Content of `n` bytes in which no two offsets look the same.
pub fn bytes(n: u32) -> Vec<u8> {
    (0..n.div_ceil(4)).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}
