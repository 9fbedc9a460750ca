//! One connection of a bond, and the meter that counts its bytes.

use super::gauge::Gauge;
use crate::interfaces::{Accounts, Uplinks};
use parking_lot::Mutex;
use std::{
    fmt,
    io::{self, Cursor},
    os::fd::{AsFd as _, OwnedFd},
    time::{Duration, Instant},
};
use thalweg_bond::RelayedPath;
use thalweg_net::{Account, Route, TcpInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, BufReader},
    net::{TcpStream, tcp::OwnedWriteHalf},
    sync::Notify,
    time::sleep,
};

/// Size of the read buffer, bytes: some chunks.
const BUFFER: usize = 128 << 10;

/// Size of the read buffer of a link that pays for each frame before it reads the next one. It is small because the
/// kernel opens the window wide for a reader that reads much at once.
const PAID_BUFFER: usize = 1 << 10;

/// How often the kernel is asked what a link moved, and how often links without a cap are counted. At 1 Gbit/s another
/// quarter of a megabyte arrives in this time.
const LOOK: Duration = Duration::from_millis(2);

/// The buffered receiving half of a link.
pub type LinkReader = BufReader<Box<dyn AsyncRead + Send + Unpin>>;

/// A connection after its greeting.
pub struct LinkIo {
    pub read: LinkReader,
    pub write: OwnedWriteHalf,
    /// A duplicate of the connection's descriptor, for its counters and its queue.
    pub socket: OwnedFd,
    /// Whether it may carry copies of chunks that another link carries.
    pub may_duplicate: bool,
    /// The interface that it leaves by, if this end dialled.
    pub interface: Option<String>,
    /// The relays on its route, if this end dialled and there are some.
    pub via: Option<String>,
    /// The path beyond the first relay, if there is one.
    pub beyond: Option<RelayedPath>,
    /// Its account since it was dialled, if there is one and no meter has it yet.
    pub account: Option<Box<dyn Account>>,
    /// Counts what it moves, and says when it may move more.
    pub meter: Option<Meter>,
}

/// Counts the bytes of a link for its interface, with the cap and rate limit of that, until it is dropped.
///
/// With a cap or a limit, each frame is counted before the next one moves. Otherwise nothing waits for the counts, and
/// what moves in a few milliseconds is counted together, because the whole process shares the table of interfaces.
#[derive(Debug)]
pub struct Meter {
    uplinks: Uplinks,
    interface: String,
    counting: Mutex<MeterState>,
    /// Notified when there is something to count.
    moved: Notify,
}

#[derive(Debug)]
struct MeterState {
    account: Box<dyn Account>,
    /// Bytes that the account was not told of yet.
    pending: usize,
    /// When the kernel was last asked.
    looked: Instant,
    /// Whether the interface has a cap or a limit.
    is_limited: bool,
}

impl Meter {
    /// Creates the meter for the interface of this name; `account` was kept since the link was dialled.
    fn new(uplinks: Uplinks, interface: &str, account: Option<Box<dyn Account>>) -> Self {
        let account = account.unwrap_or_else(|| Accounts::new(uplinks.clone()).open(interface));
        let is_limited = uplinks.is_limited(interface);
        let counting = MeterState { account, pending: 0, looked: Instant::now(), is_limited };
        let (counting, interface) = (Mutex::new(counting), interface.to_owned());
        Self { uplinks, interface, counting, moved: Notify::new() }
    }

    /// Counts bytes that the link moved. On a link with a cap or a limit the kernel says every few milliseconds how
    /// many they were with headers, acknowledgements and retransmissions, and what has arrived but is not read yet.
    pub fn moved(&self, bytes: usize, gauge: &Gauge) {
        let mut counting = self.counting.lock();
        counting.pending += bytes;
        if !counting.is_limited {
            self.moved.notify_one();
        } else if counting.looked.elapsed() >= LOOK {
            self.look(&mut counting, gauge);
        } else {
            counting.count(None);
        }
    }

    /// Charges second copies to the process's budget: bytes that the link moved and another link carries as well.
    pub fn sent_twice(&self, bytes: u64) {
        if bytes > 0 {
            self.uplinks.sent_twice(&self.interface, bytes);
        }
    }

    /// Counts what was not counted at once, and follows changes of caps and limits; never returns.
    pub async fn keep(&self, gauge: &Gauge) {
        loop {
            tokio::select! {
                () = self.moved.notified() => sleep(LOOK).await,
                () = self.uplinks.changed() => {}
            }
            self.look(&mut self.counting.lock(), gauge);
        }
    }

    fn look(&self, counting: &mut MeterState, gauge: &Gauge) {
        counting.looked = Instant::now();
        counting.is_limited = self.uplinks.is_limited(&self.interface);
        counting.count(gauge.info().as_ref());
    }

    /// Closes the account. The link is closed here; its far end may still send.
    pub fn ends(&self, gauge: &Gauge) {
        let (mut counting, info) = (self.counting.lock(), gauge.info());
        counting.count(info.as_ref());
        counting.account.close(info.as_ref());
    }

    /// Waits until the link may move more.
    ///
    /// # Errors
    /// The cap is used up, or cannot be enforced.
    pub async fn wait_to_move(&self) -> io::Result<()> {
        if !self.counting.lock().is_limited {
            return Ok(());
        }
        self.uplinks.wait_to_move(&self.interface).await.map_err(io::Error::other)
    }
}

impl MeterState {
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
    /// Creates a link in the clear.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn clear(tcp: TcpStream) -> io::Result<Self> {
        Self::clear_after(Vec::new(), tcp)
    }

    /// Creates a link in the clear, after bytes that were already read from the connection.
    ///
    /// # Errors
    /// Errors of the system.
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

    /// The same link, but it carries no second copies, because its bytes cost.
    #[must_use]
    pub fn metered(self) -> Self {
        Self { may_duplicate: false, ..self }
    }

    /// The same link, whose bytes are counted for the interface of this name, and wait if that has a cap or a limit.
    /// Must be called before anything is read.
    #[must_use]
    pub fn with_meter(mut self, uplinks: Uplinks, interface: &str) -> Self {
        let account = self.account.take();
        let read = match uplinks.is_limited(interface) {
            true => BufReader::with_capacity(PAID_BUFFER, self.read.into_inner()),
            false => self.read,
        };
        let meter = Some(Meter::new(uplinks, interface, account));
        Self { read, meter, ..self }
    }

    /// The same link, with the interface and the route that it leaves by.
    #[must_use]
    pub fn with_route(self, interface: &str, route: &Route) -> Self {
        let via = (!route.is_direct()).then(|| route.called());
        Self { interface: Some(interface.to_owned()), via, ..self }
    }

    /// The same link through relays, over which an answer of the far end took this long.
    #[must_use]
    pub fn relayed(self, took: Duration) -> Self {
        let own = TcpInfo::of(&self.socket).map_or(took, |info| info.rtt);
        Self { beyond: Some(RelayedPath::new(took, own)), ..self }
    }
}
