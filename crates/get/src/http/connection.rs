//! One connection to one server, HTTP/1.1 or HTTP/2.

use super::{
    READ_AT_ONCE,
    first_answer::Notes,
    wire::{Wire, beneath_tls},
};
use crate::{HttpSettings, NotHttp, PathError};
use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    Request, Response, Uri, Version,
    body::Incoming,
    client::conn::{http1, http2},
    ext::on_informational,
    header,
    rt::Executor,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use thalweg_net::{Destination, Monitor, Route, Stream};
use thalweg_paths::inward_redirect;
use thalweg_paths::url::HttpUrl;
use tokio::{sync::Notify, task::JoinSet};

/// The HTTP/2 flow-control window, of one stream and of the connection, bytes.
///
/// A connection carries one large answer at a time, so both are the same. 16 MiB fill 1 Gbit/s at 130 ms; HTTP's
/// default of 64 kB would allow 4 Mbit/s there. The window is not adaptive: hyper's estimate takes many round trips to
/// grow, and by then a path is already judged. When the window is full, the server waits.
const WINDOW: u32 = 16 << 20;

/// The most fields of an answer on HTTP/1.1, as in curl. Real sites exceed the parser's default of 100 with cookies and
/// links. [`READ_AT_ONCE`] bounds their bytes in any case.
const MAX_FIELDS: usize = 5000;

/// The largest field section on HTTP/2, by the count of RFC 9113 §6.5.2 (32 bytes more for each field).
const MAX_FIELD_LIST: u32 = 320 << 10;

/// The most interim answers (1xx, RFC 9110 §15.2) before the final one: honest servers send one or two, or a 102 every
/// few seconds. For each one hyper starts reading an answer again, without a limit. On HTTP/2 only the timeout of the
/// first answer bounds them.
const MAX_INTERIM: usize = 16;

/// A connection to one server. Closed when dropped, even in the middle of an answer.
///
/// On HTTP/1.1, dropping an answer's body early closes the connection too; on HTTP/2 it tells the server to stop
/// (RST_STREAM), and the connection can be used again.
pub(crate) struct Connection {
    send: RequestSender,
    tasks: Tasks,
    allowed_urls: AllowedUrls,
    /// Observations about the first answer.
    notes: Arc<Notes>,
    /// Reads the kernel's counters; of no connection in tests of HTTP alone.
    monitor: Monitor,
}

/// Which URLs of its origin a connection may serve.
#[derive(Clone, Debug)]
enum AllowedUrls {
    /// All: the peer has a public address, or the path is relayed and the relay's rules apply.
    All,
    /// URLs that the user gave, and redirects from this destination, if any: the peer is inside this network, where
    /// redirects from other sites may not lead.
    Inward(Option<Destination>),
}

enum RequestSender {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    /// Dials the server of `url` over `route`, with TLS if the URL says so.
    ///
    /// # Errors
    /// [`PathError`] if the connection fails, the server cannot prove its name, or a redirect leads to a forbidden
    /// address.
    pub(crate) async fn open(
        web: &HttpSettings,
        route: &Route,
        url: &HttpUrl,
    ) -> Result<Self, PathError> {
        let dial = web.dialer.dial(route, url.destination());
        if !url.is_https() {
            let stream = dial.await?;
            let (monitor, allowed_urls) = (stream.monitor(), allowed_urls(&stream, url).await?);
            let wire = Wire::plain(stream.closed_on_drop());
            let mut opened = Self::http1(wire, allowed_urls).await?;
            opened.monitor = monitor;
            return Ok(opened);
        }
        let tls = web.tls.as_ref().ok_or(PathError::NoTls)?;
        // Loading the certificate authorities takes as long as a short round trip.
        let (stream, _) = tokio::join!(dial, tls.prepare());
        let stream = stream?;
        let (monitor, allowed_urls) = (stream.monitor(), allowed_urls(&stream, url).await?);
        let beneath = beneath_tls(stream.closed_on_drop());
        let secured = tls.connect(beneath, &url.destination().host).await?;
        let http2 = secured.get_ref().1.alpn_protocol() == Some(b"h2");
        let wire = Wire::tls(secured);
        let mut opened = match http2 {
            true => Self::http2(wire, allowed_urls).await?,
            false => Self::http1(wire, allowed_urls).await?,
        };
        opened.monitor = monitor;
        Ok(opened)
    }

    /// Reads the kernel's counters of the connection, also while it is used.
    pub(crate) fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    async fn http1(wire: Wire, allowed_urls: AllowedUrls) -> Result<Self, PathError> {
        // Accept lines that a strict parser refuses. Folded lines must be accepted (RFC 9112 §5.2); other invalid lines
        // are no fields that a download needs, so they are skipped, as in curl and wget.
        let notes = wire.notes();
        let (send, connection) = http1::Builder::new()
            .max_buf_size(READ_AT_ONCE)
            // Some servers expect `Host:` in the usual capitals, although field names are case-insensitive.
            .title_case_headers(true)
            .max_headers(MAX_FIELDS)
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(PathError::http)?;
        let tasks = Tasks::default();
        // Its errors also appear in the answer that they affect.
        tasks.execute(async move { _ = connection.await });
        let monitor = Monitor::default();
        Ok(Self { send: RequestSender::Http1(send), tasks, allowed_urls, notes, monitor })
    }

    async fn http2(wire: Wire, allowed_urls: AllowedUrls) -> Result<Self, PathError> {
        let tasks = Tasks::default();
        let (send, connection) = http2::Builder::new(tasks.clone())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_FIELD_LIST)
            .handshake(TokioIo::new(wire.unread()))
            .await
            .map_err(PathError::http)?;
        tasks.execute(async move { _ = connection.await });
        let (notes, monitor) = (Arc::default(), Monitor::default());
        Ok(Self { send: RequestSender::Http2(send), tasks, allowed_urls, notes, monitor })
    }

    /// Whether the connection may be used for `url`, if `url` has its origin.
    pub(crate) fn serves(&self, url: &HttpUrl) -> bool {
        match (&self.allowed_urls, url.given()) {
            (AllowedUrls::All, _) | (_, None) => true,
            (AllowedUrls::Inward(from), Some(given)) => from.as_ref() == Some(&given.destination),
        }
    }

    /// Whether the connection is open. False once the server has closed it.
    pub(crate) fn is_open(&self) -> bool {
        match &self.send {
            RequestSender::Http1(_) if self.notes.is_single() => false,
            RequestSender::Http1(send) => !send.is_closed(),
            RequestSender::Http2(send) => !send.is_closed(),
        }
    }

    /// Sends a request, with its target in origin form and a `Host` field, and waits for
    /// the head of its answer.
    pub(crate) async fn ask(
        &mut self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<Incoming>, PathError> {
        match &mut self.send {
            RequestSender::Http1(send) => {
                send.ready().await.map_err(PathError::no_answer)?;
                let (request, flood) = counted(request);
                tokio::select! {
                    // A received answer counts, even if there were too many interim answers before it.
                    biased;
                    response = send.send_request(request) => {
                        response.map_err(|error| unread(error, &self.notes))
                    }
                    () = flood.notified() => Err(PathError::Interim(MAX_INTERIM)),
                }
            }
            RequestSender::Http2(send) => {
                send.ready().await.map_err(PathError::no_answer)?;
                let response = send.send_request(in_http2(request)).await;
                response.map_err(PathError::no_answer)
            }
        }
    }
}

/// The error for an answer that could not be read: the bytes are not HTTP, or none arrived.
fn unread(error: hyper::Error, notes: &Notes) -> PathError {
    if !error.is_parse() {
        return PathError::no_answer(error);
    }
    match notes.bad_length() {
        Some(value) => PathError::BadLength(value),
        None => PathError::NotHttp(NotHttp::new(&notes.began(), &error)),
    }
}

/// Counts the interim answers to `request`. The returned `Notify` is notified if there are too many.
fn counted(mut request: Request<Empty<Bytes>>) -> (Request<Empty<Bytes>>, Arc<Notify>) {
    let flood = Arc::new(Notify::new());
    let (tell, count) = (Arc::clone(&flood), AtomicUsize::new(0));
    on_informational(&mut request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == MAX_INTERIM {
            tell.notify_one();
        }
    });
    (request, flood)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

/// Converts a request to HTTP/2: `:scheme` and `:authority` instead of `Host` (RFC 9113 §8.3.1). The authority is the
/// value of `Host`, even if the user set it.
fn in_http2(mut request: Request<Empty<Bytes>>) -> Request<Empty<Bytes>> {
    let host = request.headers_mut().remove(header::HOST);
    let authority = host.as_ref().and_then(|h| h.to_str().ok()).unwrap_or_default();
    let target = request.uri().path_and_query().map_or("/", |t| t.as_str());
    let uri = Uri::builder().scheme("https").authority(authority).path_and_query(target);
    // The parts come from a URL, so this succeeds; otherwise hyper refuses the request.
    *request.uri_mut() = uri.build().unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request
}

/// The URLs that `stream` may serve. For direct paths only: a redirect into this network is refused unless it is
/// allowed. Relayed paths follow the relay's own rules.
async fn allowed_urls(stream: &Stream, url: &HttpUrl) -> Result<AllowedUrls, PathError> {
    // If the peer is already gone, the first read reports it.
    let peer =
        stream.tcp().filter(|_| stream.route().is_direct()).and_then(|tcp| tcp.peer_addr().ok());
    let Some(peer) = peer.filter(|peer| inward_redirect::is_inside(peer.ip())) else {
        return Ok(AllowedUrls::All);
    };
    let Some(given) = url.given() else { return Ok(AllowedUrls::Inward(None)) };
    let checked =
        inward_redirect::check_peer(&url.destination().host, peer.ip(), &given.destination).await;
    checked.map_err(|why| PathError::Redirect(why.into()))?;
    Ok(AllowedUrls::Inward(Some(given.destination.clone())))
}

/// A connection's tasks, which are aborted with it. HTTP/2 uses one more for each request.
#[derive(Clone, Default)]
struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    fn abort(&self) {
        self.0.lock().abort_all();
    }
}

impl<F: Future<Output = ()> + std::marker::Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut tasks = self.0.lock();
        // Remove finished tasks.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

#[cfg(test)]
mod tests;
