//! The far end of channels of protocol `reach`: members that cannot be dialled stand here, and are dialled back.
//!
//! ```text
//! STAND     ─ relay? ─ place? ─ signals: pongs, numbers of waiting clients ─ until it ends or is silent
//! TAKE n    ─ does a client wait for n of this member? ─ GO, GO-ACK ─ the TCP connection to the client's session
//! DIAL BACK ─ place? ─ TLS to the member's listed addresses, with its key ─ yes or no
//! ```

mod reverse_connections;

pub use reverse_connections::{ReverseConnections, ReverseError};

use super::{MeshRelay, session::cut_over};
use futures_util::future::BoxFuture;
use reverse_connections::Standing;
use serde_json::json;
use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    log::{Event, Log},
    message,
    peer_slots::PeerSlots,
};
use thalweg_mesh::{Membership, MeshPeer, service::MemberService};
use thalweg_net::{
    DialOptions,
    channel::{Channel, Connector, Protocol},
    connect, resolve,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    MAX_REACH_MESSAGE, MemberSignal, ReachAnswer, ReachOpening, ReachRefusal, RelaySignal,
    RequestNumber,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

/// The time limit of an opening, and of the end of TLS: five round trips of the slowest satellite path.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest silence on a standing channel: six pings.
const SILENCE: Duration = Duration::from_secs(30);

/// The time limit of a dial-back.
const DIAL_BACK_TIMEOUT: Duration = Duration::from_secs(4);

/// Dial-backs at a time; one of each member.
const DIAL_BACKS: usize = 32;

/// Serves channels of protocol `reach`; cheap to clone.
#[derive(Clone, Debug)]
pub struct ReachService(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None`: this node does not relay.
    relay: Option<MeshRelay>,
    connector: Connector,
    membership: Membership,
    dial_backs: PeerSlots<NodeId>,
    log: Log,
}

impl ReachService {
    /// Creates the service of a node that proves its key by `connector`; without a relay it only lets others test
    /// whether they can dial it.
    pub fn new(
        relay: Option<MeshRelay>,
        connector: Connector,
        membership: Membership,
        log: Log,
    ) -> Self {
        let dial_backs = PeerSlots::new(DIAL_BACKS, 1);
        Self(Arc::new(Shared { relay, connector, membership, dial_backs, log }))
    }

    async fn run(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer, from: SocketAddr) {
        let reading = message::read(&mut channel, MAX_REACH_MESSAGE);
        // Whoever tests only whether it can dial this node says nothing.
        let Ok(Ok(Some(opening))) = timeout(OPENING_TIMEOUT, reading).await else { return };
        match opening {
            ReachOpening::Stand => self.stand(channel, peer, from).await,
            ReachOpening::Take(number) => self.take(channel, peer, number).await,
            ReachOpening::DialBack => {
                let answer = self.dial_back(peer).await;
                say(&mut channel, &answer).await;
            }
        }
    }

    async fn stand(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer, from: SocketAddr) {
        let standing = match self.place(peer) {
            Ok(standing) => standing,
            Err(why) => return say(&mut channel, &ReachAnswer::Refused(why)).await,
        };
        let Standing { place, sender, signals, replaced } = standing;
        let (begun, name) = (Instant::now(), &peer.member().name);
        self.0.log.put(Event::new("stands").with("peer", name).with("client", from));
        if message::write(&mut channel, &ReachAnswer::Stands).await.is_err() {
            return;
        }
        let (from, to) = split(channel);
        let why = tokio::select! {
            why = read_signals(from, &sender, (&place.of, peer.key())) => why,
            why = send_signals(to, signals) => why,
            _ = replaced => "the member has a newer channel".to_owned(),
        };
        drop(place);
        let event = Event::new("stood").with("peer", name).with("why", why);
        self.0.log.put(event.with_number("took_ms", begun.elapsed().as_millis()));
    }

    fn place(&self, peer: &MeshPeer) -> Result<Standing, ReachRefusal> {
        let relay = self.0.relay.as_ref().filter(|relay| relay.has_role());
        let relay = relay.ok_or(ReachRefusal::NoRelay)?;
        relay.reverse().stand(peer.key()).ok_or(ReachRefusal::Full)
    }

    async fn take(&self, channel: Channel<TcpStream>, peer: &MeshPeer, number: RequestNumber) {
        let Some(relay) = &self.0.relay else { return };
        let Some(client) = relay.reverse().claim(peer.key(), number) else { return };
        // The client hears of a failure by the end of what it waits for.
        let cut = cut_over(Box::new(channel), Vec::new(), OPENING_TIMEOUT);
        if let Ok((tcp, early)) = cut.await
            && early.is_empty()
        {
            // The client may have left.
            _ = client.send(tcp);
        }
    }

    async fn dial_back(&self, peer: &MeshPeer) -> ReachAnswer {
        let Some(_place) = self.0.dial_backs.enter(peer.member().principal()) else {
            return ReachAnswer::Refused(ReachRefusal::Full);
        };
        let roster = self.0.membership.current();
        let member = roster.as_ref().and_then(|roster| roster.by_key(&peer.key()));
        let listed: Vec<_> = member.iter().flat_map(|m| m.dialled_addresses()).collect();
        if listed.is_empty() {
            return ReachAnswer::Refused(ReachRefusal::NoAddress);
        }
        let dialling = async {
            let mut addresses = Vec::new();
            for at in listed {
                addresses.extend(resolve(at).await.unwrap_or_default());
            }
            let found = addresses.len();
            addresses.retain(|at| self.may_dial(*at));
            if addresses.len() < found {
                return ReachAnswer::Refused(ReachRefusal::Denied);
            }
            let Ok(tcp) = connect(&addresses, None, &DialOptions::default()).await else {
                return ReachAnswer::DialledBack(false);
            };
            let opened = self.0.connector.connect(tcp, peer.key(), Protocol::Reach).await;
            ReachAnswer::DialledBack(opened.is_ok())
        };
        let dialled = timeout(DIAL_BACK_TIMEOUT, dialling).await;
        dialled.unwrap_or(ReachAnswer::DialledBack(false))
    }

    /// Whether the relay's own settings permit this address of a member. Its class does not matter, as in chains.
    fn may_dial(&self, at: SocketAddr) -> bool {
        self.0.relay.as_ref().is_none_or(|relay| relay.may_dial(at))
    }
}

impl MemberService for ReachService {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move {
            // A member that is revoked stands here no longer.
            _ = peer.unless_revoked(this.run(channel, &peer, from)).await;
        })
    }

    fn report(&self) -> serde_json::Value {
        let standing = self.0.relay.as_ref().map(|relay| relay.reverse().standing());
        standing.map(|standing| json!({ "standing": standing })).unwrap_or_default()
    }
}

/// Answers and ends this direction. Best effort: the member may be gone.
async fn say(channel: &mut Channel<TcpStream>, answer: &ReachAnswer) {
    let saying = async {
        message::write(channel, answer).await?;
        channel.shutdown().await
    };
    _ = timeout(OPENING_TIMEOUT, saying).await;
}

/// Answers the member's pings until it leaves or falls silent. Returns why.
async fn read_signals(
    mut from: impl AsyncRead + Unpin,
    signals: &mpsc::Sender<RelaySignal>,
    (reverse, member): (&ReverseConnections, NodeId),
) -> String {
    loop {
        let read = timeout(SILENCE, message::read(&mut from, MAX_REACH_MESSAGE)).await;
        match read {
            Ok(Ok(Some(MemberSignal::Ping))) => {
                // A member that reads nothing fills the queue, and is given up by the writer.
                _ = signals.send(RelaySignal::Pong).await;
            }
            // Its client hears that nothing comes.
            Ok(Ok(Some(MemberSignal::Declined(number)))) => drop(reverse.claim(member, number)),
            Ok(Ok(None)) => return "the member ended it".to_owned(),
            Ok(Err(why)) => return why.to_string(),
            Err(_) => return format!("nothing came for {SILENCE:?}"),
        }
    }
}

/// Sends the signals until the connection fails. Returns why.
async fn send_signals(
    mut to: impl AsyncWrite + Unpin,
    mut signals: mpsc::Receiver<RelaySignal>,
) -> String {
    while let Some(signal) = signals.recv().await {
        match timeout(SILENCE, message::write(&mut to, &signal)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why.to_string(),
            Err(_) => return format!("the member read nothing for {SILENCE:?}"),
        }
    }
    "it has ended".to_owned()
}
