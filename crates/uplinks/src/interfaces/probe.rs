//! A light probe: the beginning of a file that the user named, fetched by an interface of which nothing is known.
//!
//! It measures the round trip and a rate, which is a lower bound because most of it is slow start. It also tells
//! whether the server itself answers, and not a portal that requires a login.

use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    fmt,
    num::NonZeroU32,
    str::FromStr,
    time::{Duration, Instant},
};
use thalweg_net::{DialError, Dialer, Route};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::Destination;
use thiserror::Error;
use tokio::time::timeout;

/// The most bytes that are asked for.
pub const MOST: ByteSize = ByteSize::from_bytes(256 << 10);

/// The cost that is taken from the budget for one probe, which includes headers and what is under way when it ends. An
/// interface is not probed if less than this is left of the day's budget.
pub const COST: ByteSize = ByteSize::from_bytes(320 << 10);

/// Time limit of a probe.
const PATIENCE: Duration = Duration::from_secs(20);

/// A file on a server to probe interfaces with, `http://HOST[:PORT]/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeServer {
    at: Destination,
    authority: String,
    target: String,
}

impl ProbeServer {
    /// Whether both files are on one host.
    pub fn is_on_host_of(&self, other: &Self) -> bool {
        self.at.host == other.at.host
    }
}

/// Not the URL of a file to probe with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the URL of a file to probe with, e.g. \"http://speed.example/256k.bin\"")]
pub struct ProbeServerError(String);

impl FromStr for ProbeServer {
    type Err = ProbeServerError;

    fn from_str(text: &str) -> Result<Self, ProbeServerError> {
        let no = || ProbeServerError(text.escape_debug().to_string());
        let uri: hyper::Uri = text.parse().map_err(|_| no())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
        let authority = authority.filter(|a| !a.as_str().contains('@')).ok_or_else(no)?;
        let port = authority.port_u16().unwrap_or(80);
        let at = Destination::new(authority.host(), port).map_err(|_| no())?;
        let target = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { at, authority: authority.to_string(), target })
    }
}

impl fmt::Display for ProbeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probed {
    /// The kernel's round trip.
    pub rtt: Option<Duration>,
    /// Bytes of the file that arrived.
    pub bytes: u64,
    /// Time from the answer's head to its end.
    pub took: Duration,
}

impl Probed {
    /// The rate; zero if the time was too short to tell.
    pub fn rate(&self) -> Rate {
        match self.took.is_zero() {
            true => Rate::ZERO,
            false => Rate::over(ByteSize::from_bytes(self.bytes), self.took),
        }
    }
}

/// Why a probe failed.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The server was not reached.
    #[error(transparent)]
    Unreached(#[from] DialError),
    /// The answer was not the file.
    #[error("the probe got status {0} instead of the file; does a captive portal want a login?")]
    Other(StatusCode),
    #[error("the probe's connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// It took too long.
    #[error("the probe did not end within {} s", PATIENCE.as_secs())]
    Slow,
}

/// Fetches the first [`MOST`] of the file by this interface.
///
/// # Errors
/// [`ProbeError`].
pub async fn probe(
    dialer: &Dialer,
    interface: NonZeroU32,
    server: &ProbeServer,
) -> Result<Probed, ProbeError> {
    timeout(PATIENCE, fetch(dialer, interface, server)).await.unwrap_or(Err(ProbeError::Slow))
}

async fn fetch(
    dialer: &Dialer,
    interface: NonZeroU32,
    server: &ProbeServer,
) -> Result<Probed, ProbeError> {
    let stream = dialer.dial(&Route::direct().by_interface(interface), &server.at).await?;
    let rtt = stream.round_trip();
    let (mut asking, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let answer = asking.send_request(request(server)).await?;
        receive(answer, rtt).await
    };
    // The connection ends with the answer, or earlier; the exchange tells how.
    let serving = async {
        _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        told = exchange => told,
        never = serving => match never {},
    }
}

fn request(server: &ProbeServer) -> Request<Empty<Bytes>> {
    let range = format!("bytes=0-{}", MOST.as_bytes() - 1);
    let mut request = Request::new(Empty::new());
    if let Ok(uri) = server.target.parse() {
        *request.uri_mut() = uri;
    }
    let fields = [(header::HOST, &*server.authority), (header::RANGE, &*range)];
    let more = [(header::CONNECTION, "close"), (header::CACHE_CONTROL, "no-cache")];
    for (name, value) in fields.into_iter().chain(more) {
        if let Ok(value) = value.parse() {
            request.headers_mut().insert(name, value);
        }
    }
    request
}

/// Reads no more than was asked for: a server without range requests sends more.
async fn receive(
    mut answer: hyper::Response<Incoming>,
    rtt: Option<Duration>,
) -> Result<Probed, ProbeError> {
    let status = answer.status();
    if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Err(ProbeError::Other(status));
    }
    let (began, mut bytes) = (Instant::now(), 0);
    while let Some(frame) = answer.frame().await.filter(|_| bytes < MOST.as_bytes()) {
        bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(Probed { rtt, bytes, took: began.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_probe_files_are_parsed() {
        let server: ProbeServer = "http://speed.example/256k?x=1".parse().unwrap();
        assert_eq!(server.at, "speed.example:80".parse().unwrap());
        assert_eq!(server.to_string(), "http://speed.example/256k?x=1");
        let other: ProbeServer = "http://[2001:db8::1]:8080".parse().unwrap();
        assert_eq!((other.at.port, &*other.target), (8080, "/"));
        for no in ["https://speed.example/", "speed.example", "http://me:word@speed.example/", ""] {
            assert!(no.parse::<ProbeServer>().is_err(), "{no}");
        }
    }
}
