//! Serves one connection through the relay.

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

/// The fault of the bytes to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayFault {
    /// Flips a bit of the byte at this offset.
    Corrupts(u64),
    /// Sends no more after this many bytes.
    Stalls(u64),
    /// Resets every connection after this many bytes.
    Resets(u64),
}

/// The state shared by all connections.
#[derive(Clone, Debug)]
pub struct RelaySession {
    fault: RelayFault,
    to: Option<SocketAddr>,
    relayed: Arc<AtomicU64>,
}

impl RelaySession {
    /// Creates the state for connections with this fault, to `to` or else to the address that the client requests.
    pub fn new(fault: RelayFault, to: Option<SocketAddr>) -> Self {
        Self { fault, to, relayed: Arc::default() }
    }

    /// Serves a client until either side ends.
    ///
    /// # Errors
    /// If the client does not speak SOCKS5, the server cannot be reached, or the connection breaks.
    pub fn run(self, mut client: TcpStream) -> anyhow::Result<()> {
        let to = self.to.map_or_else(|| read_request(&mut client), Ok)?;
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
        let done = self.relay_to_client(&server, &client);
        if !matches!(done, Ok(RelayEnd::ServerClosed)) {
            // Wakes the other thread, whose descriptor would keep the connection alive.
            _ = client.shutdown(Shutdown::Read);
            _ = server.shutdown(Shutdown::Both);
        }
        _ = up.join();
        if matches!(done, Ok(RelayEnd::Reset)) {
            net::reset(client);
        }
        done.map(|_| ()).context("the connection broke")
    }

    /// Relays from server to client.
    fn relay_to_client(
        &self,
        mut server: &TcpStream,
        mut client: &TcpStream,
    ) -> io::Result<RelayEnd> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let n = server.read(&mut buffer)?;
            if n == 0 {
                return client.shutdown(Shutdown::Write).map(|()| RelayEnd::ServerClosed);
            }
            let before = self.relayed.fetch_add(n as u64, Ordering::SeqCst);
            let after = before + n as u64;
            match self.fault {
                RelayFault::Corrupts(at) if (before..after).contains(&at) => {
                    buffer[usize::try_from(at - before).unwrap_or(0)] ^= 1;
                }
                RelayFault::Resets(at) if after >= at => return Ok(RelayEnd::Reset),
                RelayFault::Stalls(at) if after >= at => {
                    wait_for_end(client)?;
                    return Ok(RelayEnd::ClientClosed);
                }
                _ => {}
            }
            client.write_all(&buffer[..n])?;
        }
    }
}

/// How the relaying to a client ended.
enum RelayEnd {
    /// The server closed its side.
    ServerClosed,
    /// The client closed the connection after a stall.
    ClientClosed,
    /// The connection is to be reset.
    Reset,
}

/// Waits until the client ends. The other thread still relays the bytes that it sends.
fn wait_for_end(client: &TcpStream) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    // Only RDHUP is requested; errors and hang-ups are always reported.
    let mut fds = [PollFd::new(client, PollFlags::RDHUP)];
    loop {
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(|_| ()).map_err(Into::into),
        }
    }
}

/// Reads a SOCKS5 CONNECT request without authentication (RFC 1928). Returns the destination.
fn read_request(client: &mut TcpStream) -> anyhow::Result<SocketAddr> {
    let [version, methods] = bytes(client)?;
    client.read_exact(&mut vec![0; methods.into()])?;
    client.write_all(&[5, 0])?;
    let [again, command, _, kind] = bytes(client)?;
    if (version, again, command) != (5, 5, 1) {
        bail!("the client did not send a SOCKS5 CONNECT request");
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
        other => bail!("unsupported SOCKS5 address type {other}"),
    };
    let port = u16::from_be_bytes(bytes(client)?);
    net::resolve(&format!("{host}:{port}"))
}

fn bytes<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).map(|()| bytes)
}
