//! One member's channel: its request, the second leg, the cut-over, the pump.

use super::{
    super::{
        Refusal,
        denial::Denial,
        handshake::{Greeting, NOWHERE},
        metrics::{self, Outcome},
        quota::{OverQuota, Ticket, today},
        session::leg_options,
    },
    Admitted, Gate, Shared,
};
use socket2::SockRef;
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use thalweg_base::log::Event;
use thalweg_mesh::{MeshPeer, Revoked, carrier_network::Network};
use thalweg_net::pump::{self, Moved, Resetting, Stopped};
use thalweg_net::{Cause, DialOptions, channel::Channel};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{GO, GO_ACK, LegKind, Name, Preamble},
    socks5::{self, Reply},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::timeout,
};

/// What a client that will be refused has to say what it wants: it sends that at once.
const HEARD_OUT: Duration = Duration::from_secs(2);

/// How a session ended otherwise than by both sides' ends.
enum Ended {
    /// Before the second leg stood.
    Refused(Refusal),
    /// After.
    Broken(Stopped),
    /// The peer was revoked.
    Revoked,
}

impl From<Revoked> for Ended {
    fn from(Revoked: Revoked) -> Self {
        Self::Revoked
    }
}

/// What a session did, for the log.
struct Story {
    started: Instant,
    leg: LegKind,
    to: Option<Destination>,
    address: Option<SocketAddr>,
    moved: Arc<Moved>,
}

/// A channel's place, from before it says anything; given back with its end.
struct Seat {
    ticket: Ticket,
    _among_all: OwnedSemaphorePermit,
}

/// The second leg stands.
struct Opened {
    destination: Resetting,
    /// The member there, if the client has said so and it is one.
    next: Option<Name>,
    seat: Seat,
}

/// A channel on its own piece of memory: futures that pass it on stay small.
type Boxed = Box<Channel<TcpStream>>;

/// Serves one channel to the end; logs and counts it.
pub async fn serve(shared: Arc<Shared>, channel: Boxed, peer: MeshPeer, from: SocketAddr) {
    let counted = shared.metrics.connection();
    let (started, depth) = (Instant::now(), channel.depth());
    let moved = Arc::default();
    let mut story = Story { started, leg: LegKind::Sealed, to: None, address: None, moved };
    let ended = run(&shared, channel, &peer, &mut story).await;
    let (outcome, event) = told(ended);
    counted.ended(outcome);
    let member = peer.member();
    let event = event
        .with("client", from)
        .with("peer", &member.name)
        .with("principal", format_args!("{:?}", member.principal()))
        .with_number("depth", depth);
    shared.log.put(story.told_in(event));
}

/// How it ended, as a label and as the beginning of a line.
fn told(ended: Result<(), Ended>) -> (Outcome, Event) {
    let event = |outcome: Outcome| (outcome, Event::new(outcome.word()));
    let with = |outcome: Outcome, why: &dyn std::fmt::Display| {
        (outcome, Event::new(outcome.word()).with("why", why))
    };
    match ended {
        Ok(()) => event(Outcome::Closed),
        Err(Ended::Revoked | Ended::Broken(Stopped::Cut)) => event(Outcome::Revoked),
        Err(Ended::Refused(why)) => {
            let (outcome, event) = with(Outcome::Refused, &why);
            (outcome, event.with("reason", why.reason()))
        }
        Err(Ended::Broken(Stopped::Quota(over))) => {
            let retry = today().1;
            let why = OverQuota::Bytes { limit: over.limit, retry };
            let (outcome, event) = with(Outcome::Quota, &why);
            (outcome, event.with_number("retry_s", retry.as_secs()))
        }
        Err(Ended::Broken(why)) => with(Outcome::Broken, &why),
    }
}

impl Story {
    fn told_in(self, mut event: Event) -> Event {
        if let Some(to) = self.to {
            event = event.with("to", to);
        }
        if let Some(address) = self.address {
            let [up, down] = [&self.moved.up, &self.moved.down].map(|n| n.load(Ordering::Relaxed));
            event = event.with("leg", metrics::word(self.leg)).with("address", address);
            event = event.with_number("up_bytes", up).with_number("down_bytes", down);
        }
        event.with_number("took_ms", self.started.elapsed().as_millis())
    }
}

async fn run(
    shared: &Shared,
    mut channel: Boxed,
    peer: &MeshPeer,
    story: &mut Story,
) -> Result<(), Ended> {
    // A client that has left already makes this fail; its reads will tell.
    _ = leg_options().apply(SockRef::from(channel.get_ref()));
    reset_when_dropped(channel.get_ref(), true);
    let mut greeting = Greeting::default();
    // Boxed: what it needs is given back before bytes are moved, perhaps for hours.
    let opening = Box::pin(open(shared, &mut channel, peer, &mut greeting, story));
    match peer.unless_revoked(opening).await? {
        Ok(opened) => carry(shared, channel, peer, &greeting, opened, story).await,
        Err(refusal) => {
            shared.metrics.refused(refusal.reason());
            let told = Box::pin(refusal.tell(&mut *channel, greeting.prefix()));
            peer.unless_revoked(told).await?;
            reset_when_dropped(channel.get_ref(), false);
            Err(Ended::Refused(refusal))
        }
    }
}

/// Whether closing the connection resets it, whatever is on its way.
fn reset_when_dropped(tcp: &TcpStream, yes: bool) {
    // A socket that refuses this is already gone.
    _ = SockRef::from(tcp).set_linger(yes.then_some(Duration::ZERO));
}

/// A place among all sessions and among the peer's: a silent channel takes one as well.
fn seat(shared: &Shared, peer: &MeshPeer, story: &Story) -> Result<Seat, Refusal> {
    let place = Arc::clone(&shared.places).try_acquire_owned();
    let _among_all = place.map_err(|_| Refusal::Full)?;
    let roster = shared.membership.current().ok_or(Denial::NotMember)?;
    shared.quotas.keep(&roster);
    let mut quota = Gate::quota(&roster, &shared.own, &peer.key())?.tightest(shared.config.quota);
    quota.connections.get_or_insert(shared.config.share());
    let principal = peer.member().principal();
    let ticket = shared.quotas.enter(principal, quota, Arc::clone(&story.moved))?;
    Ok(Seat { ticket, _among_all })
}

/// Hears the client out, so that it understands the refusal; not too many of them, nor for long.
async fn refuse(
    shared: &Shared,
    (channel, who): (&mut Channel<TcpStream>, NodeId),
    greeting: &mut Greeting,
    story: &mut Story,
    why: Refusal,
) -> Refusal {
    let Some(_place) = shared.refused.enter(who) else { return Refusal::Crowded };
    match greeting.read(channel, shared.config.handshake.min(HEARD_OUT)).await {
        Ok(asked) => {
            story.to = Some(asked.to);
            why
        }
        Err(refusal) => refusal,
    }
}

/// Hears what the client wants and makes the second leg.
async fn open(
    shared: &Shared,
    channel: &mut Channel<TcpStream>,
    peer: &MeshPeer,
    greeting: &mut Greeting,
    story: &mut Story,
) -> Result<Opened, Refusal> {
    let seat = match seat(shared, peer, story) {
        Ok(seat) => seat,
        Err(why) => {
            let who = peer.member().principal();
            return Err(refuse(shared, (channel, who), greeting, story, why).await);
        }
    };
    let asked = greeting.read(channel, shared.config.handshake).await?;
    story.leg = asked.terms.leg;
    let to = story.to.insert(asked.to);
    let roster = shared.membership.current().ok_or(Denial::NotMember)?;
    let egress = &shared.config.egress;
    let depth = channel.depth();
    let gate = Gate::new(egress, &roster, shared.own, &peer.key(), &asked.terms, depth)?;
    let gate = gate.toward(asked.next);
    let connecting = second_leg(shared, peer, gate, roster.version, to, depth);
    let late = Err(Refusal::NoLeg(Cause::TimedOut(shared.config.connect)));
    let connected = timeout(shared.config.connect, connecting).await.unwrap_or(late)?;
    let (destination, member) = connected;
    story.address = destination.peer_addr().ok();
    let next = asked.next.filter(|_| member);
    let next = next.and_then(|key| roster.by_key(&key)).map(|member| member.name.clone());
    Ok(Opened { destination, next, seat })
}

/// Resolves, checks and connects: only addresses that passed are dialled. Also whether a member
/// is there.
async fn second_leg(
    shared: &Shared,
    peer: &MeshPeer,
    mut gate: Gate<'_>,
    version: u64,
    to: &Destination,
    depth: u8,
) -> Result<(Resetting, bool), Refusal> {
    gate.check_port(to.port)?;
    let addresses = shared.names.resolve_for(peer.member().principal(), to).await?;
    shared.avoided.teach(&mut gate, version, to, &shared.config.resolver).await?;
    let admitted = gate.admit(to, &addresses)?;
    let options = DialOptions { socket: leg_options(), ..DialOptions::default() };
    let addresses: Vec<_> = admitted.iter().map(|a| a.address).collect();
    let tcp = thalweg_net::connect(&addresses, None, &options).await.map_err(Refusal::NoLeg)?;
    let mut destination = Resetting::new(tcp);
    shared.config.egress.check_made(&destination)?;
    let member = introduce(&mut destination, &admitted, depth).await?;
    Ok((destination, member))
}

/// Tells the next relay, if it is one, how many were before it; whether it is one.
async fn introduce(
    destination: &mut TcpStream,
    admitted: &[Admitted],
    depth: u8,
) -> Result<bool, Refusal> {
    let failed = |e| Refusal::NoLeg(Cause::Leg(e));
    let at = destination.peer_addr().map_err(failed)?;
    let member = admitted.iter().any(|a| a.address == at && a.member);
    if member {
        let preamble = Preamble { depth: depth.saturating_add(1) };
        destination.write_all(&preamble.encode()).await.map_err(failed)?;
    }
    Ok(member)
}

/// Tells the client that the second leg stands, and moves bytes until both directions end.
async fn carry(
    shared: &Shared,
    channel: Boxed,
    peer: &MeshPeer,
    greeting: &Greeting,
    opened: Opened,
    story: &Story,
) -> Result<(), Ended> {
    let Opened { destination, next, seat } = opened;
    let bound = destination.local_addr().unwrap_or(NOWHERE);
    let reply = [greeting.prefix(), socks5::encode_reply(Reply::Succeeded, bound)].concat();
    let mut terms = pump::Terms::new(shared.config.limits(), &story.moved);
    terms.throttle = seat.ticket.throttle();
    // Behind another relay the client's leg ends at that one, whose name is not told.
    // And what comes by the carrier shows the carrier, not the path beneath it.
    let network = Network::of(&shared.membership.mesh());
    let rides = channel.get_ref().peer_addr().is_ok_and(|at| network.has(at.ip()));
    let client = (channel.depth() == 0 && !rides).then(|| peer.member().name.clone());
    let watched = shared.metrics.legs().watch(client, next);
    terms.watcher = Some(&watched);
    let _flow = shared.metrics.flow(greeting.leg(), &story.moved);
    shared.metrics.handshake(story.started.elapsed());
    let patience = shared.config.handshake;
    let cut = pin!(peer.revoked());
    let moved = match greeting.leg() {
        LegKind::Sealed => {
            let client = Box::pin(answer(channel, reply));
            let client = peer.unless_revoked(client).await?.map_err(broken)?;
            reset_when_dropped(client.get_ref(), false);
            let client = Resetting::new(client);
            Box::pin(pump::sealed(client, destination, terms, cut)).await
        }
        LegKind::Open => {
            let cut_over = Box::pin(cut_over(channel, reply, patience));
            let (client, early) = peer.unless_revoked(cut_over).await?.map_err(broken)?;
            reset_when_dropped(&client, false);
            let client = Resetting::new(client);
            Box::pin(pump::clear(client, early, destination, terms, cut)).await
        }
    };
    moved.map_err(Ended::Broken)
}

fn broken(e: io::Error) -> Ended {
    Ended::Broken(Stopped::Broken(e))
}

async fn answer(mut channel: Boxed, reply: Vec<u8>) -> io::Result<Boxed> {
    channel.write_all(&reply).await?;
    channel.flush().await?;
    Ok(channel)
}

/// Leaves TLS: GO is our last byte in it, GO-ACK the client's (see [`thalweg_wire::mesh`]).
async fn cut_over(
    channel: Boxed,
    mut reply: Vec<u8>,
    patience: Duration,
) -> io::Result<(TcpStream, Vec<u8>)> {
    reply.push(GO);
    let mut channel = answer(channel, reply).await?;
    let mut ack = [0];
    let read = timeout(patience, channel.read_exact(&mut ack)).await;
    read.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no GO-ACK from the client"))??;
    if ack != [GO_ACK] {
        let text = "the client did not acknowledge the end of TLS";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    channel.into_clear()
}
