//! One connection of a plain client: the handshake, the egress policy, the second leg (to the destination), the pump.
//! `mesh/session.rs` serves members.

use super::{
    RelayConfig,
    handshake::{self, NOWHERE},
    refusal::Refusal,
};
use std::{
    future::pending,
    net::SocketAddr,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use thalweg_base::log::Event;
use thalweg_net::pump::{self, Moved, ResetOnDrop, Stopped};
use thalweg_net::{Cause, DialOptions, SocketOptions};
use thalweg_wire::{
    Destination,
    socks5::{self, Reply},
};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

/// How a session ended before both directions had ended.
enum SessionEnd {
    /// It was refused before the second leg was established.
    Refused(Refusal),
    /// It broke after the second leg was established.
    Broken(Stopped),
}

/// A session's destination and traffic, for the log.
#[derive(Debug, Default)]
struct SessionRecord {
    to: Option<Destination>,
    address: Option<SocketAddr>,
    moved: Moved,
}

/// Serves one client to the end. Returns the log event of the session.
pub async fn serve(client: TcpStream, from: SocketAddr, config: &RelayConfig) -> Event {
    let started = Instant::now();
    let mut record = SessionRecord::default();
    let event = match run(ResetOnDrop::new(client), config, &mut record).await {
        Ok(()) => Event::new("closed"),
        Err(SessionEnd::Refused(why)) => Event::new("refused").with("why", why),
        Err(SessionEnd::Broken(why)) => Event::new("broken").with("why", why),
    };
    let event = record.add_to(event.with("client", from));
    event.with_number("took_ms", started.elapsed().as_millis())
}

impl SessionRecord {
    fn add_to(self, mut event: Event) -> Event {
        if let Some(to) = self.to {
            event = event.with("to", to);
        }
        if let Some(address) = self.address {
            let moved = [&self.moved.up, &self.moved.down].map(|n| n.load(Ordering::Relaxed));
            event = event.with("address", address);
            event = event.with_number("up_bytes", moved[0]).with_number("down_bytes", moved[1]);
        }
        event
    }
}

async fn run(
    mut client: ResetOnDrop,
    config: &RelayConfig,
    record: &mut SessionRecord,
) -> Result<(), SessionEnd> {
    match open(&mut client, config, record).await {
        Ok(destination) => {
            carry(client, destination, config, &record.moved).await.map_err(SessionEnd::Broken)
        }
        Err(why) => {
            why.tell(&mut *client, Vec::new()).await;
            client.close();
            Err(SessionEnd::Refused(why))
        }
    }
}

/// Reads the client's request and establishes the second leg.
async fn open(
    client: &mut TcpStream,
    config: &RelayConfig,
    record: &mut SessionRecord,
) -> Result<ResetOnDrop, Refusal> {
    let to = record.to.insert(handshake::read_request(client, config.handshake).await?);
    let destination = second_leg(to, config).await?;
    record.address = destination.peer_addr().ok();
    Ok(destination)
}

/// Resolves the destination, checks its addresses, and connects to those that passed.
async fn second_leg(to: &Destination, config: &RelayConfig) -> Result<ResetOnDrop, Refusal> {
    config.egress.check_port(to.port)?;
    let connecting = async {
        let addresses = config.resolver.resolve(to).await.map_err(Refusal::NoLeg)?;
        let addresses = config.egress.admit(&addresses)?;
        let options = DialOptions { socket: leg_options(), ..DialOptions::default() };
        let made = thalweg_net::connect(&addresses, None, &options).await;
        let destination = made.map(ResetOnDrop::new).map_err(Refusal::NoLeg)?;
        config.egress.check_connected(&destination)?;
        Ok(destination)
    };
    let connected = timeout(config.connect, connecting).await;
    connected.unwrap_or(Err(Refusal::NoLeg(Cause::TimedOut(config.connect))))
}

/// Replies to the client that the second leg is established, and moves bytes until both directions end.
///
/// On an error both legs are dropped, which resets them.
async fn carry(
    mut client: ResetOnDrop,
    destination: ResetOnDrop,
    config: &RelayConfig,
    moved: &Moved,
) -> Result<(), Stopped> {
    let bound = destination.local_addr().unwrap_or(NOWHERE);
    let success = socks5::encode_reply(Reply::Succeeded, bound);
    client.write_all(&success).await.map_err(Stopped::Broken)?;
    let terms = pump::Terms::new(config.limits(), moved);
    pump::clear(client, Vec::new(), destination, terms, pending()).await
}

/// The options of both legs.
///
/// They have no TCP_USER_TIMEOUT: it would end connections to slow readers, see [`SocketOptions::user_timeout`];
/// [`thalweg_net::liveness`] watches the connections instead. With keepalives every 60 s, 8,000 idle legs cause 270
/// packets a second (probes and their acknowledgements).
pub fn leg_options() -> SocketOptions {
    SocketOptions {
        user_timeout: None,
        keepalive: Some(Duration::from_secs(60)),
        ..SocketOptions::default()
    }
}
