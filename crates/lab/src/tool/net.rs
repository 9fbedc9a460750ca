//! Socket helpers and command-line values that several tools use.

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket},
    os::fd::AsFd,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Where and how long a tool listens.
#[derive(Debug, clap::Args)]
pub struct Listening {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: String,
    /// End after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_span)]
    pub max: Duration,
}

/// How long a connection may take to open: three lost SYNs (1 + 2 + 4 s) and the answer over a slow emulated path.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time of `CLOCK_REALTIME`, ns.
///
/// Kernel receive timestamps use this clock, so times that are compared with them must too. A step of the clock
/// invalidates a measurement.
pub fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Resolves `text` ("IP:PORT" or "NAME:PORT") to its first address.
///
/// # Errors
/// If the text is invalid or the name is unknown.
pub fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text.to_socket_addrs().with_context(|| {
        format!("`{text}` is not an address such as 10.1.0.2:5000 or name:5000")
    })?;
    found.next().with_context(|| format!("`{text}` has no address"))
}

/// Listens for TCP at `text`.
///
/// # Errors
/// If the address is invalid or in use.
pub fn listen(text: &str) -> anyhow::Result<TcpListener> {
    let address = resolve(text)?;
    TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))
}

/// Binds a UDP socket to `address` with a receive buffer of 4 MB, or as much as is allowed.
///
/// # Errors
/// If the address is invalid or in use.
pub fn bind_udp(address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("cannot bind UDP {address}"))?;
    // 4 MB are 40 ms at 800 Mbit/s; the kernel gives less if rmem_max is less.
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
    Ok(socket)
}

/// Opens a UDP socket at any local port and connects it to `to`.
///
/// # Errors
/// If there is no route.
pub fn connect_udp(to: SocketAddr) -> anyhow::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = bind_udp(SocketAddr::new(any, 0))?;
    socket.connect(to).with_context(|| format!("no route to {to}"))?;
    Ok(socket)
}

/// How to open a TCP connection.
#[derive(Clone, Debug, Default)]
pub struct TcpOptions {
    /// Local address to send from.
    pub from: Option<IpAddr>,
    /// Congestion control; `None`: that of the route or the kernel's default.
    pub congestion: Option<String>,
}

/// Connects to `to`.
///
/// # Errors
/// If the congestion control or the local address is not available, or the connection fails.
pub fn connect_tcp(to: SocketAddr, options: &TcpOptions) -> anyhow::Result<TcpStream> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))
        .context("cannot create a TCP socket")?;
    if let Some(name) = &options.congestion {
        socket.set_tcp_congestion(name.as_bytes()).with_context(|| {
            format!(
                "congestion control `{name}` is not available; \
                 see /proc/sys/net/ipv4/tcp_available_congestion_control"
            )
        })?;
    }
    if let Some(from) = options.from {
        let local = SocketAddr::new(from, 0);
        socket
            .bind(&local.into())
            .with_context(|| format!("{from} is not an address of this host"))?;
    }
    socket
        .connect_timeout(&to.into(), CONNECT_TIMEOUT)
        .with_context(|| format!("cannot connect to {to}"))?;
    Ok(socket.into())
}

/// Whether an error of a datagram socket does not affect the next datagram: a full local queue, an interrupted call, or
/// an ICMP error for an earlier datagram.
pub fn is_transient(e: &io::Error) -> bool {
    use io::ErrorKind as K;
    let full = e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error());
    full || matches!(e.kind(), K::ConnectionRefused | K::HostUnreachable | K::Interrupted)
}

/// Closes `stream` with a reset, so that no queued bytes are sent.
pub fn reset(stream: TcpStream) {
    // If this fails, the queued bytes are still sent.
    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// Waits until one of `sources` is readable or `deadline` has passed. Returns whether one is readable; `false` also if
/// the call is interrupted.
///
/// # Errors
/// The error of `poll`.
pub fn wait_readable(sources: &[&dyn AsFd], deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut polled: Vec<PollFd<'_>> =
        sources.iter().map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)).collect();
    match poll(&mut polled, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Accepts a connection; `None` if `deadline` passes first.
///
/// # Errors
/// The error of `poll` or `accept`.
pub fn accept_until(
    listener: &TcpListener,
    deadline: Instant,
) -> anyhow::Result<Option<TcpStream>> {
    while Instant::now() < deadline {
        if wait_readable(&[listener], deadline).context("cannot wait for connections")? {
            return Ok(Some(listener.accept().context("cannot accept a connection")?.0));
        }
    }
    Ok(None)
}

/// Parses a duration that a tool may run: more than 0, and at most a day, so that no forgotten tool runs for ever.
///
/// # Errors
/// If it is not a duration or out of range.
pub fn parse_span(text: &str) -> anyhow::Result<Duration> {
    let span = thalweg_units::parse_duration(text)?;
    if span.is_zero() || span > Duration::from_secs(86_400) {
        bail!("`{text}` is not between 1 ns and 1 day");
    }
    Ok(span)
}

/// Parses a duration for cross traffic: like [`parse_span`], but at most an hour.
///
/// # Errors
/// If it is not a duration or out of range.
pub fn at_most_an_hour(text: &str) -> anyhow::Result<Duration> {
    let span = parse_span(text)?;
    if span > Duration::from_secs(3600) {
        bail!("cross traffic may last at most one hour");
    }
    Ok(span)
}
