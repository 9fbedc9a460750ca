//! The UDP socket of a process, and the sessions that receive datagrams by it.

use super::riders::Riders;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_measure::train::{MAX_PROBES, OVERHEAD, overhead};
use thalweg_net::probe::{Opener, UnsealError, prepare, receive};
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

/// The receive buffer that the kernel is asked for, bytes: a train of the longest probes at once. If it is full, the
/// kernel drops datagrams, and the result says so.
const BUFFER: usize = 4 << 20;

/// The most sessions: 256 of carriers, whoever opened them; 64 for members' trains (`serve.rs`); 256 of this host's own
/// programs (32 with 8 each); 64 for sessions that begin before their predecessors have ended. A further session is
/// refused as busy.
const MAX_SESSIONS: usize = 640;

/// The number of trains of a session whose arrivals are kept. Older trains are forgotten.
const KEPT: usize = 4;

/// The most probes that wait for a program that is slow to read them: a whole train. Beyond that the oldest are dropped
/// and counted.
const WAITING: usize = MAX_PROBES;

/// Once a train has been sent, its missing probes are lost if none arrived for this long and for three times its
/// longest gap so far.
const QUIET: Duration = Duration::from_millis(50);

/// The pause after a failed receive, e.g. because of an ICMP error.
const PAUSE: Duration = Duration::from_millis(10);

/// A UDP socket, and the sessions that receive by it.
#[derive(Debug)]
pub struct Endpoint {
    socket: UdpSocket,
    sessions: Mutex<BTreeMap<u32, Arc<Incoming>>>,
    refused: [AtomicU64; 4],
    /// Datagrams that the kernel dropped, by its count.
    dropped: AtomicU32,
    came: broadcast::Sender<Arc<ReceivedProbe>>,
}

/// A received probe with a tool's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedProbe {
    /// The member that sent it.
    pub from: Name,
    /// Its train and index, and its send time by the sender's clock ([`ProbeHead::sent`]).
    pub head: ProbeHead,
    /// The size of the whole datagram, bytes.
    pub size: u16,
    /// The tool's bytes, at most 256.
    pub header: Vec<u8>,
    /// When it arrived, ns by this host's wall clock (the kernel's timestamp).
    pub at: u64,
}

/// Why a datagram was dropped. Its sender is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It is too short, or of an unknown session.
    Stranger,
    /// It was altered, or belongs to another session.
    Forged,
    /// It has been received before.
    Replayed,
    /// Its seal is good, but it cannot be read, or has more than [`MAX_HEADER`] bytes of a tool.
    Unread,
}

/// Why nothing can be sent to the other end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum NoReturnAddress {
    /// No datagram has arrived.
    #[error("no datagram has arrived from that host yet")]
    Silent,
    /// Datagrams come from another address than the channel. Anybody can forge a datagram's source, even as that of a
    /// third host.
    #[error(
        "its datagrams come from {from}, but its channel from {peer}; trains are sent only to the \
         channel's address, so that no other host receives unrequested traffic; configure that host \
         to send UDP and TCP from the same address"
    )]
    Elsewhere {
        /// The channel's address.
        peer: IpAddr,
        /// The datagrams' address.
        from: IpAddr,
    },
}

/// What a session has received.
pub(super) struct Incoming {
    state: Mutex<SessionState>,
    changed: Notify,
}

struct SessionState {
    opener: Opener,
    /// The member, if the sender is known.
    who: Option<Name>,
    /// The channel's address. Nothing is sent to another one, because the source of a datagram can be forged.
    peer: IpAddr,
    /// The source of the last genuine datagram from that address.
    from: Option<SocketAddr>,
    /// Another address that genuine datagrams came from.
    elsewhere: Option<IpAddr>,
    trains: BTreeMap<u32, Arrivals>,
    has_shown: bool,
    /// Bytes of trains' datagrams that were not charged yet, IP and UDP headers included.
    unpaid: u64,
    /// The socket's count of dropped datagrams at the last report.
    reported: u32,
    /// The recipient of riders, and the epoch of the other end under which they are numbered.
    riders: Option<(Arc<dyn Riders>, u64)>,
}

/// The probes of a train that arrived.
#[derive(Default)]
struct Arrivals {
    /// When each probe arrived, ns by the kernel's timestamp.
    at: Vec<Option<u64>>,
    /// Bytes of the datagrams that arrived.
    bytes: u64,
    /// When the last datagram was read.
    last: Option<Instant>,
}

impl Arrivals {
    /// How long after the last arrival no more are expected.
    fn quiet(&self) -> Duration {
        let mut stamps: Vec<u64> = self.at.iter().flatten().copied().collect();
        stamps.sort_unstable();
        let longest = stamps.windows(2).map(|pair| pair[1] - pair[0]).max();
        QUIET.max(Duration::from_nanos(longest.unwrap_or(0)) * 3)
    }

    /// The number of probes that arrived, and the time from the first to the last.
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

/// The entry of a session at its endpoint; removed when dropped.
#[derive(Debug)]
pub(super) struct SessionEntry {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) number: u32,
    pub(super) incoming: Arc<Incoming>,
}

impl SessionEntry {
    /// As [`Incoming::arrivals`], with the number of datagrams, of any session, that the socket has dropped since the
    /// last call.
    pub(super) async fn arrivals(
        &self,
        train: u32,
        probes: usize,
        wait: Duration,
    ) -> (Vec<Option<u64>>, u32) {
        let arrived = self.incoming.arrivals(train, probes, wait).await;
        let dropped = self.endpoint.dropped.load(Ordering::Relaxed);
        let reported = std::mem::replace(&mut self.incoming.lock().reported, dropped);
        (arrived, dropped.wrapping_sub(reported))
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        self.endpoint.lock().remove(&self.number);
    }
}

impl Endpoint {
    /// Binds a socket to this address; port 0 takes a free port. Needs a runtime; nothing is received before
    /// [`Self::run`].
    ///
    /// # Errors
    /// The kernel's.
    pub async fn bind(at: SocketAddr) -> io::Result<Self> {
        Self::with(at, broadcast::channel(WAITING).0).await
    }

    /// Binds a socket to another address of the same node. Probes that arrive at either are published by both
    /// ([`Self::subscribe`]).
    ///
    /// # Errors
    /// The kernel's.
    pub async fn beside(&self, at: SocketAddr) -> io::Result<Self> {
        Self::with(at, self.came.clone()).await
    }

    async fn with(at: SocketAddr, came: broadcast::Sender<Arc<ReceivedProbe>>) -> io::Result<Self> {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::for_address(at), Type::DGRAM.nonblocking(), None)?;
        if at.is_ipv6() {
            // As for the node's TCP port: IPv4 has a socket of its own.
            socket.set_only_v6(true)?;
        }
        socket.bind(&at.into())?;
        let socket = UdpSocket::from_std(socket.into())?;
        prepare(socket.as_fd(), BUFFER)?;
        let (sessions, refused, dropped) = Default::default();
        Ok(Self { socket, sessions, refused, dropped, came })
    }

    /// Subscribes to probes with a tool's bytes. A receiver that falls behind loses the oldest, and learns how many.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<ReceivedProbe>> {
        self.came.subscribe()
    }

    /// The number of datagrams dropped for this reason.
    pub fn drop_count(&self, why: DropReason) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// The socket's address.
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
        self.sessions.lock()
    }

    /// Registers a session with this number, whose channel leads to the address `peer`; `None` if the number is taken
    /// or there are too many sessions.
    pub(super) fn enter(
        self: &Arc<Self>,
        number: u32,
        opener: Opener,
        who: Option<Name>,
        peer: IpAddr,
    ) -> Option<SessionEntry> {
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS || sessions.contains_key(&number) {
            return None;
        }
        let (peer, from, elsewhere, trains) = (peer.to_canonical(), None, None, BTreeMap::new());
        let reported = self.dropped.load(Ordering::Relaxed);
        let (has_shown, unpaid, riders) = Default::default();
        let state = SessionState {
            opener,
            who,
            peer,
            from,
            elsewhere,
            trains,
            has_shown,
            unpaid,
            reported,
            riders,
        };
        let incoming = Arc::new(Incoming { state: Mutex::new(state), changed: Notify::new() });
        sessions.insert(number, Arc::clone(&incoming));
        Some(SessionEntry { endpoint: Arc::clone(self), number, incoming })
    }

    /// Receives datagrams; never returns.
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

    /// Drops datagrams of unknown sessions or with a bad seal, and counts why.
    fn take(&self, datagram: &[u8], at: Option<u64>, from: Option<SocketAddr>, dropped: u32) {
        self.dropped.store(dropped, Ordering::Relaxed);
        let processed = self.process(datagram, at, from);
        if let Err(why) = processed {
            self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn process(
        &self,
        datagram: &[u8],
        at: Option<u64>,
        from: Option<SocketAddr>,
    ) -> Result<(), DropReason> {
        let (outer, sealed) = Outer::split(datagram).ok_or(DropReason::Stranger)?;
        let incoming = self.lock().get(&outer.session).cloned().ok_or(DropReason::Stranger)?;
        let mut state = incoming.lock();
        let payload = state.opener.open(outer, sealed).map_err(|why| match why {
            UnsealError::Replayed => DropReason::Replayed,
            UnsealError::Forged => DropReason::Forged,
        })?;
        state.seen(from);
        let riders = match Payload::decode(&payload).map_err(|_| DropReason::Unread)? {
            Payload::Riders(riders) => riders,
            Payload::Probe { header, .. } if header.len() > MAX_HEADER => {
                return Err(DropReason::Unread);
            }
            Payload::Probe { head, header, riders, .. } => {
                state.note(head.train, usize::from(head.place), datagram.len() as u64, at);
                if let (Some(from), Some(at), false) = (&state.who, at, header.is_empty()) {
                    let size = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
                    let from = from.clone();
                    // There may be no subscriber.
                    _ = self.came.send(Arc::new(ReceivedProbe { from, head, size, header, at }));
                }
                incoming.changed.notify_waiters();
                riders
            }
        };
        let taker = state.riders.clone().filter(|_| !riders.is_empty());
        drop(state);
        if let Some((taker, epoch)) = taker {
            taker.receive(epoch, riders);
        }
        Ok(())
    }
}

impl SessionState {
    /// Notes the source of a genuine datagram; behind a NAT its port may be any.
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
    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }

    /// Sets the recipient of riders from now on, numbered under this epoch of the other end.
    pub(super) fn carry(&self, riders: Arc<dyn Riders>, epoch: u64) {
        self.lock().riders = Some((riders, epoch));
    }

    /// Takes the bytes of trains' datagrams since the last call, IP and UDP headers included.
    pub(super) fn unpaid(&self) -> u64 {
        std::mem::take(&mut self.lock().unpaid)
    }

    /// The address to which datagrams may be sent: the source of the other end's own.
    ///
    /// # Errors
    /// [`NoReturnAddress`] if that is not known.
    pub(super) fn from(&self) -> Result<SocketAddr, NoReturnAddress> {
        let state = self.lock();
        let peer = state.peer;
        let unshown = match state.elsewhere {
            Some(from) => NoReturnAddress::Elsewhere { peer, from },
            None => NoReturnAddress::Silent,
        };
        state.from.ok_or(unshown)
    }

    /// Waits up to `wait` for a datagram that belongs to no train. Returns whether one has arrived.
    pub(super) async fn shown(&self, wait: Duration) -> bool {
        self.until(wait, |state| state.has_shown).await;
        self.lock().has_shown
    }

    /// When each probe of a train arrived. Call it after the train was sent: it waits until all probes have arrived, no
    /// more are expected, or `wait` has passed.
    pub(super) async fn arrivals(
        &self,
        train: u32,
        probes: usize,
        wait: Duration,
    ) -> Vec<Option<u64>> {
        let all = |state: &SessionState| {
            state.trains.get(&train).is_some_and(|of| of.at.iter().flatten().count() >= probes)
        };
        let asked = Instant::now();
        let mut next = wait;
        // What arrives meanwhile tells how long the rest may take.
        while !next.is_zero() && !self.until(next.min(QUIET), all).await {
            next = self.awaited(train, asked, wait);
        }
        let (came, riders) = {
            let mut state = self.lock();
            (state.trains.remove(&train).unwrap_or_default(), state.riders.clone())
        };
        if let Some((riders, _)) = riders {
            let (count, took) = came.span();
            riders.note_received_train(count, came.bytes, took);
        }
        let mut arrived = came.at;
        arrived.resize(probes, None);
        arrived
    }

    /// How much longer to wait for a train's probes, at most `wait` since `asked`.
    fn awaited(&self, train: u32, asked: Instant, wait: Duration) -> Duration {
        let left = wait.saturating_sub(asked.elapsed());
        let state = self.lock();
        let Some((of, last)) = state.trains.get(&train).and_then(|of| Some((of, of.last?))) else {
            return left;
        };
        let quiet = of.quiet().saturating_sub(last.max(asked).elapsed());
        left.min(quiet)
    }

    /// Waits up to `wait` until `is_so`. Returns whether that came true.
    async fn until(&self, wait: Duration, is_so: impl Fn(&SessionState) -> bool) -> bool {
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
