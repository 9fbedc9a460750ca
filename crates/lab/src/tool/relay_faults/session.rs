//! One connection through the relay.

use crate::tool::net::{self, TcpOptions};
use anyhow::{Context, bail};
use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Bytes relayed at once.
const CHUNK: usize = 16 * 1024;

/// What becomes of the bytes to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A bit of the byte at this offset is flipped.
    Corrupts(u64),
    /// After so many nothing comes.
    Stalls(u64),
    /// After so many every connection is reset.
    Resets(u64),
}

/// What all connections share.
#[derive(Clone, Debug)]
pub struct Session {
    fate: Fate,
    to: Option<SocketAddr>,
    given: Arc<AtomicU64>,
}

impl Session {
    /// For connections of this fate, to `to` or wherever the client wishes.
    pub fn new(fate: Fate, to: Option<SocketAddr>) -> Self {
        Self { fate, to, given: Arc::default() }
    }

    /// Serves a client until either side ends.
    ///
    /// # Errors
    /// When it speaks no SOCKS5, or its server cannot be reached.
    pub fn run(self, mut client: TcpStream) -> anyhow::Result<()> {
        let to = self.to.map_or_else(|| wish(&mut client), Ok)?;
        let server = net::connect_tcp(to, &TcpOptions::default())?;
        if self.to.is_none() {
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
        }
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut from, mut into) = (client.try_clone()?, server.try_clone()?);
        let up = thread::spawn(move || {
            _ = io::copy(&mut from, &mut into);
            _ = into.shutdown(Shutdown::Write);
        });
        let done = self.down(&server, &client);
        if !matches!(done, Ok(Ended::InOrder)) {
            // Wakes the other thread, whose descriptor would keep the connection alive.
            _ = client.shutdown(Shutdown::Read);
            _ = server.shutdown(Shutdown::Both);
        }
        _ = up.join();
        if matches!(done, Ok(Ended::Reset)) {
            net::reset(client);
        }
        done.map(|_| ()).context("the connection broke")
    }

    /// Server to client.
    fn down(&self, mut server: &TcpStream, mut client: &TcpStream) -> io::Result<Ended> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = server.read(&mut buffer)?;
            if n == 0 {
                return client.shutdown(Shutdown::Write).map(|()| Ended::InOrder);
            }
            let before = self.given.fetch_add(n as u64, Ordering::SeqCst);
            let after = before + n as u64;
            match self.fate {
                Fate::Corrupts(at) if (before..after).contains(&at) => {
                    buffer[usize::try_from(at - before).unwrap_or(0)] ^= 1;
                }
                Fate::Resets(at) if after >= at => return Ok(Ended::Reset),
                Fate::Stalls(at) if after >= at => {
                    wait_for_end(client)?;
                    return Ok(Ended::Silent);
                }
                _ => {}
            }
            client.write_all(&buffer[..n])?;
        }
    }
}

/// How the bytes to a client ended.
enum Ended {
    /// The server was done.
    InOrder,
    /// The client gave up.
    Silent,
    /// As it was to be.
    Reset,
}

/// Waits until the client ends; what it still says is relayed by the other thread.
fn wait_for_end(client: &TcpStream) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    // No readiness is asked for: an error or an end comes unasked.
    let mut fds = [PollFd::new(client, PollFlags::RDHUP)];
    loop {
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(|_| ()).map_err(Into::into),
        }
    }
}

/// Where the client wants to go (RFC 1928, no authentication, CONNECT).
fn wish(client: &mut TcpStream) -> anyhow::Result<SocketAddr> {
    let [version, methods] = bytes(client)?;
    client.read_exact(&mut vec![0; methods.into()])?;
    client.write_all(&[5, 0])?;
    let [again, command, _, kind] = bytes(client)?;
    if (version, again, command) != (5, 5, 1) {
        bail!("no SOCKS5 request to connect");
    }
    let host = match kind {
        1 => IpAddr::from(bytes::<4>(client)?).to_string(),
        4 => format!("[{}]", IpAddr::from(bytes::<16>(client)?)),
        3 => {
            let [length] = bytes(client)?;
            let mut name = vec![0; length.into()];
            client.read_exact(&mut name)?;
            String::from_utf8(name)?
        }
        other => bail!("no address of kind {other}"),
    };
    let port = u16::from_be_bytes(bytes(client)?);
    net::resolve(&format!("{host}:{port}"))
}

fn bytes<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map(|()| bytes)
}
