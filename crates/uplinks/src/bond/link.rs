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
    sync::Notify,
    time::sleep,
};

/// What is read at once: some chunks.
const BUFFER: usize = 128 << 10;

/// The same where each frame is paid before the next one is read: the kernel takes who reads much at once for one who
/// can take much, and opens the window accordingly.
const PAID_BUFFER: usize = 1 << 10;

/// How often the kernel is asked what a link moved, and what has no cap is counted: at 1 Gbit/s another quarter of a megabyte has come by then.
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

/// An interface's counts, its cap and its rate limit, for a link that leaves by it, until it is dropped.
///
/// Where there is a cap or a limit each frame is counted before the next one moves. Else nobody waits for the counts,
/// and what moved in a few milliseconds is counted together: the table of interfaces is the whole process's.
#[derive(Debug)]
pub struct Meter {
    uplinks: Uplinks,
    interface: String,
    counting: Mutex<Counting>,
    /// Told when there is something to count.
    moved: Notify,
}

#[derive(Debug)]
struct Counting {
    account: Box<dyn Account>,
    /// Bytes that it was not told of yet.
    pending: usize,
    /// When the kernel was asked last.
    looked: Instant,
    /// Whether there is a cap or a limit.
    is_tolled: bool,
}

impl Meter {
    /// For the interface of this name; with the account that was kept since the link was dialled.
    fn new(uplinks: Uplinks, interface: &str, account: Option<Box<dyn Account>>) -> Self {
        let account = account.unwrap_or_else(|| Accounts::new(uplinks.clone()).of(interface));
        let is_tolled = uplinks.is_tolled(interface);
        let counting = Counting { account, pending: 0, looked: Instant::now(), is_tolled };
        let (counting, interface) = (Mutex::new(counting), interface.to_owned());
        Self { uplinks, interface, counting, moved: Notify::new() }
    }

    /// The link moved so many bytes; every few milliseconds the kernel says how many they were with headers,
    /// acknowledgements and what it sent again, and what has come and is not read yet.
    pub fn moved(&self, bytes: usize, gauge: &Gauge) {
        let mut counting = self.lock();
        counting.pending += bytes;
        if !counting.is_tolled {
            self.moved.notify_one();
        } else if counting.looked.elapsed() >= LOOK {
            self.look(&mut counting, gauge);
        } else {
            counting.count(None);
        }
    }

    /// Of what it moved another link carries so many bytes as well: they are charged to the process's budget.
    pub fn sent_twice(&self, bytes: u64) {
        if bytes > 0 {
            self.uplinks.sent_twice(&self.interface, bytes);
        }
    }

    /// Counts what is not counted at once, and hears of caps and limits that are set meanwhile; for ever.
    pub async fn keep(&self, gauge: &Gauge) {
        loop {
            tokio::select! {
                () = self.moved.notified() => sleep(LOOK).await,
                () = self.uplinks.changed() => {}
            }
            self.look(&mut self.lock(), gauge);
        }
    }

    fn look(&self, counting: &mut Counting, gauge: &Gauge) {
        counting.looked = Instant::now();
        counting.is_tolled = self.uplinks.is_tolled(&self.interface);
        counting.count(gauge.info().as_ref());
    }

    /// The link is closed now, and its far end may send still.
    pub fn ends(&self, gauge: &Gauge) {
        let (mut counting, info) = (self.lock(), gauge.info());
        counting.count(info.as_ref());
        counting.account.ends(info.as_ref());
    }

    /// Waits until it may move more.
    ///
    /// # Errors
    /// The cap is used up, or cannot be kept to.
    pub async fn may(&self) -> io::Result<()> {
        if !self.lock().is_tolled {
            return Ok(());
        }
        self.uplinks.may(&self.interface).await.map_err(io::Error::other)
    }

    fn lock(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counting {
    fn count(&mut self, info: Option<&TcpInfo>) {
        self.account.moved(std::mem::take(&mut self.pending), info);
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

    /// The same before anything was read of it, whose bytes are counted by the interface of this name, and waited for
    /// where that has a cap or a limit.
    #[must_use]
    pub fn paying(mut self, uplinks: Uplinks, interface: &str) -> Self {
        let account = self.account.take();
        let read = match uplinks.is_tolled(interface) {
            true => BufReader::with_capacity(PAID_BUFFER, self.read.into_inner()),
            false => self.read,
        };
        let meter = Some(Meter::new(uplinks, interface, account));
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
