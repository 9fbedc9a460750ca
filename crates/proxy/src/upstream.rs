//! Sends a request to an origin and gets its answer, on an idle origin connection or a new one.

use super::{
    assignment::{self, fits, without_interface},
    body::Outgoing,
    counted_stream::CountedStream,
    fields,
    pool::{Lease, OriginConnection, Owner},
    record::Record,
    request_line::RequestLine,
    silence::wait_for_silence,
    state::{ConnectError, ProxyState},
};
use hyper::{Request, Response, body::Incoming, client::conn::http1, http::request::Parts};
use hyper_util::rt::TokioIo;
use std::{
    future::pending,
    num::NonZeroU32,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_paths::chooser::{Content, DIRECT, PathReport};
use thalweg_uplinks::interfaces::{Client, Lanes};
use thalweg_wire::Destination;
use thiserror::Error;
use tokio::time::sleep;

/// The most fields of a message. Browsers send some dozens, servers fewer; the cookies and links of some pages exceed
/// hyper's 100.
pub const MAX_FIELDS: usize = 512;

/// The head of an answer, and the origin connection that delivers its content.
pub struct UpstreamAnswer {
    /// The head; its content is still to come.
    pub response: Response<Incoming>,
    pub lease: Lease,
    /// The name of its path.
    pub path: String,
    /// Time from dialling until the origin connection was established.
    pub setup: Duration,
    /// The interface that it leaves by, if it was assigned to one.
    pub interface: Option<NonZeroU32>,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The origin closed the connection, or what it sent is not HTTP.
    #[error("{to}, by {path}: {why}")]
    Http {
        /// The origin.
        to: Destination,
        /// The name of the path.
        path: String,
        why: String,
        /// Whether the server's answer was not HTTP.
        is_garbled: bool,
    },
}

/// A request that may be sent twice: a safe method, no content (RFC 9110 §9.2.2).
pub struct RepeatableRequest {
    /// Its head, ready to be sent.
    pub parts: Parts,
    /// Where it is counted.
    pub record: Arc<Record>,
}

impl RepeatableRequest {
    pub fn request(&self) -> Request<Outgoing> {
        Request::from_parts(self.parts.clone(), Outgoing::empty(Arc::clone(&self.record)))
    }
}

/// If a reused connection through a relay does not answer for [`LATE_TIMES`] times its usual response time, and for at
/// least this long, it may be dead: the request is then also sent by another path.
const LATE: Duration = Duration::from_secs(1);
const LATE_TIMES: u32 = 2;

/// Sends `request` and waits for the head of its answer.
///
/// The origin may close an idle connection at this very moment. A request that was not sent yet, or that is repeatable,
/// is then sent on another connection. A connection through a relay may be dead without notice, so a repeatable request
/// is also sent by another path if the answer is late.
///
/// # Errors
/// [`UpstreamError`].
pub async fn exchange(
    shared: &Arc<ProxyState>,
    client: &Client,
    to: &Destination,
    mut request: Request<Outgoing>,
    again: Option<&RepeatableRequest>,
) -> Result<UpstreamAnswer, UpstreamError> {
    loop {
        let lanes = shared.assign_interfaces(client, to).await?;
        let mut link = match shared.pool.take(client, to, |route| fits(route, &lanes)).await {
            Some(link) => link,
            None => open(shared, client, to, (lanes, None)).await?,
        };
        if fields::authenticates_connection(request.headers()) {
            link.reserve_for(client);
        }
        let asked = Instant::now();
        link.line.set(&mut request);
        let mut sent = pin!(link.send.try_send_request(request));
        let doubted = again.filter(|_| link.used && !link.is_reserved && link.path != DIRECT);
        let done = match doubted {
            Some(again) => tokio::select! {
                done = &mut sent => done,
                answered = request_by_another_path(shared, client, to, again, &link) => {
                    link.task.abort();
                    shared.chooser.learn(to, Content::Clear, PathReport::Failed(&link.path));
                    return Ok(answered);
                }
            },
            None => sent.await,
        };
        let mut error = match done {
            Ok(response) => return Ok(answered(shared, (client, to), link, response, asked)),
            Err(error) => error,
        };
        request = match (link.used, error.take_message(), again) {
            (true, Some(unsent), _) => unsent,
            (true, None, Some(again)) if is_closed(error.error()) => again.request(),
            _ => {
                let (why, is_garbled) = (error_text(error.error()), error.error().is_parse());
                let (to, path) = (to.clone(), link.path.clone());
                return Err(UpstreamError::Http { to, path, why, is_garbled });
            }
        };
    }
}

fn answered(
    shared: &Arc<ProxyState>,
    (client, to): (&Client, &Destination),
    mut link: OriginConnection,
    response: Response<Incoming>,
    asked: Instant,
) -> UpstreamAnswer {
    link.usual = asked.elapsed();
    if fields::authenticates_connection(response.headers()) {
        link.reserve_for(client);
    }
    let (path, setup) = (link.path.clone(), link.setup);
    let interface = link.route.interface();
    let lease = Lease::new(link, Arc::clone(&shared.pool), to.clone());
    UpstreamAnswer { response, lease, path, setup, interface }
}

/// Waits until the connection `doubted` is late, and returns an answer by another path; never returns if there is none.
async fn request_by_another_path(
    shared: &Arc<ProxyState>,
    client: &Client,
    to: &Destination,
    again: &RepeatableRequest,
    doubted: &OriginConnection,
) -> UpstreamAnswer {
    sleep(LATE.max(LATE_TIMES * doubted.usual)).await;
    let Ok(lanes) = shared.assign_interfaces(client, to).await else { return pending().await };
    let opened = open(shared, client, to, (lanes, Some(&doubted.path))).await;
    let Ok(mut link) = opened else { return pending().await };
    let (asked, mut request) = (Instant::now(), again.request());
    link.line.set(&mut request);
    match link.send.try_send_request(request).await {
        Ok(response) => answered(shared, (client, to), link, response, asked),
        Err(_) => pending().await,
    }
}

/// An answer over a new connection by another interface than `avoided`. `None`: there is no such interface, or no
/// answer.
pub async fn request_by_another_interface(
    shared: &Arc<ProxyState>,
    client: &Client,
    to: &Destination,
    mut request: Request<Outgoing>,
    avoided: Option<NonZeroU32>,
) -> Option<UpstreamAnswer> {
    let lanes = without_interface(shared.assign_interfaces(client, to).await.ok()?, avoided?)?;
    let mut link = open(shared, client, to, (lanes, None)).await.ok()?;
    let asked = Instant::now();
    link.line.set(&mut request);
    let response = link.send.try_send_request(request).await.ok()?;
    Some(answered(shared, (client, to), link, response, asked))
}

/// Whether the connection ended before an answer began.
fn is_closed(error: &hyper::Error) -> bool {
    error.is_incomplete_message() || error.is_closed() || error.is_canceled() || {
        let cause = std::error::Error::source(error).and_then(|e| e.downcast_ref());
        cause.is_some_and(|e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset)
    }
}

/// hyper's error message, with its causes.
fn error_text(error: &hyper::Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Opens an origin connection by the assigned interfaces, but not by the path named `avoided`.
async fn open(
    shared: &Arc<ProxyState>,
    client: &Client,
    to: &Destination,
    (lanes, avoided): (Lanes, Option<&str>),
) -> Result<OriginConnection, UpstreamError> {
    let dialled = shared.connect_over(lanes, client, to, Content::Clear, avoided).await?;
    let (path, setup, passage) = (dialled.path, dialled.setup, dialled.passage);
    let monitor = dialled.stream.monitor();
    let unmade = |why: String| UpstreamError::Http {
        to: to.clone(),
        path: path.clone(),
        why,
        is_garbled: false,
    };
    let line = RequestLine::new().map_err(|error| unmade(error.to_string()))?;
    let stream = CountedStream::new(dialled.stream, line.clone(), passage.as_ref());
    let moved = stream.moved();
    let route = stream.stream.route().clone();
    let relayed = (!route.is_direct()).then(|| monitor.clone());
    let went = route.clone();
    let handshake = http1::Builder::new()
        .preserve_header_case(true)
        .max_headers(MAX_FIELDS)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .handshake(TokioIo::new(stream));
    let (send, connection) = handshake.await.map_err(|error| unmade(error_text(&error)))?;
    let (moves, looks) = (Arc::clone(&moved), monitor.clone());
    let (lives, counted) = (Arc::clone(shared), passage.clone());
    let work = tokio::spawn(async move {
        // Failures of the connection show in the answers that they spoil.
        tokio::select! {
            () = assignment::watch(counted.as_deref(), &moved, monitor) => {}
            () = lives.cut.cancelled() => {}
            () = lives.wait_for_revocation(&route) => {}
            () = wait_for_silence(relayed) => {}
            _ = connection.with_upgrades() => {}
        }
        counted.inspect(|passage| passage.counts(&moved));
    });
    let (usual, task) = (Duration::ZERO, work.abort_handle());
    Ok(OriginConnection {
        owner: Owner::of_client(client).await,
        is_reserved: false,
        send,
        line,
        moved: moves,
        monitor: looks,
        path,
        route: went,
        setup,
        passage,
        usual,
        used: false,
        task,
    })
}
