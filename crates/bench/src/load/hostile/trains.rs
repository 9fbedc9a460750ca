//! Sessions of probe trains, used by an attacking member.

use super::attack::AttackContext;
use anyhow::{Context as _, bail};
use std::net::SocketAddr;
use thalweg_base::message;
use thalweg_net::{
    channel::Channel,
    probe::{SECRET, Sealer},
};
use thalweg_wire::probe::{
    self, LABEL, MAX_MESSAGE, NO_TRAIN, NodeReply, Payload, ProbeHead, ProbeRequest,
};
use tokio::net::{TcpStream, UdpSocket};

/// A session and the node's UDP port for its datagrams.
#[derive(Clone, Copy)]
pub struct Session {
    pub number: u32,
    port: u16,
}

/// Opens a session on a channel.
///
/// # Errors
/// When the node refuses.
pub async fn open(channel: &mut Channel<TcpStream>) -> anyhow::Result<Session> {
    message::write(channel, &ProbeRequest::Open).await?;
    match message::read(channel, MAX_MESSAGE).await? {
        Some(NodeReply::Opened { session, port, .. }) => Ok(Session { number: session, port }),
        other => bail!("unexpected answer to a request for a session: {other:?}"),
    }
}

/// Sends a probe that tells the node where to send trains of this session; without it the node sends none. The socket
/// must be kept open until then.
///
/// # Errors
/// When a system call fails or the node closes the session.
pub async fn announce_address(
    scene: &AttackContext,
    channel: &mut Channel<TcpStream>,
    session: Session,
) -> anyhow::Result<UdpSocket> {
    let mut context = session.number.to_be_bytes().to_vec();
    context.push(b'c');
    let mut secret = [0; SECRET];
    channel.exporter_secret(LABEL, &context, &mut secret)?;
    let head = ProbeHead { train: NO_TRAIN, place: 0, sent: 0 };
    let size = Payload::size_in(Payload::least(0));
    let payload = Payload::Probe { head, header: Vec::new(), riders: Vec::new(), size }.encode();
    let from = channel.get_ref().local_addr()?.ip();
    let socket = UdpSocket::bind((from, 0)).await?;
    let to = SocketAddr::new(scene.port.ip(), session.port);
    socket.send_to(&Sealer::new(&secret, session.number)?.seal(&payload)?, to).await?;
    let shown = ProbeRequest::Arrivals { train: NO_TRAIN, probes: 1, wait: 1000 };
    message::write(channel, &shown).await?;
    let answer: Option<NodeReply> = message::read(channel, MAX_MESSAGE).await?;
    answer.context("the node closed the session")?;
    Ok(socket)
}

/// A datagram of a session whose seal is invalid.
pub fn forged(session: u32, length: usize) -> Vec<u8> {
    let mut bytes = probe::Outer { session, number: 0 }.encode().to_vec();
    bytes.resize(length, 7);
    bytes
}
