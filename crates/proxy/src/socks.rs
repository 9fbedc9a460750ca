//! Serves a program's connection that speaks SOCKS5 (RFC 1928): CONNECT, without authentication.

use super::{
    event::TunnelKind,
    state::{ConnectError, ProxyState},
    tunnel::{self, Tunnel},
};
use bytes::Bytes;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use thalweg_net::{Cause, DialError, socks5::read_message};
use thalweg_paths::chooser::Content;
use thalweg_relay::Refusal;
use thalweg_uplinks::interfaces::Client;
use thalweg_wire::{
    Destination,
    socks5::{self, Reply},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Time limit of a program's two messages, which do not leave the host; the same as the relay's.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The first byte of SOCKS4 and SOCKS4a, which are not supported.
pub const VERSION_4: u8 = 4;

/// "Request rejected or failed" of SOCKS4, whose replies begin with version 0. SOCKS4 has no code for an unsupported
/// version.
const REJECTED_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// How long data of a refused program is still read, so that no reset destroys the reply.
const REFUSAL: Duration = Duration::from_secs(2);

/// The bound address in a reply, which RFC 1928 §6 leaves open if there is none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Reads the request, connects, replies, and carries bytes.
pub async fn serve(shared: Arc<ProxyState>, tcp: TcpStream, client: SocketAddr) {
    let begun = tokio::select! {
        () = shared.cut.cancelled() => None,
        begun = begin(&shared, tcp, client) => begun,
    };
    if let Some(tunnel) = begun {
        // The tunnel notices a cut itself, and records it.
        tunnel::run(&shared, tunnel).await;
    }
}

/// Tells a program that it speaks the wrong version; otherwise it would wait for a reply.
pub async fn refuse_4(shared: &ProxyState, mut tcp: TcpStream, client: SocketAddr) {
    let why = "SOCKS4 is not supported; use SOCKS5 (socks5://, socks5h://)";
    shared.recorder.record_refusal(client, String::new(), why.to_owned());
    let told = timeout(REFUSAL, deliver(&mut tcp, &REJECTED_4));
    // A program that is gone does not miss the reply.
    tokio::select! { _ = told => {}, () = shared.cut.cancelled() => {} }
}

/// Reads the request and connects. Returns the tunnel, or `None` after the program was refused.
async fn begin(shared: &ProxyState, mut tcp: TcpStream, client: SocketAddr) -> Option<Tunnel> {
    let read = timeout(HANDSHAKE, read(&mut tcp)).await.unwrap_or(Err(Refusal::Slow));
    let to = match read {
        Ok(to) => to,
        Err(refusal) => {
            refuse(shared, tcp, client, String::new(), &refusal).await;
            return None;
        }
    };
    let content = Content::of_port(to.port);
    let program = Client::at(client, tcp.local_addr().ok());
    let dialled = match shared.connect(&program, &to, content).await {
        Ok(dialled) => dialled,
        Err(error) => {
            tell(shared, tcp, client, to, error).await;
            return None;
        }
    };
    // Behind relays, the address of our own leg would mislead.
    let bound = match dialled.stream.route().is_direct() {
        true => dialled.stream.tcp().and_then(|tcp| tcp.local_addr().ok()).unwrap_or(NOWHERE),
        false => NOWHERE,
    };
    tcp.write_all(&socks5::encode_reply(Reply::Succeeded, bound)).await.ok()?;
    let (kind, early, late) = (TunnelKind::Socks, Vec::new(), Bytes::new());
    Some(Tunnel { client, kind, tcp, early, dialled, late, to, content })
}

/// Reads the two messages (RFC 1928 §3, §4), and not a byte beyond them.
async fn read(tcp: &mut TcpStream) -> Result<Destination, Refusal> {
    if !read_message(tcp, socks5::decode_methods).await? {
        return Err(Refusal::NoMethod);
    }
    let chosen = socks5::encode_method(socks5::NO_AUTHENTICATION);
    tcp.write_all(&chosen).await.map_err(Refusal::Left)?;
    Ok(read_message(tcp, socks5::decode_request).await?)
}

/// Tells the program why there is no connection, by a reply code of RFC 1928 §6.
async fn tell(
    shared: &ProxyState,
    mut tcp: TcpStream,
    client: SocketAddr,
    to: Destination,
    error: ConnectError,
) {
    let why = error.to_string();
    let reply = match error {
        ConnectError::Own | ConnectError::Rebound | ConnectError::Interfaces => Reply::NotAllowed,
        ConnectError::Dial(DialError { cause: Cause::Refused(reply), .. }) => reply,
        ConnectError::Dial(DialError { cause, .. }) => {
            return refuse(shared, tcp, client, to.to_string(), &Refusal::NoLeg(cause)).await;
        }
    };
    shared.recorder.record_refusal(client, to.to_string(), why);
    // A program that is gone does not miss the reply.
    _ = timeout(REFUSAL, deliver(&mut tcp, &socks5::encode_reply(reply, NOWHERE))).await;
}

/// Writes a last message, and reads and discards what the program has sent too early: unread bytes would cause a reset
/// that destroys the message.
async fn deliver(tcp: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    tcp.write_all(message).await?;
    tcp.shutdown().await?;
    let mut unread = [0; 1024];
    while tcp.read(&mut unread).await? > 0 {}
    Ok(())
}

async fn refuse(
    shared: &ProxyState,
    mut tcp: TcpStream,
    client: SocketAddr,
    to: String,
    why: &Refusal,
) {
    shared.recorder.record_refusal(client, to, why.to_string());
    why.tell(&mut tcp, Vec::new()).await;
}
