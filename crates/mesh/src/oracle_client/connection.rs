//! One connection to an oracle, for one request after the other.

use super::{Attempt, OracleError};
use crate::Oracle;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderValue},
};
use hyper_util::rt::TokioIo;
use std::{
    error::Error,
    io,
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};
use thalweg_net::{
    Destination, DialOptions,
    channel::{Channel, ChannelError, Connector, Protocol},
    connect, resolve,
};
use thalweg_units::WallTime;
use tokio::{net::TcpStream, task::AbortHandle, time::timeout};

/// The time for TLS at one address, before the next is tried: two round trips of the slowest satellite path, and below
/// half of the time for all addresses.
const HANDSHAKE: Duration = Duration::from_secs(4);

/// The key and the options with which connections are made.
#[derive(Clone)]
pub(super) struct ConnectSettings {
    pub(super) connector: Connector,
    pub(super) dial: DialOptions,
}

/// A connection to an oracle. It closes when dropped, also in the middle of an answer.
pub(super) struct Connection {
    send: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// A request with its whole body.
pub(super) type OracleRequest = Request<Full<Bytes>>;

/// A whole answer.
pub(super) struct OracleAnswer {
    pub(super) status: StatusCode,
    /// The oracle's date when it answered (RFC 9110 §6.6.1).
    pub(super) date: Option<WallTime>,
    pub(super) body: Bytes,
}

/// Creates a request for `path`. The name in `Host` has no meaning: the channel's key identifies the oracle.
pub(super) fn request(method: Method, path: &str, body: Bytes) -> OracleRequest {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    // Paths come from this crate, and always parse.
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(HOST, HeaderValue::from_static("oracle"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

impl Connection {
    /// Connects to the oracle, at the first of its addresses at which it answers.
    ///
    /// # Errors
    /// Why each address failed.
    pub(super) async fn open(
        settings: &ConnectSettings,
        oracle: &Oracle,
        protocol: Protocol,
    ) -> Result<Self, Vec<Attempt>> {
        let mut tried = Vec::new();
        let limit = settings.dial.deadline;
        match timeout(limit, channel(settings, oracle, protocol, &mut tried)).await {
            Ok(Some(channel)) => return Self::over(channel).await,
            Ok(None) => {}
            Err(_) => {
                let silent = |a: &&Destination| tried.iter().all(|t| t.address != **a);
                let why = format!("no answer within {limit:?}");
                let rest = oracle.addresses.iter().filter(silent).cloned();
                let rest: Vec<_> =
                    rest.map(|address| Attempt { address, why: why.clone() }).collect();
                tried.extend(rest);
            }
        }
        Err(tried)
    }

    async fn over(channel: Channel<TcpStream>) -> Result<Self, Vec<Attempt>> {
        let at = channel.get_ref().peer_addr();
        let (send, connection) = http1::handshake(TokioIo::new(channel)).await.map_err(|e| {
            let attempt = |at: SocketAddr| Attempt { address: at.into(), why: e.to_string() };
            at.map(attempt).into_iter().collect::<Vec<_>>()
        })?;
        // Its errors show in the answer that they interrupt.
        let driver = tokio::spawn(async move { _ = connection.await }).abort_handle();
        Ok(Self { send, driver })
    }

    /// False once the oracle has closed the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.send.is_closed()
    }

    /// Sends the request and reads the whole answer, of at most `max` bytes.
    pub(super) async fn ask(
        &mut self,
        request: OracleRequest,
        max: usize,
    ) -> Result<OracleAnswer, OracleError> {
        let sent = self.send.ready().await;
        sent.map_err(|e| failed(&e))?;
        let answer = self.send.send_request(request).await.map_err(|e| failed(&e))?;
        let (status, date) = (answer.status(), date(answer.headers()));
        let body = Limited::new(answer.into_body(), max).collect().await;
        let body = body.map_err(|e| failed(&*e))?.to_bytes();
        Ok(OracleAnswer { status, date, body })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Opens a channel to the host that proves the oracle's key; failures go into `tried`.
///
/// All addresses race. Behind one of them may be another host, e.g. if two private networks have the same addresses:
/// then the others race on.
async fn channel(
    settings: &ConnectSettings,
    oracle: &Oracle,
    protocol: Protocol,
    tried: &mut Vec<Attempt>,
) -> Option<Channel<TcpStream>> {
    let mut addresses = addresses(oracle, tried).await;
    while !addresses.is_empty() {
        let tcp = match connect(&addresses, None, &settings.dial).await {
            Ok(tcp) => tcp,
            Err(cause) => {
                // One reason for all addresses: that of the first that failed.
                let failed = |address: &SocketAddr| (*address).into();
                let of = |address| Attempt { address, why: cause.to_string() };
                tried.extend(addresses.iter().map(failed).map(of));
                return None;
            }
        };
        let at = tcp.peer_addr().ok();
        let handshake = timeout(HANDSHAKE, settings.connector.connect(tcp, oracle.key, protocol));
        let why = match handshake.await {
            Ok(Ok(channel)) => return Some(channel),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it accepts connections but sends nothing for {HANDSHAKE:?}"),
        };
        let address = at.or(addresses.first().copied())?;
        tried.push(Attempt { address: address.into(), why });
        addresses.retain(|a| *a != address);
    }
    None
}

async fn addresses(oracle: &Oracle, tried: &mut Vec<Attempt>) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for destination in &oracle.addresses {
        match resolve(destination).await {
            Ok(found) => all.extend(found),
            Err(cause) => {
                tried.push(Attempt { address: destination.clone(), why: cause.to_string() });
            }
        }
    }
    all
}

/// If the oracle refuses this host's key, that usually shows here: in TLS 1.3 a client is done before the server has
/// seen the key.
fn failed(error: &(dyn Error + 'static)) -> OracleError {
    let causes = || std::iter::successors(Some(error), |&e| e.source());
    let refused = |e: &(dyn Error + 'static)| {
        e.downcast_ref::<io::Error>().is_some_and(ChannelError::is_not_admitted)
    };
    if causes().any(refused) {
        return OracleError::NotAdmitted;
    }
    let all: Vec<_> = causes().map(ToString::to_string).collect();
    OracleError::Broken(all.join(": "))
}

fn date(fields: &HeaderMap) -> Option<WallTime> {
    let date = httpdate::parse_http_date(fields.get(DATE)?.to_str().ok()?).ok()?;
    let since = date.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok().map(WallTime::from_unix_nanos)
}
