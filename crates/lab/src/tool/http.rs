//! `http`: a static file server, built on tower-http's `ServeDir` and hyper.
//!
//! `ServeDir` handles GET, HEAD, Range, ETag, Last-Modified, If-(None-)Match and If-(Un)modified-Since, and serves only
//! files in its directory. This module adds If-Range (RFC 9110 §13.1.5): without it a resumed download could mix two
//! versions of a file.

use super::{net, output};
use anyhow::{Context, bail};
use hyper::{
    HeaderMap, Method, Request, Response,
    body::Incoming,
    header::{ETAG, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::TcpListener, path::PathBuf, sync::Arc, time::Duration};
use thalweg_console::note;
use tokio::sync::Semaphore;
use tower_http::services::{ServeDir, fs::ServeFileSystemResponseBody};

/// The most simultaneous connections: far more than any experiment opens, well below 1024 open files.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes read from a file at once.
const CHUNK: usize = 256 * 1024;

/// Arguments of `http`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory to serve
    directory: PathBuf,
    #[command(flatten)]
    at: net::Listening,
}

/// Serves until `--max`.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !args.directory.is_dir() {
        bail!("{} is not a directory", args.directory.display());
    }
    let listener = net::listen(&args.at.listen)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the server's runtime")?;
    let files = ServeDir::new(&args.directory).with_buf_chunk_size(CHUNK);
    let serving = async { tokio::time::timeout(args.at.max, serve_all(listener, files)).await };
    match runtime.block_on(serving) {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

async fn serve_all(listener: TcpListener, files: ServeDir) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    output::print_ready(listener.local_addr()?)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                note!("http: cannot accept a connection: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let files = files.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(files.clone(), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // It is not an error if a client disconnects early.
            let _ = connection.await;
            drop(place);
        });
    }
}

type FileResponse = Response<ServeFileSystemResponseBody>;

async fn answer(
    mut files: ServeDir,
    mut request: Request<Incoming>,
) -> Result<FileResponse, Infallible> {
    if let Some(condition) = request.headers_mut().remove(IF_RANGE)
        && !is_current(&mut files, &request, &condition).await
    {
        request.headers_mut().remove(RANGE);
    }
    Ok(files
        .try_call::<_, ServeFileSystemResponseBody>(request)
        .await
        .unwrap_or_else(failure_response))
}

/// The answer to a request whose file could not be read.
fn failure_response(e: std::io::Error) -> FileResponse {
    note!("http: cannot read a file: {e}");
    let mut response = FileResponse::default();
    *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Whether If-Range matches the present version of the file: the same strong entity tag or exactly the same date (RFC
/// 9110 §13.1.5).
async fn is_current(
    files: &mut ServeDir,
    request: &Request<Incoming>,
    condition: &HeaderValue,
) -> bool {
    let mut head = Request::new(String::new());
    *head.method_mut() = Method::HEAD;
    *head.uri_mut() = request.uri().clone();
    let now = files.try_call::<_, ServeFileSystemResponseBody>(head).await;
    now.is_ok_and(|response| matches_validator(response.headers(), condition))
}

fn matches_validator(now: &HeaderMap, condition: &HeaderValue) -> bool {
    let weak = condition.as_bytes().starts_with(b"W/");
    !weak && [ETAG, LAST_MODIFIED].iter().any(|name| now.get(name) == Some(condition))
}
