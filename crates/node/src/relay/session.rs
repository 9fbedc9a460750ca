//! One client's connection: SOCKS5, the egress policy, the second leg, the pump.

use super::{
    RelayConfig,
    egress::Denial,
    liveness::{Limits, Verdict},
    log::Event,
    pump::{self, Moved, Resetting, Stopped},
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use thalweg_net::{Cause, DialOptions, SocketOptions};
use thalweg_wire::{
    Destination,
    socks5::{self, Command, Decoded, Reply, Request, Socks5Error},
};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{timeout, timeout_at},
};

/// No address: what a refusal says it bound (RFC 1928 §6 leaves it open).
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Why a session ended otherwise than by both sides' ends.
#[derive(Debug, Error)]
enum Ended {
    /// The client's messages took too long.
    #[error("handshake took longer than allowed")]
    Slow,
    /// The client went away within the handshake.
    #[error("client left within the handshake: {0}")]
    Left(#[source] io::Error),
    /// It does not speak SOCKS5; it got no byte, or a reply where the RFC has one.
    #[error("{0}")]
    NotSocks(#[from] Socks5Error),
    /// It insists on an authentication.
    #[error("client offers no method without authentication")]
    NoMethod,
    /// BIND or UDP ASSOCIATE.
    #[error("command {0:?} is not served")]
    Command(Command),
    /// The egress policy.
    #[error("denied: {0}")]
    Denied(#[from] Denial),
    /// No second leg.
    #[error("{0}")]
    NoLeg(Cause),
    /// A leg broke after it stood.
    #[error("a leg broke: {0}")]
    Broken(io::Error),
    /// A leg was given up after it stood.
    #[error("given up: {0}")]
    GivenUp(Verdict),
}

impl Ended {
    /// What the client is told; `None`: nothing.
    fn reply(&self) -> Option<Reply> {
        Some(match self {
            Self::NotSocks(Socks5Error::Command(_)) | Self::Command(_) => {
                Reply::CommandNotSupported
            }
            Self::NotSocks(Socks5Error::AddressType(_)) => Reply::AddressTypeNotSupported,
            Self::NotSocks(Socks5Error::Name | Socks5Error::Port) => Reply::GeneralFailure,
            Self::Denied(_) => Reply::NotAllowed,
            Self::NoLeg(cause) => reply_to(cause),
            _ => return None,
        })
    }
}

/// RFC 1928 §6's code for a leg that could not be made.
fn reply_to(cause: &Cause) -> Reply {
    let source = match cause {
        Cause::Connect { source, .. } => source,
        Cause::TimedOut(_) => return Reply::TtlExpired,
        Cause::Resolve(_) | Cause::NoAddress => return Reply::HostUnreachable,
        _ => return Reply::GeneralFailure,
    };
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Reply::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
        io::ErrorKind::HostUnreachable => Reply::HostUnreachable,
        io::ErrorKind::TimedOut => Reply::TtlExpired,
        _ => Reply::GeneralFailure,
    }
}

/// What a session did, for the log.
#[derive(Debug, Default)]
struct Story {
    to: Option<Destination>,
    address: Option<SocketAddr>,
    moved: Moved,
}

/// Serves one client to the end; gives the log line of it.
pub async fn serve(client: TcpStream, from: SocketAddr, config: &RelayConfig) -> Event {
    let started = Instant::now();
    let mut story = Story::default();
    let end = run(Resetting::new(client), config, &mut story).await;
    let moved = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    let mut event = match &end {
        Err(e) if story.address.is_none() => Event::new("refused").with("why", e),
        Err(e) => Event::new("broken").with("why", e),
        Ok(()) => Event::new("closed"),
    };
    event = event.with("client", from);
    if let Some(to) = story.to {
        event = event.with("to", to);
    }
    if let Some(address) = story.address {
        let (up, down) = (moved(&story.moved.up), moved(&story.moved.down));
        event = event.with("address", address).with("up_bytes", up).with("down_bytes", down);
    }
    event.with("took_ms", started.elapsed().as_millis())
}

async fn run(mut client: Resetting, config: &RelayConfig, story: &mut Story) -> Result<(), Ended> {
    let handshake = timeout(config.handshake, read_request(&mut client));
    let leg = match handshake.await.unwrap_or(Err(Ended::Slow)) {
        Ok(request) => {
            story.to = Some(request.destination.clone());
            second_leg(&request, config).await
        }
        Err(e) => Err(e),
    };
    let destination = match leg {
        Ok(leg) => leg,
        Err(e) => return Err(refuse(client, e).await),
    };
    story.address = destination.peer_addr().ok();
    let bound = destination.local_addr().unwrap_or(NOWHERE);
    let success = socks5::encode_reply(Reply::Succeeded, bound);
    client.write_all(&success).await.map_err(Ended::Broken)?;
    let limits = Limits { idle: config.idle, linger: config.linger, black_hole: config.black_hole };
    pump::pump(&client, &destination, &story.moved, limits).await.map_err(
        |stopped| match stopped {
            Stopped::Broken(e) => Ended::Broken(e),
            Stopped::GivenUp(verdict) => Ended::GivenUp(verdict),
        },
    )?;
    client.close();
    destination.close();
    Ok(())
}

/// Tells the client, where the RFC has words for it, and closes in good order.
async fn refuse(mut client: Resetting, why: Ended) -> Ended {
    let told = match (&why, why.reply()) {
        (Ended::NoMethod, _) => socks5::encode_method(socks5::NO_ACCEPTABLE_METHOD).to_vec(),
        (_, Some(reply)) => socks5::encode_reply(reply, NOWHERE),
        _ => Vec::new(),
    };
    if !told.is_empty() {
        // A client that is gone by now does not miss it.
        _ = timeout(REFUSAL, tell(&mut client, &told)).await;
    }
    client.close();
    why
}

/// How long a refused client may take to read its reply and close.
///
/// A connection that is closed with bytes unread (a client that sent its data
/// at once) is reset, and the reply on its way is lost with it.
const REFUSAL: Duration = Duration::from_secs(2);

/// Writes the reply, ends our direction, and reads the client's off.
async fn tell(client: &mut TcpStream, reply: &[u8]) -> io::Result<()> {
    client.write_all(reply).await?;
    client.shutdown().await?;
    let mut unread = [0; 1024];
    while client.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Reads the client's two messages, and not a byte beyond.
async fn read_request(client: &mut TcpStream) -> Result<Request, Ended> {
    if !read_message(client, socks5::decode_methods).await? {
        return Err(Ended::NoMethod);
    }
    let chosen = socks5::encode_method(socks5::NO_AUTHENTICATION);
    client.write_all(&chosen).await.map_err(Ended::Left)?;
    let request = read_message(client, socks5::decode_request).await?;
    match request.command {
        Command::Connect => Ok(request),
        other => Err(Ended::Command(other)),
    }
}

async fn read_message<T>(
    client: &mut TcpStream,
    decode: impl Fn(&[u8]) -> Result<Decoded<T>, Socks5Error>,
) -> Result<T, Ended> {
    let mut message = [0; socks5::MAX_MESSAGE];
    let mut have = 0;
    loop {
        match decode(&message[..have])? {
            Decoded::Message(value, _) => return Ok(value),
            Decoded::Needs(n) => {
                client.read_exact(&mut message[have..have + n]).await.map_err(Ended::Left)?;
                have += n;
            }
        }
    }
}

/// Resolves, checks and connects: only addresses that passed are dialled.
async fn second_leg(request: &Request, config: &RelayConfig) -> Result<Resetting, Ended> {
    config.egress.check_port(request.destination.port)?;
    let deadline = tokio::time::Instant::now() + config.connect;
    let late = || Ended::NoLeg(Cause::TimedOut(config.connect));
    let resolving = timeout_at(deadline, thalweg_net::resolve(&request.destination)).await;
    let mut addresses = resolving.map_err(|_| late())?.map_err(Ended::NoLeg)?;
    addresses = config.egress.admit(&addresses).map_err(|denial| match denial {
        Some(denial) => Ended::Denied(denial),
        None => Ended::NoLeg(Cause::NoAddress),
    })?;
    let options = DialOptions { socket: leg_options(), ..DialOptions::default() };
    let dialling = timeout_at(deadline, thalweg_net::connect(&addresses, None, &options)).await;
    dialling.map_err(|_| late())?.map(Resetting::new).map_err(Ended::NoLeg)
}

/// The options of both legs.
///
/// No TCP_USER_TIMEOUT: it would end connections to slow readers, see
/// [`SocketOptions::user_timeout`]; [`super::liveness`] watches instead.
/// Keepalive at 60 s keeps 8,000 idle connections at 270 packets a second.
pub fn leg_options() -> SocketOptions {
    SocketOptions {
        user_timeout: None,
        keepalive: Some(Duration::from_secs(60)),
        ..SocketOptions::default()
    }
}
