//! Asks another member about the pair.

use crate::checks::{clock::OtherClock, mtu::MtuFacts, nat::AddressView, path::PathFacts};
use futures_util::future::join_all;
use rustix::net::sockopt;
use socket2::SockRef;
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use thalweg_base::{clock::WallClock, message};
use thalweg_net::{
    PrivateKey, TcpInfo,
    channel::{Channel, ChannelError, Connector, Protocol},
    interfaces, resolve,
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    doctor::{DialedBack, Finding, Hello, MAX_FINDINGS, MAX_PADDING, MAX_REPLY, Reply, Request},
    mesh::Member,
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout, timeout_at},
};

/// How long a connection may take, per address, and its handshake: three SYNs, at 0, 1 and 3 s.
const CONNECT: Duration = Duration::from_secs(4);

/// How long a small answer may take.
const ANSWER: Duration = Duration::from_secs(4);

/// How long the member may take to connect back: to all addresses at a time, and some waiting.
const DIAL_BACK: Duration = Duration::from_secs(10);

/// How long padding may take, 24 KiB: a second even at 200 kbit/s.
const PADDED: Duration = Duration::from_secs(3);

/// Padding that shows whether full-sized packets pass, bytes.
const PADDING: usize = 24 << 10;

/// Padding of the attempts with smaller segments, bytes.
const SMALL_PADDING: usize = 8 << 10;

/// Segments, bytes, that are tried when padding does not arrive; the first is the path's own.
const SEGMENTS: [Option<u32>; 7] =
    [None, Some(1420), Some(1360), Some(1240), Some(1120), Some(960), Some(536)];

/// Rounds of padding in both directions that count losses: some 370 segments each way.
const ROUNDS: usize = 16;

/// How long these may take altogether.
const LOSS: Duration = Duration::from_secs(6);

/// Asks members with this host's identity; cheap to clone.
#[derive(Clone, Debug)]
pub struct Examiner {
    connector: Connector,
    clock: WallClock,
    /// The local port of first connections; 0: any.
    port: u16,
}

/// What one member's answers showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Examination {
    pub hello: Hello,
    pub clock: OtherClock,
    pub view: AddressView,
    pub path: PathFacts,
    pub mtu: MtuFacts,
    /// Whether the member reaches this host, or why it did not try.
    pub dialed: Result<Vec<DialedBack>, String>,
    /// The member's own findings about the pair; empty if it could not tell them.
    pub findings: Vec<Finding>,
}

/// Why a member could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// No connection to any of its addresses.
    Unreached(String),
    /// Another host answers at its address.
    OtherHost,
    /// It does not admit this host's key.
    NotAdmitted,
    /// Connections open, but not even the handshake passes with packets of full size.
    BlackHole(Box<MtuFacts>),
    /// Its version does not answer such questions.
    TooOld(String),
    /// It answered something else, or not in time.
    Broken(String),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached(why) | Self::TooOld(why) | Self::Broken(why) => f.write_str(why),
            Self::OtherHost => f.write_str("a node with another key answers at its address"),
            Self::NotAdmitted => f.write_str("it does not admit this host's key"),
            Self::BlackHole(_) => f.write_str("packets of full size do not pass"),
        }
    }
}

impl From<ChannelError> for PeerError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::WrongKey(_) => Self::OtherHost,
            ChannelError::NotAdmitted => Self::NotAdmitted,
            ChannelError::NotServed(_) => Self::TooOld(error.to_string()),
            ChannelError::Handshake(why) => Self::Broken(format!("the handshake failed: {why}")),
        }
    }
}

impl From<io::Error> for PeerError {
    fn from(error: io::Error) -> Self {
        match ChannelError::is_not_admitted(&error) {
            true => Self::NotAdmitted,
            false => Self::Broken(error.to_string()),
        }
    }
}

fn late(within: Duration) -> PeerError {
    PeerError::Broken(format!("no answer in {} s", within.as_secs()))
}

impl Examiner {
    /// Creates an examiner that proves `key`. First connections begin at `port`, so that the views of several members
    /// tell the kind of NAT; 0: at any port.
    ///
    /// # Errors
    /// If TLS refuses the key, which is not expected.
    pub fn new(key: &PrivateKey, clock: WallClock, port: u16) -> io::Result<Self> {
        Ok(Self { connector: Connector::new(key)?, clock, port })
    }

    /// A port that is free now, with the socket that keeps it until it is dropped.
    ///
    /// # Errors
    /// The system's.
    pub fn reserve_port() -> io::Result<(u16, TcpSocket)> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        Ok((socket.local_addr()?.port(), socket))
    }

    /// Asks a member everything; some seconds at most, more if its answers do not arrive.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn examine(
        &self,
        member: &Member,
        dial_back: bool,
    ) -> Result<Examination, PeerError> {
        let Some(key) = member.node else {
            return Err(PeerError::Unreached("the roster lists no node of it".to_owned()));
        };
        let (mut channel, address) = self.open(member, key).await?;
        let (hello, clock) = self.greet(&mut channel).await?;
        let peer = hello.name.to_string();
        let local = channel.get_ref().local_addr()?;
        let view = AddressView { peer: peer.clone(), local, seen: hello.seen_as };
        let dialed = match dial_back {
            true => ask_back(&mut channel).await,
            false => Err("not asked".to_owned()),
        };
        let up = echo(&mut channel, PADDING, 0).await.is_ok();
        let down = up && echo(&mut channel, 0, PADDING).await.is_ok();
        let mtu = self.mtu(&peer, &channel, (up, down), address, key).await;
        let path = path(&peer, &mut channel, up && down).await?;
        let findings = if up && down { ask_findings(&mut channel).await } else { Vec::new() };
        Ok(Examination { hello, clock, view, path, mtu, dialed, findings })
    }

    /// Opens a channel at the first of the member's addresses that answers.
    async fn open(
        &self,
        member: &Member,
        key: NodeId,
    ) -> Result<(Channel<TcpStream>, SocketAddr), PeerError> {
        let mut failed = "the roster lists no address of it".to_owned();
        for listed in &member.addresses {
            let found = match timeout(CONNECT, resolve(listed)).await {
                Ok(Ok(found)) => found,
                Ok(Err(why)) => {
                    failed = format!("{listed}: {why}");
                    continue;
                }
                Err(_) => {
                    failed = format!("{listed}: its name was not resolved in time");
                    continue;
                }
            };
            for address in found {
                match connect(address, self.port, None).await {
                    Ok(tcp) => {
                        let local = tcp.local_addr().ok();
                        return match self.channel(tcp, key).await {
                            Ok(channel) => Ok((channel, address)),
                            Err(PeerError::Broken(why)) => {
                                Err(self.stalled(member, local, (address, key), why).await)
                            }
                            Err(why) => Err(why),
                        };
                    }
                    Err(why) => failed = format!("{address}: {why}"),
                }
            }
        }
        Err(PeerError::Unreached(failed))
    }

    async fn channel(&self, tcp: TcpStream, key: NodeId) -> Result<Channel<TcpStream>, PeerError> {
        let opened = timeout(CONNECT, self.connector.connect(tcp, key, Protocol::Doctor)).await;
        Ok(opened.map_err(|_| late(CONNECT))??)
    }

    async fn greet(
        &self,
        channel: &mut Channel<TcpStream>,
    ) -> Result<(Hello, OtherClock), PeerError> {
        let (begun, ours) = (Instant::now(), self.clock.now());
        let Reply::Hello(hello) = ask(channel, &Request::Hello, ANSWER).await? else {
            return Err(PeerError::Broken("it answered something else".to_owned()));
        };
        let doubt_s = begun.elapsed().as_secs_f64() / 2.0;
        let ahead_s = seconds(hello.time) - seconds(ours) - doubt_s;
        let clock = OtherClock { of: hello.name.to_string(), ahead_s, doubt_s };
        Ok((hello, clock))
    }

    /// What the padding showed. If some did not arrive, tries smaller segments, all at a time.
    async fn mtu(
        &self,
        peer: &str,
        channel: &Channel<TcpStream>,
        (up, down): (bool, bool),
        address: SocketAddr,
        key: NodeId,
    ) -> MtuFacts {
        let interface = channel.get_ref().local_addr().ok().and_then(|at| interface_of(at.ip()));
        let path = mtu_of(channel.get_ref());
        let facts = MtuFacts { peer: peer.to_owned(), interface, path, up, down, passes: None };
        if up && down {
            return facts;
        }
        self.try_segments(facts, address, key).await
    }

    /// Tries smaller segments, all at a time.
    async fn try_segments(&self, facts: MtuFacts, address: SocketAddr, key: NodeId) -> MtuFacts {
        let tries = SEGMENTS.map(|segment| self.pads(address, key, segment));
        let results = join_all(tries).await;
        // A second attempt with the path's own segments that succeeds was slowed by losses, not by sizes.
        let (up, down) = results.first().copied().unwrap_or_default();
        let all = SEGMENTS.into_iter().zip(results);
        let passes = all.filter_map(|(segment, (up, down))| segment.filter(|_| up && down)).max();
        MtuFacts { up, down, passes: passes.filter(|_| !(up && down)), ..facts }
    }

    /// Why a handshake did not end: its messages may be longer than what passes.
    async fn stalled(
        &self,
        member: &Member,
        local: Option<SocketAddr>,
        (address, key): (SocketAddr, NodeId),
        why: String,
    ) -> PeerError {
        let interface = local.and_then(|local| interface_of(local.ip()));
        let (peer, path, passes) = (member.name.to_string(), None, None);
        let facts = MtuFacts { peer, interface, path, up: false, down: false, passes };
        let facts = self.try_segments(facts, address, key).await;
        match facts.passes {
            Some(_) => PeerError::BlackHole(Box::new(facts)),
            None => PeerError::Broken(why),
        }
    }

    /// Whether padding arrives there, and here, on connections with segments of at most this size.
    async fn pads(&self, address: SocketAddr, key: NodeId, segment: Option<u32>) -> (bool, bool) {
        let one = async |up, down| {
            let tcp = connect(address, 0, segment).await.ok()?;
            let mut channel = self.channel(tcp, key).await.ok()?;
            echo(&mut channel, up, down).await.ok()
        };
        let (up, down) = tokio::join!(one(SMALL_PADDING, 0), one(0, SMALL_PADDING));
        (up.is_some(), down.is_some())
    }
}

/// Connects from this local port, with segments of at most this size.
async fn connect(to: SocketAddr, port: u16, segment: Option<u32>) -> io::Result<TcpStream> {
    let (socket, any): (_, IpAddr) = match to {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, Ipv6Addr::UNSPECIFIED.into()),
    };
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    if let Some(segment) = segment {
        SockRef::from(&socket).set_tcp_mss(segment)?;
    }
    if port > 0 {
        socket.bind((any, port).into())?;
    }
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {CONNECT:?}"));
    timeout(CONNECT, socket.connect(to)).await.unwrap_or_else(|_| Err(late()))
}

async fn ask(
    channel: &mut Channel<TcpStream>,
    request: &Request,
    within: Duration,
) -> Result<Reply, PeerError> {
    let exchange = async {
        message::write(channel, request).await?;
        message::read(channel, MAX_REPLY).await
    };
    let reply = timeout(within, exchange).await.map_err(|_| late(within))??;
    reply.ok_or_else(|| PeerError::Broken("it closed the channel".to_owned()))
}

async fn ask_back(channel: &mut Channel<TcpStream>) -> Result<Vec<DialedBack>, String> {
    match ask(channel, &Request::DialBack, DIAL_BACK).await {
        Ok(Reply::DialBack(dialed)) => Ok(dialed.into_iter().take(Member::MAX_ADDRESSES).collect()),
        Ok(Reply::Refused(why)) => Err(why),
        Ok(_) => Err("it answered something else".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

async fn ask_findings(channel: &mut Channel<TcpStream>) -> Vec<Finding> {
    match ask(channel, &Request::Findings, ANSWER).await {
        Ok(Reply::Findings(all)) => {
            all.into_iter().take(MAX_FINDINGS).map(Finding::bounded).collect()
        }
        // The member's own word is a supplement.
        _ => Vec::new(),
    }
}

async fn echo(channel: &mut Channel<TcpStream>, up: usize, down: usize) -> Result<(), PeerError> {
    let down = u32::try_from(down).unwrap_or(0);
    match ask(channel, &Request::Echo { up: vec![0; up], down }, PADDED).await? {
        Reply::Echo(_) => Ok(()),
        _ => Err(PeerError::Broken("it answered something else".to_owned())),
    }
}

/// Moves padding both ways, if it passes at all, and counts what the kernel sent again.
async fn path(
    peer: &str,
    channel: &mut Channel<TcpStream>,
    passes: bool,
) -> Result<PathFacts, PeerError> {
    let deadline = Instant::now() + LOSS;
    // What is moved until then counts.
    for _ in 0..if passes { ROUNDS } else { 0 } {
        let round = timeout_at(deadline, echo(channel, MAX_PADDING, MAX_PADDING)).await;
        if !matches!(round, Ok(Ok(()))) {
            break;
        }
    }
    let info = TcpInfo::of(channel.get_ref())?;
    Ok(PathFacts {
        peer: peer.to_owned(),
        rtt: info.min_rtt.min(info.rtt),
        sent: info.sent / u64::from(info.mss.max(1)),
        retransmitted: info.retransmitted.into(),
        received: info.data_segments,
        out_of_order: info.out_of_order.into(),
    })
}

fn seconds(time: WallTime) -> f64 {
    time.as_unix_nanos() as f64 / 1e9
}

fn mtu_of(tcp: &TcpStream) -> Option<u32> {
    match tcp.peer_addr().ok()? {
        SocketAddr::V4(_) => sockopt::ip_mtu(tcp).ok(),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(tcp).ok(),
    }
}

fn interface_of(ip: IpAddr) -> Option<String> {
    let ip = ip.to_canonical();
    let found = interfaces().ok()?;
    found.into_iter().find(|one| one.addresses.contains(&ip)).map(|one| one.name)
}
