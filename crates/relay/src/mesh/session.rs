//! One member's channel: its request, the second leg, the cut-over (an open leg leaves TLS), the pump.

use super::{
    super::{
        Refusal, RelayConfig,
        denial::Denial,
        handshake::{Handshake, NOWHERE},
        metrics::{self, Outcome},
        quota::{AdmittedConnection, OverQuota, today},
        session::leg_options,
    },
    AllowedAddress, Gate, ReverseError, Shared,
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
use thalweg_net::pump::{self, Moved, ResetOnDrop, Stopped, Throttle, ThrottleFuture};
use thalweg_net::{Cause, DialOptions, channel::Channel};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{
        GO, GO_ACK, LegKind, Member, Name, Preamble, Roster, RosterRank, is_member_destination,
    },
    socks5::{self, Reply},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::timeout,
};

/// The timeout for reading the request of a client that will be refused. Clients send their request at once.
const REFUSED_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// How a session ended before both directions had ended.
enum MemberSessionEnd {
    /// It was refused before the second leg was established.
    Refused(Refusal),
    /// It broke after the second leg was established.
    Broken(Stopped),
    /// The peer was revoked.
    Revoked,
}

impl From<Revoked> for MemberSessionEnd {
    fn from(Revoked: Revoked) -> Self {
        Self::Revoked
    }
}

/// A session's destination and traffic, for the log.
struct MemberSessionRecord {
    started: Instant,
    leg: LegKind,
    to: Option<Destination>,
    address: Option<SocketAddr>,
    moved: Arc<Moved>,
}

/// A channel's slot and quota, which it holds from before its first message to its end.
struct Slot {
    ticket: AdmittedConnection,
    /// That of the member that opened the second leg itself.
    member: Option<AdmittedConnection>,
    _among_all: OwnedSemaphorePermit,
}

impl Slot {
    /// The throttle of all who pay for the connection.
    fn throttle(&self) -> Option<JointThrottle<'_>> {
        let member = self.member.as_ref().and_then(AdmittedConnection::throttle);
        let payers = [self.ticket.throttle(), member];
        payers.iter().any(Option::is_some).then_some(JointThrottle(payers))
    }
}

/// Lets the client and the member that opened the second leg pay alike.
#[derive(Debug)]
struct JointThrottle<'a>([Option<&'a dyn Throttle>; 2]);

impl Throttle for JointThrottle<'_> {
    fn take(&self, bytes: usize) -> ThrottleFuture<'_> {
        Box::pin(async move {
            for payer in self.0.iter().flatten() {
                payer.take(bytes).await?;
            }
            Ok(())
        })
    }
}

/// An established second leg.
struct SecondLeg {
    destination: ResetOnDrop,
    /// The member at the destination, if the client named one and it is a relay or an oracle of the roster.
    next: Option<Name>,
    /// The key of the member that opened the leg itself; its revocation ends the connection.
    opener: Option<NodeId>,
    slot: Slot,
}

/// A channel in a box, so that futures that hold it stay small.
type BoxedChannel = Box<Channel<TcpStream>>;

/// Serves one channel to the end; logs and counts it.
pub async fn serve(shared: Arc<Shared>, channel: BoxedChannel, peer: MeshPeer, from: SocketAddr) {
    let counted = shared.metrics.connection();
    let (started, depth) = (Instant::now(), channel.depth());
    let moved = Arc::default();
    let mut record =
        MemberSessionRecord { started, leg: LegKind::Sealed, to: None, address: None, moved };
    let ended = run(&shared, channel, &peer, &mut record).await;
    let (outcome, event) = label_end(ended);
    counted.finish(outcome);
    let member = peer.member();
    let event = event
        .with("client", from)
        .with("peer", &member.name)
        .with("principal", format_args!("{:?}", member.principal()))
        .with_number("depth", depth);
    shared.log.put(record.add_to(event));
}

/// The label and the beginning of the log line for the end of a session.
fn label_end(ended: Result<(), MemberSessionEnd>) -> (Outcome, Event) {
    let event = |outcome: Outcome| (outcome, Event::new(outcome.label()));
    let with = |outcome: Outcome, why: &dyn std::fmt::Display| {
        (outcome, Event::new(outcome.label()).with("why", why))
    };
    match ended {
        Ok(()) => event(Outcome::Closed),
        Err(MemberSessionEnd::Revoked | MemberSessionEnd::Broken(Stopped::Cut)) => {
            event(Outcome::Revoked)
        }
        Err(MemberSessionEnd::Refused(why)) => {
            let (outcome, event) = with(Outcome::Refused, &why);
            (outcome, event.with("reason", why.reason()))
        }
        Err(MemberSessionEnd::Broken(Stopped::Quota(over))) => {
            let retry = today().1;
            let why = OverQuota::Bytes { limit: over.limit, retry };
            let (outcome, event) = with(Outcome::Quota, &why);
            (outcome, event.with_number("retry_s", retry.as_secs()))
        }
        Err(MemberSessionEnd::Broken(why)) => with(Outcome::Broken, &why),
    }
}

impl MemberSessionRecord {
    fn add_to(self, mut event: Event) -> Event {
        if let Some(to) = self.to {
            event = event.with("to", to);
        }
        if let Some(address) = self.address {
            let [up, down] = [&self.moved.up, &self.moved.down].map(|n| n.load(Ordering::Relaxed));
            event = event.with("leg", metrics::leg_label(self.leg)).with("address", address);
            event = event.with_number("up_bytes", up).with_number("down_bytes", down);
        }
        event.with_number("took_ms", self.started.elapsed().as_millis())
    }
}

async fn run(
    shared: &Shared,
    mut channel: BoxedChannel,
    peer: &MeshPeer,
    record: &mut MemberSessionRecord,
) -> Result<(), MemberSessionEnd> {
    // This fails if the client has already left, which its reads will report.
    _ = leg_options().apply(SockRef::from(channel.get_ref()));
    set_reset_on_drop(channel.get_ref(), true);
    let mut greeting = Handshake::default();
    // Boxed, so that its memory is freed before bytes are moved, perhaps for hours.
    let opening = Box::pin(open(shared, &mut channel, peer, &mut greeting, record));
    match peer.unless_revoked(opening).await? {
        Ok(opened) => carry(shared, channel, peer, &greeting, opened, record).await,
        Err(refusal) => {
            shared.metrics.refused(refusal.reason());
            let telling = Box::pin(refusal.tell(&mut *channel, greeting.prefix()));
            peer.unless_revoked(telling).await?;
            set_reset_on_drop(channel.get_ref(), false);
            Err(MemberSessionEnd::Refused(refusal))
        }
    }
}

/// Sets whether closing the connection resets it, which discards data in transit.
fn set_reset_on_drop(tcp: &TcpStream, resets: bool) {
    // This fails only for a socket that is already closed.
    _ = SockRef::from(tcp).set_linger(resets.then_some(Duration::ZERO));
}

/// Takes a slot among all sessions and one of the peer's. A channel without a request takes slots, too.
fn take_slot(
    shared: &Shared,
    peer: &MeshPeer,
    record: &MemberSessionRecord,
) -> Result<Slot, Refusal> {
    let slot = Arc::clone(&shared.slots).try_acquire_owned();
    let _among_all = slot.map_err(|_| Refusal::Full)?;
    let roster = shared.membership.current().ok_or(Denial::NotMember)?;
    shared.quotas.forget_former(&roster);
    let config = shared.config.get();
    let mut quota = Gate::quota(&roster, &shared.own, &peer.key())?.tightest(config.quota);
    quota.connections.get_or_insert(config.connections_per_member());
    let principal = peer.member().principal();
    let ticket = shared.quotas.admit(principal, quota, Arc::clone(&record.moved))?;
    Ok(Slot { ticket, member: None, _among_all })
}

/// Reads the request of a client that is refused, because the client parses a refusal only as the answer to it. The
/// number of such clients and the time are bounded.
async fn refuse(
    shared: &Shared,
    (channel, principal): (&mut Channel<TcpStream>, NodeId),
    greeting: &mut Handshake,
    record: &mut MemberSessionRecord,
    why: Refusal,
) -> Refusal {
    let Some(_slot) = shared.refused.enter(principal) else { return Refusal::Crowded };
    let patience = shared.config.get().handshake.min(REFUSED_READ_TIMEOUT);
    match greeting.read(channel, patience).await {
        Ok(asked) => {
            record.to = Some(asked.to);
            why
        }
        Err(refusal) => refusal,
    }
}

/// Reads the client's request and establishes the second leg.
async fn open(
    shared: &Shared,
    channel: &mut Channel<TcpStream>,
    peer: &MeshPeer,
    greeting: &mut Handshake,
    record: &mut MemberSessionRecord,
) -> Result<SecondLeg, Refusal> {
    let mut slot = match take_slot(shared, peer, record) {
        Ok(slot) => slot,
        Err(why) => {
            let principal = peer.member().principal();
            return Err(refuse(shared, (channel, principal), greeting, record, why).await);
        }
    };
    let config = shared.config.get();
    let asked = greeting.read(channel, config.handshake).await?;
    record.leg = asked.terms.leg;
    let to = record.to.insert(asked.to);
    let roster = shared.membership.current().ok_or(Denial::NotMember)?;
    let depth = channel.depth();
    let gate = Gate::new(&config.egress, &roster, shared.own, &peer.key(), &asked.terms, depth)?;
    if is_member_destination(to) {
        let member = asked.next.and_then(|key| roster.members.iter().find(|m| m.node == Some(key)));
        let member = member.ok_or(ReverseError::Unnamed)?;
        gate.admit_member(member)?;
        slot.member = take_slot_of(shared, &roster, peer, member, record)?;
        let destination = reverse_leg(shared, member, depth).await?;
        record.address = destination.peer_addr().ok();
        // Both legs of the relay are the member's and the client's own, as in a chain.
        let (next, opener) = (Some(member.name.clone()), member.node);
        return Ok(SecondLeg { destination, next, opener, slot });
    }
    let gate = gate.with_next(asked.next);
    let connecting = second_leg((shared, &config), peer, gate, roster.rank(), to, depth);
    let late = Err(Refusal::NoLeg(Cause::TimedOut(config.connect)));
    let connected = timeout(config.connect, connecting).await.unwrap_or(late)?;
    let (destination, member) = connected;
    record.address = destination.peer_addr().ok();
    let next = asked.next.filter(|_| member);
    let next = next.and_then(|key| roster.by_key(&key)).map(|member| member.name.clone());
    Ok(SecondLeg { destination, next, opener: None, slot })
}

/// Takes a place of the member that is asked for a connection, unless it is the client itself.
fn take_slot_of(
    shared: &Shared,
    roster: &Roster,
    client: &MeshPeer,
    member: &Member,
    record: &MemberSessionRecord,
) -> Result<Option<AdmittedConnection>, Refusal> {
    let principal = member.principal();
    if principal == client.member().principal() {
        return Ok(None);
    }
    let config = shared.config.get();
    let mut quota = Gate::quota(roster, &shared.own, &principal)?.tightest(config.quota);
    quota.connections.get_or_insert(config.connections_per_member());
    let admitted = shared.quotas.admit(principal, quota, Arc::clone(&record.moved));
    admitted.map(Some).map_err(Refusal::MemberQuota)
}

/// Asks the member for a connection, and sends the preamble on it.
async fn reverse_leg(shared: &Shared, member: &Member, depth: u8) -> Result<ResetOnDrop, Refusal> {
    let key = member.node.ok_or(ReverseError::Unnamed)?;
    let tcp = shared.reverse.connect(key, shared.config.get().connect).await?;
    // This fails if the member has already left, which its reads will report.
    _ = leg_options().apply(SockRef::from(&tcp));
    let mut destination = ResetOnDrop::new(tcp);
    let preamble = Preamble { depth: depth.saturating_add(1) };
    let sent = destination.write_all(&preamble.encode()).await;
    sent.map_err(|_| ReverseError::Broken)?;
    Ok(destination)
}

/// Resolves the destination, checks its addresses, and connects to those that passed. Also returns whether the
/// destination is a member.
async fn second_leg(
    (shared, config): (&Shared, &RelayConfig),
    peer: &MeshPeer,
    mut gate: Gate<'_>,
    rank: RosterRank,
    to: &Destination,
    depth: u8,
) -> Result<(ResetOnDrop, bool), Refusal> {
    gate.check_port(to.port)?;
    let addresses = shared.names.resolve_for(peer.member().principal(), to).await?;
    shared.avoided.resolve_into(&mut gate, rank, to, &config.resolver).await?;
    let admitted = gate.admit(to, &addresses)?;
    let options = DialOptions { socket: leg_options(), ..DialOptions::default() };
    let addresses: Vec<_> = admitted.iter().map(|a| a.address).collect();
    let tcp = thalweg_net::connect(&addresses, None, &options).await.map_err(Refusal::NoLeg)?;
    let mut destination = ResetOnDrop::new(tcp);
    config.egress.check_connected(&destination)?;
    let member = send_preamble(&mut destination, &admitted, depth).await?;
    Ok((destination, member))
}

/// If the destination is a member, sends it the preamble: the number of relays in the chain so far. Returns whether it
/// is a member.
async fn send_preamble(
    destination: &mut TcpStream,
    admitted: &[AllowedAddress],
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

/// Replies to the client that the second leg is established, and moves bytes until both directions end.
async fn carry(
    shared: &Shared,
    channel: BoxedChannel,
    peer: &MeshPeer,
    greeting: &Handshake,
    opened: SecondLeg,
    record: &MemberSessionRecord,
) -> Result<(), MemberSessionEnd> {
    let SecondLeg { destination, next, opener, slot } = opened;
    let config = shared.config.get();
    let bound = destination.local_addr().unwrap_or(NOWHERE);
    let reply = [greeting.prefix(), socks5::encode_reply(Reply::Succeeded, bound)].concat();
    let mut terms = pump::Terms::new(config.limits(), &record.moved);
    let throttle = slot.throttle();
    terms.throttle = throttle.as_ref().map(|throttle| throttle as &dyn Throttle);
    // Behind another relay the client's leg ends at that relay, whose name is not known here. And a leg over the
    // carrier would measure the carrier, not the underlying path.
    let network = Network::of(&shared.membership.mesh());
    let rides = channel.get_ref().peer_addr().is_ok_and(|at| network.has(at.ip()));
    let client = (channel.depth() == 0 && !rides).then(|| peer.member().name.clone());
    let watched = shared.metrics.legs().watch(client, next);
    terms.watcher = Some(&watched);
    let _flow = shared.metrics.flow(greeting.leg(), &record.moved);
    shared.metrics.handshake(record.started.elapsed());
    let patience = config.handshake;
    let cut = pin!(async {
        match opener {
            None => peer.revoked().await,
            Some(key) => tokio::select! {
                () = peer.revoked() => {}
                () = shared.membership.wait_for_removal(key) => {}
            },
        }
    });
    let moved = match greeting.leg() {
        LegKind::Sealed => {
            let client = Box::pin(answer(channel, reply));
            let client = peer.unless_revoked(client).await?.map_err(broken)?;
            set_reset_on_drop(client.get_ref(), false);
            let client = ResetOnDrop::new(client);
            Box::pin(pump::sealed(client, destination, terms, cut)).await
        }
        LegKind::Open => {
            let cut_over = Box::pin(cut_over(channel, reply, patience));
            let (client, early) = peer.unless_revoked(cut_over).await?.map_err(broken)?;
            set_reset_on_drop(&client, false);
            let client = ResetOnDrop::new(client);
            Box::pin(pump::clear(client, early, destination, terms, cut)).await
        }
    };
    moved.map_err(MemberSessionEnd::Broken)
}

fn broken(e: io::Error) -> MemberSessionEnd {
    MemberSessionEnd::Broken(Stopped::Broken(e))
}

async fn answer(mut channel: BoxedChannel, reply: Vec<u8>) -> io::Result<BoxedChannel> {
    channel.write_all(&reply).await?;
    channel.flush().await?;
    Ok(channel)
}

/// Leaves TLS on the client's leg, if the client asked for an open leg: GO is this end's last byte in TLS, GO-ACK the
/// client's (see [`thalweg_wire::mesh`]).
pub(super) async fn cut_over(
    channel: BoxedChannel,
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
