//! One connection that a bond uses.

use super::gauge::Gauge;
use crate::interfaces::{Accounts, Uplinks};
use std::{
    fmt,
    io::{self, Cursor},
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_bond::Beyond;
use thalweg_net::{Account, Route, TcpInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, BufReader},
    net::{TcpStream, tcp::OwnedWriteHalf},
};

/// What is read at once: some chunks.
const BUFFER: usize = 128 << 10;

/// The same where each frame is paid before the next one is read: the kernel takes who reads much at once for one who
/// can take much, and opens the window accordingly.
const PAID_BUFFER: usize = 1 << 10;

/// How often the kernel is asked what a link moved: at 1 Gbit/s another quarter of a megabyte has come by then.
const LOOK: Duration = Duration::from_millis(2);

/// What comes by a link.
pub type Read = BufReader<Box<dyn AsyncRead + Send + Unpin>>;

/// A connection whose greeting is over.
pub struct LinkIo {
    /// What comes.
    pub read: Read,
    /// What goes.
    pub write: OwnedWriteHalf,
    /// The connection, for its counters and its queue.
    pub socket: OwnedFd,
    /// Whether it may carry what another carries already.
    pub may_duplicate: bool,
    /// The interface that it leaves by, where this end dialled.
    pub interface: Option<String>,
    /// The relays that it goes by, where this end dialled and there are some.
    pub via: Option<String>,
    /// What lies beyond the first relay, if there is one.
    pub beyond: Option<Beyond>,
    /// Its account since it was dialled, if there is one and nobody meters it yet.
    pub account: Option<Box<dyn Account>>,
    /// Who is told what it moves, and says when it may move more.
    pub meter: Option<Meter>,
}

/// An interface's cap and rate limit, for a link that leaves by it, until it is dropped.
#[derive(Debug)]
pub struct Meter {
    uplinks: Uplinks,
    interface: String,
    /// And when the kernel was asked last.
    account: Mutex<(Box<dyn Account>, Instant)>,
}

impl Meter {
    /// For the interface of this name; with the account that was kept since the link was dialled.
    fn new(uplinks: Uplinks, interface: &str, account: Option<Box<dyn Account>>) -> Self {
        let account = account.unwrap_or_else(|| Accounts::new(uplinks.clone()).of(interface));
        let account = Mutex::new((account, Instant::now()));
        Self { uplinks, interface: interface.to_owned(), account }
    }

    /// The link moved so many bytes; every few milliseconds the kernel says how many they were with headers,
    /// acknowledgements and what it sent again, and what has come and is not read yet.
    pub fn moved(&self, bytes: usize, gauge: &Gauge) {
        let mut account = self.lock();
        let is_due = account.1.elapsed() >= LOOK;
        let info = is_due.then(|| gauge.info()).flatten();
        if is_due {
            account.1 = Instant::now();
        }
        account.0.moved(bytes, info.as_ref());
    }

    /// The link is closed now, and its far end may send still.
    pub fn ends(&self, gauge: &Gauge) {
        self.lock().0.ends(gauge.info().as_ref());
    }

    /// Waits until it may move more.
    ///
    /// # Errors
    /// The cap is used up, or cannot be kept to.
    pub async fn may(&self) -> io::Result<()> {
        self.uplinks.may(&self.interface).await.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, (Box<dyn Account>, Instant)> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LinkIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkIo({:?})", self.socket)
    }
}

impl LinkIo {
    /// In the clear.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(tcp: TcpStream) -> io::Result<Self> {
        Self::clear_after(Vec::new(), tcp)
    }

    /// In the clear, after bytes that were read off it already.
    ///
    /// # Errors
    /// The system's.
    pub fn clear_after(early: Vec<u8>, tcp: TcpStream) -> io::Result<Self> {
        let socket = tcp.as_fd().try_clone_to_owned()?;
        let (read, write) = tcp.into_split();
        let read: Box<dyn AsyncRead + Send + Unpin> = match early.is_empty() {
            true => Box::new(read),
            false => Box::new(Cursor::new(early).chain(read)),
        };
        let read = BufReader::with_capacity(BUFFER, read);
        let (interface, via, beyond, account, meter) = (None, None, None, None, None);
        let may_duplicate = true;
        Ok(Self { read, write, socket, may_duplicate, interface, via, beyond, account, meter })
    }

    /// The same, which carries nothing that another carries already: its bytes cost.
    #[must_use]
    pub fn metered(self) -> Self {
        Self { may_duplicate: false, ..self }
    }

    /// The same before anything was read of it, whose bytes are counted, and waited for, by the interface of this name.
    #[must_use]
    pub fn paying(mut self, uplinks: Uplinks, interface: &str) -> Self {
        let account = self.account.take();
        let meter = Some(Meter::new(uplinks, interface, account));
        let read = BufReader::with_capacity(PAID_BUFFER, self.read.into_inner());
        Self { read, meter, ..self }
    }

    /// The same, which leaves by the interface of this name, and by this route.
    #[must_use]
    pub fn by(self, interface: &str, route: &Route) -> Self {
        let via = (!route.is_direct()).then(|| route.called());
        Self { interface: Some(interface.to_owned()), via, ..self }
    }

    /// The same, which goes through relays: an answer of the far end took so long.
    #[must_use]
    pub fn relayed(self, took: Duration) -> Self {
        let own = TcpInfo::of(&self.socket).map_or(took, |info| info.rtt);
        Self { beyond: Some(Beyond::new(took, own)), ..self }
    }
}
