//! The UDP socket of a process, and the sessions whose datagrams come by it.

use super::riders::Riders;
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_measure::train::{MAX_PROBES, OVERHEAD, overhead};
use thalweg_net::probe::{Opener, Unopened, prepare, receive};
use thalweg_wire::{
    mesh::Name,
    probe::{MAX_DATAGRAM, MAX_HEADER, NO_TRAIN, Outer, Payload, ProbeHead},
};
use thiserror::Error;
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{Notify, broadcast},
    time::{sleep, timeout},
};

/// What the kernel is asked to hold of what comes, bytes: a train of the longest probes, at once.
/// When it is full, the kernel drops datagrams, which the result says.
const BUFFER: usize = 4 << 20;

/// Sessions at a time: 256 that carry, whoever opened them, 64 for members' trains (`serve.rs`), and of this host's own
/// programs 256 (32 with 8 each); 64 for what begins before its like has ended. A further session
/// is refused as busy.
const MAX_SESSIONS: usize = 640;

/// Trains of a session of which arrivals are kept: the last ones. Older trains are forgotten.
const KEPT: usize = 4;

/// Probes that wait for a program that is slow to take them: a whole train. Of more the oldest are
/// dropped and counted.
const WAITING: usize = MAX_PROBES;

/// Once a train has left, what has not come when nothing of it came for so long, or for three times its longest gap so far, is lost.
const QUIET: Duration = Duration::from_millis(50);

/// Wait after receiving fails, e.g. by an ICMP error of somebody's.
const PAUSE: Duration = Duration::from_millis(10);

/// A socket, and who receives by it.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    sessions: Mutex<BTreeMap<u32, Arc<Incoming>>>,
    refused: [AtomicU64; 4],
    /// As the kernel counts them.
    dropped: AtomicU32,
    came: broadcast::Sender<Arc<Came>>,
}

/// A probe that came with bytes of a tool's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    /// The member that sent it.
    pub from: Name,
    /// Where it belongs, and when it was to leave by the sender's clock ([`ProbeHead::sent`]).
    pub head: ProbeHead,
    /// Of its datagram, all included.
    pub size: u16,
    /// The tool's bytes, 256 at most.
    pub header: Vec<u8>,
    /// When it came, ns by this host's wall clock (the kernel's stamp).
    pub at: u64,
}

/// Why a datagram was nothing; nobody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is too short, or nobody's.
    Stranger,
    /// It was altered, or none of its session's.
    Forged,
    /// It came before.
    Replayed,
    /// It is true, and says nothing, or more of its own than is taken ([`MAX_HEADER`]).
    Unread,
}

/// Why nothing is sent to the other end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Unshown {
    /// No datagram came.
    #[error("no datagram has come from there yet")]
    Silent,
    /// Anybody can write such an address as a datagram's sender, that of a third host as well.
    #[error(
        "its datagrams come from {from} and its channel from {peer}; they are sent to the channel's address alone, so \
         that nobody is sent what he has not asked for: have UDP and TCP leave there by one address"
    )]
    Elsewhere {
        /// The channel's.
        peer: IpAddr,
        /// The datagrams'.
        from: IpAddr,
    },
}

/// What came for a session.
pub(super) struct Incoming {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    opener: Opener,
    /// The member, where it is known who sends.
    who: Option<Name>,
    /// The address that the channel leads to: no other one is sent to, since a datagram's sender can be forged.
    peer: IpAddr,
    /// Where its last true datagram from there came from.
    from: Option<SocketAddr>,
    /// Another address that true ones came from.
    elsewhere: Option<IpAddr>,
    trains: BTreeMap<u32, Arrivals>,
    has_shown: bool,
    /// Bytes of trains' datagrams since that was last asked, IP's and UDP's headers included.
    unpaid: u64,
    /// Datagrams that the socket had dropped when that was last told.
    told: u32,
    /// Who takes riders, and of which life of the other end they are.
    riders: Option<(Arc<dyn Riders>, u64)>,
}

/// A train's probes.
#[derive(Default)]
struct Arrivals {
    /// When each came, ns by the kernel's stamp.
    at: Vec<Option<u64>>,
    /// Of the datagrams that came.
    bytes: u64,
    /// When the last one was taken.
    last: Option<Instant>,
}

impl Arrivals {
    /// How long after the last one nothing more is expected.
    fn quiet(&self) -> Duration {
        let mut stamps: Vec<u64> = self.at.iter().flatten().copied().collect();
        stamps.sort_unstable();
        let longest = stamps.windows(2).map(|pair| pair[1] - pair[0]).max();
        QUIET.max(Duration::from_nanos(longest.unwrap_or(0)) * 3)
    }

    /// How many came, and the time from the first to the last.
    fn span(&self) -> (usize, Duration) {
        let stamps = || self.at.iter().flatten();
        let took = stamps().max().zip(stamps().min()).map_or(0, |(last, first)| last - first);
        (stamps().count(), Duration::from_nanos(took))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

/// A session's place at its endpoint; gone when dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) number: u32,
    pub(super) incoming: Arc<Incoming>,
}

impl Place {
    /// As [`Incoming::arrivals`], and how many datagrams, of anybody's, the socket has dropped since that was last told.
    pub(super) async fn arrivals(
        &self,
        train: u32,
        probes: usize,
        wait: Duration,
    ) -> (Vec<Option<u64>>, u32) {
        let arrived = self.incoming.arrivals(train, probes, wait).await;
        let dropped = self.endpoint.dropped.load(Ordering::Relaxed);
        let told = std::mem::replace(&mut self.incoming.lock().told, dropped);
        (arrived, dropped.wrapping_sub(told))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.endpoint.lock().remove(&self.number);
    }
}

impl Endpoint {
    /// At this address; port 0 takes a free one. Within a runtime; nothing is received before [`Self::run`].
    ///
    /// # Errors
    /// The kernel's.
    pub async fn bind(at: SocketAddr) -> io::Result<Self> {
        Self::with(at, broadcast::channel(WAITING).0).await
    }

    /// At another address of the same node: what comes by either is told by both ([`Self::came`]).
    ///
    /// # Errors
    /// The kernel's.
    pub async fn beside(&self, at: SocketAddr) -> io::Result<Self> {
        Self::with(at, self.came.clone()).await
    }

    async fn with(at: SocketAddr, came: broadcast::Sender<Arc<Came>>) -> io::Result<Self> {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), None)?;
        if at.is_ipv6() {
            // As the node's TCP port: IPv4 has a listener of its own.
            socket.set_only_v6(true)?;
        }
        socket.bind(&at.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        prepare(socket.as_fd(), BUFFER)?;
        let (sessions, refused, dropped) = Default::default();
        Ok(Self { socket, sessions, refused, dropped, came })
    }

    /// Probes with bytes of a tool's, from now on; a receiver that falls behind loses the oldest, and learns how many.
    pub fn came(&self) -> broadcast::Receiver<Arc<Came>> {
        self.came.subscribe()
    }

    /// How many datagrams were nothing, for this reason.
    pub fn refused(&self, why: Refused) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// Where it is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The same socket, for a thread that sends.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn sender(&self) -> io::Result<std::net::UdpSocket> {
        Ok(self.socket.as_fd().try_clone_to_owned()?.into())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Incoming>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a session of this number, whose channel leads to that address; `None`: it is taken, or there are too many.
    pub(super) fn enter(
        self: &Arc<Self>,
        number: u32,
        opener: Opener,
        who: Option<Name>,
        peer: IpAddr,
    ) -> Option<Place> {
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS || sessions.contains_key(&number) {
            return None;
        }
        let (peer, from, elsewhere, trains) = (peer.to_canonical(), None, None, BTreeMap::new());
        let told = self.dropped.load(Ordering::Relaxed);
        let (has_shown, unpaid, riders) = Default::default();
        let state =
            State { opener, who, peer, from, elsewhere, trains, has_shown, unpaid, told, riders };
        let incoming = Arc::new(Incoming { state: Mutex::new(state), changed: Notify::new() });
        sessions.insert(number, Arc::clone(&incoming));
        Some(Place { endpoint: Arc::clone(self), number, incoming })
    }

    /// Takes what comes; never ends.
    pub async fn run(&self) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let take = || receive(self.socket.as_fd(), &mut buffer);
            match self.socket.async_io(Interest::READABLE, take).await {
                Ok(stamped) => {
                    let at = stamped.at.map(|at| at.as_unix_nanos());
                    self.take(&buffer[..stamped.length], at, stamped.from, stamped.dropped);
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// What is nobody's, or not true, is nothing.
    fn take(&self, datagram: &[u8], at: Option<u64>, from: Option<SocketAddr>, dropped: u32) {
        self.dropped.store(dropped, Ordering::Relaxed);
        let taken = self.taken(datagram, at, from);
        if let Err(why) = taken {
            self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn taken(
        &self,
        datagram: &[u8],
        at: Option<u64>,
        from: Option<SocketAddr>,
    ) -> Result<(), Refused> {
        let (outer, sealed) = Outer::split(datagram).ok_or(Refused::Stranger)?;
        let incoming = self.lock().get(&outer.session).cloned().ok_or(Refused::Stranger)?;
        let mut state = incoming.lock();
        let payload = state.opener.open(outer, sealed).map_err(|why| match why {
            Unopened::Replayed => Refused::Replayed,
            Unopened::Forged => Refused::Forged,
        })?;
        state.seen(from);
        let riders = match Payload::decode(&payload).map_err(|_| Refused::Unread)? {
            Payload::Riders(riders) => riders,
            Payload::Probe { header, .. } if header.len() > MAX_HEADER => {
                return Err(Refused::Unread);
            }
            Payload::Probe { head, header, riders, .. } => {
                state.note(head.train, usize::from(head.place), datagram.len() as u64, at);
                if let (Some(from), Some(at), false) = (&state.who, at, header.is_empty()) {
                    let size = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
                    let from = from.clone();
                    // Nobody may be there to take it.
                    _ = self.came.send(Arc::new(Came { from, head, size, header, at }));
                }
                incoming.changed.notify_waiters();
                riders
            }
        };
        let taker = state.riders.clone().filter(|_| !riders.is_empty());
        drop(state);
        if let Some((taker, epoch)) = taker {
            taker.arrived(epoch, riders);
        }
        Ok(())
    }
}

impl State {
    /// A true datagram came from there: its port may be any, behind NATs.
    fn seen(&mut self, from: Option<SocketAddr>) {
        match from {
            Some(from) if from.ip().to_canonical() == self.peer => self.from = Some(from),
            Some(from) => self.elsewhere = Some(from.ip().to_canonical()),
            None => {}
        }
    }

    fn note(&mut self, train: u32, place: usize, bytes: u64, at: Option<u64>) {
        if train == NO_TRAIN {
            self.has_shown = true;
            return;
        }
        let each = self.from.map_or(OVERHEAD, |from| overhead(from.ip()));
        self.unpaid += bytes + u64::from(each);
        if place >= MAX_PROBES {
            return;
        }
        let arrivals = self.trains.entry(train).or_default();
        arrivals.last = Some(Instant::now());
        arrivals.bytes += bytes;
        let of = &mut arrivals.at;
        if of.len() <= place {
            of.resize(place + 1, None);
        }
        of[place] = of[place].or(at);
        while self.trains.len() > KEPT {
            self.trains.pop_first();
        }
    }
}

impl Incoming {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Riders that come from now on are for this one, and of that life of the other end.
    pub(super) fn carry(&self, riders: Arc<dyn Riders>, epoch: u64) {
        self.lock().riders = Some((riders, epoch));
    }

    /// What trains' datagrams took since this was last asked, bytes with IP's and UDP's headers.
    pub(super) fn unpaid(&self) -> u64 {
        std::mem::take(&mut self.lock().unpaid)
    }

    /// Where datagrams may go to it: where its own come from.
    ///
    /// # Errors
    /// [`Unshown`]: it has not shown where that is.
    pub(super) fn from(&self) -> Result<SocketAddr, Unshown> {
        let state = self.lock();
        let peer = state.peer;
        let unshown = match state.elsewhere {
            Some(from) => Unshown::Elsewhere { peer, from },
            None => Unshown::Silent,
        };
        state.from.ok_or(unshown)
    }

    /// Waits until one came that is no train's, or so long; whether it did.
    pub(super) async fn shown(&self, wait: Duration) -> bool {
        self.until(wait, |state| state.has_shown).await;
        self.lock().has_shown
    }

    /// When each of a train's probes came, once all are there, or nothing comes any more, or after so long; it has left
    /// when this is asked.
    pub(super) async fn arrivals(
        &self,
        train: u32,
        probes: usize,
        wait: Duration,
    ) -> Vec<Option<u64>> {
        let all = |state: &State| {
            state.trains.get(&train).is_some_and(|of| of.at.iter().flatten().count() >= probes)
        };
        let asked = Instant::now();
        let mut next = wait;
        // What comes meanwhile says how long the rest may take.
        while !next.is_zero() && !self.until(next.min(QUIET), all).await {
            next = self.awaited(train, asked, wait);
        }
        let (came, riders) = {
            let mut state = self.lock();
            (state.trains.remove(&train).unwrap_or_default(), state.riders.clone())
        };
        if let Some((riders, _)) = riders {
            let (count, took) = came.span();
            riders.passed(count, came.bytes, took);
        }
        let mut arrived = came.at;
        arrived.resize(probes, None);
        arrived
    }

    /// How much longer a train's probes are waited for, since then and so long at most.
    fn awaited(&self, train: u32, asked: Instant, wait: Duration) -> Duration {
        let left = wait.saturating_sub(asked.elapsed());
        let state = self.lock();
        let Some((of, last)) = state.trains.get(&train).and_then(|of| Some((of, of.last?))) else {
            return left;
        };
        let quiet = of.quiet().saturating_sub(last.max(asked).elapsed());
        left.min(quiet)
    }

    /// Waits until that is so, or so long; whether it was.
    async fn until(&self, wait: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let waiting = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if is_so(&self.lock()) {
                    return;
                }
                changed.await;
            }
        };
        timeout(wait, waiting).await.is_ok()
    }
}
