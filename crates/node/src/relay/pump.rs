//! Moves bytes between the two legs of a connection until both directions have ended.

use super::liveness::{Leg, Limits, Liveness, Verdict};
use socket2::SockRef;
use std::{
    io,
    net::Shutdown,
    ops,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use thalweg_net::TcpInfo;
use thiserror::Error;
use tokio::{
    net::TcpStream,
    time::{MissedTickBehavior, interval, sleep},
};

/// Bytes that are taken at once. A busy leg reads a full TCP segmentation unit (64 kB)
/// per call; an idle one holds no buffer at all.
const CHUNK: usize = 64 * 1024;

/// Chunks that one direction moves before others get their turn: 1 MiB, about 1 ms.
const TURN: usize = 16;

/// A TCP connection that is *reset* when it is dropped, unless it ended well.
///
/// So whatever goes wrong, a timeout, a panic, a cut at shutdown, no peer takes
/// a truncated stream for a complete one.
#[derive(Debug)]
pub struct Resetting {
    tcp: TcpStream,
    ended_well: bool,
}

impl Resetting {
    /// Guards this connection.
    pub fn new(tcp: TcpStream) -> Self {
        Self { tcp, ended_well: false }
    }

    /// Closes in good order: what is queued is still delivered.
    pub fn close(mut self) {
        self.ended_well = true;
    }
}

impl ops::Deref for Resetting {
    type Target = TcpStream;
    fn deref(&self) -> &TcpStream {
        &self.tcp
    }
}

impl ops::DerefMut for Resetting {
    fn deref_mut(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        if !self.ended_well {
            // A socket that refuses this is already gone.
            _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Bytes moved so far, in each direction.
#[derive(Debug, Default)]
pub struct Moved {
    /// From the client to the destination.
    pub up: AtomicU64,
    /// From the destination to the client.
    pub down: AtomicU64,
}

/// Why a pump stopped before both directions had ended.
#[derive(Debug, Error)]
pub enum Stopped {
    /// A leg broke.
    #[error("a leg broke: {0}")]
    Broken(#[source] io::Error),
    /// A leg or both were given up.
    #[error("given up: {0}")]
    GivenUp(Verdict),
}

/// Moves bytes until both directions have ended and all is delivered.
///
/// The end of one direction is passed on as such (half-close), and the other
/// goes on. When both have ended it stays until the peers have acknowledged
/// the last byte: a socket closed before would be dropped by the kernel after
/// some unanswered window probes, and a slow reader's data with it.
///
/// Memory: at most one [`CHUNK`] per direction, and none while idle.
///
/// # Errors
/// [`Stopped`]; the caller then resets both legs.
pub async fn pump(
    client: &TcpStream,
    destination: &TcpStream,
    moved: &Moved,
    limits: Limits,
) -> Result<(), Stopped> {
    let mut up = pin!(copy(client, destination, &moved.up));
    let mut down = pin!(copy(destination, client, &moved.down));
    let (mut up_ended, mut down_ended) = (false, false);
    let mut liveness = Liveness::new(limits, Instant::now());
    let mut ticks = interval(liveness.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !(up_ended && down_ended) {
        tokio::select! {
            done = &mut up, if !up_ended => {
                done.map_err(Stopped::Broken)?;
                up_ended = true;
            }
            done = &mut down, if !down_ended => {
                done.map_err(Stopped::Broken)?;
                down_ended = true;
            }
            _ = ticks.tick() => check(&mut liveness, client, destination, up_ended || down_ended)?,
        }
    }
    delivered(&mut liveness, client, destination).await
}

/// One look at both legs; whether anything still waits in a send queue is the kernel's word.
fn look(tcp: &TcpStream) -> Result<Leg, Stopped> {
    TcpInfo::of(tcp).map(Leg::from).map_err(Stopped::Broken)
}

fn check(
    liveness: &mut Liveness,
    client: &TcpStream,
    destination: &TcpStream,
    half_closed: bool,
) -> Result<(), Stopped> {
    let (client, destination) = (look(client)?, look(destination)?);
    match liveness.check(&client, &destination, half_closed, Instant::now()) {
        Some(verdict) => Err(Stopped::GivenUp(verdict)),
        None => Ok(()),
    }
}

/// Waits until both send queues are empty.
async fn delivered(
    liveness: &mut Liveness,
    client: &TcpStream,
    destination: &TcpStream,
) -> Result<(), Stopped> {
    // A round trip is not known to us yet: look soon, then ever more rarely.
    let mut pause = Duration::from_millis(2);
    while look(client)?.queued || look(destination)?.queued {
        check(liveness, client, destination, true)?;
        sleep(pause).await;
        pause = (pause * 2).min(liveness.interval());
    }
    Ok(())
}

/// Copies until `from` ends, then ends `to`.
async fn copy(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<()> {
    loop {
        from.readable().await?;
        match copy_turn(from, to, moved).await? {
            Turn::Dry => {}
            Turn::Over => tokio::task::yield_now().await,
            Turn::Ended => return end(to),
        }
    }
}

/// How a turn of copying came to its end.
enum Turn {
    /// Nothing more has arrived.
    Dry,
    /// Others' turn.
    Over,
    /// The sender has ended its direction.
    Ended,
}

/// Moves what has arrived, at most [`TURN`] chunks; the buffer lives no longer than that.
async fn copy_turn(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<Turn> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for _ in 0..TURN {
        chunk.clear();
        match from.try_read_buf(&mut chunk) {
            Ok(0) => return Ok(Turn::Ended),
            Ok(_) => write_all(to, &chunk, moved).await?,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Dry),
            Err(e) => return Err(e),
        }
    }
    Ok(Turn::Over)
}

async fn write_all(to: &TcpStream, mut bytes: &[u8], moved: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(n) => {
                moved.fetch_add(n as u64, Ordering::Relaxed);
                bytes = &bytes[n..];
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Passes the end of a direction on.
fn end(to: &TcpStream) -> io::Result<()> {
    SockRef::from(to).shutdown(Shutdown::Write)
}
