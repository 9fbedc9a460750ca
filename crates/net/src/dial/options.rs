//! The settings of dialed connections, with the reasons for the defaults.

use rustix::net::sockopt;
use socket2::{SockRef, TcpKeepalive};
use std::{io, time::Duration};

/// How [`crate::Dialer`] connects.
#[derive(Clone, Debug)]
pub struct DialOptions {
    /// The time for the whole dial: names, legs and SOCKS5. The default is 10 s: Smokescreen's connect limit, and
    /// enough for three SYNs (at 0, 1 and 3 s) on a lossy path.
    pub deadline: Duration,
    /// The head start of one address over the next. The default is 250 ms (RFC 8305 §5).
    pub stagger: Duration,
    /// The options of the socket.
    pub socket: SocketOptions,
    /// Whether connections yield to others on this host's leg: see [`crate::YieldingWindow`].
    pub is_background: bool,
}

impl Default for DialOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            stagger: Duration::from_millis(250),
            socket: SocketOptions::default(),
            is_background: false,
        }
    }
}

/// Options of a TCP socket.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// `TCP_NODELAY`: on by default, because all writers here write whole messages.
    pub nodelay: bool,
    /// `TCP_USER_TIMEOUT`: how long sent data may stay unacknowledged.
    ///
    /// The default is 30 s. Linux also ends a connection whose *live* peer keeps its window shut for this long
    /// (`tcp_probe_timer`): a stream to a reader that may pause must set `None` and watch [`crate::TcpInfo::since_ack`]
    /// instead, as the relay does.
    pub user_timeout: Option<Duration>,
    /// The silence after which the kernel probes whether the peer is alive. The default is 15 s.
    ///
    /// Four probes follow, 5 s apart, so even a connection that only receives notices a black hole within 35 s. `None`:
    /// no probes.
    pub keepalive: Option<Duration>,
    /// `TCP_CONGESTION`, e.g. `bbr`; the kernel's default if `None`.
    pub congestion: Option<String>,
    /// `SO_RCVBUF` in bytes, set before the connection is opened: the most that a peer may send ahead of a reader that
    /// pauses. The kernel's own tuning if `None`.
    pub receive_buffer: Option<usize>,
    /// `SO_MARK`, by which the host's packet rules recognize the connection; needs `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            user_timeout: Some(Duration::from_secs(30)),
            keepalive: Some(Duration::from_secs(15)),
            congestion: None,
            receive_buffer: None,
            mark: None,
        }
    }
}

impl SocketOptions {
    /// Sets all options on `socket`.
    ///
    /// # Errors
    /// The kernel's error, with the option's name.
    pub fn apply(&self, socket: SockRef<'_>) -> io::Result<()> {
        let named = |name: &'static str| {
            move |e: io::Error| io::Error::new(e.kind(), format!("cannot set {name}: {e}"))
        };
        socket.set_tcp_nodelay(self.nodelay).map_err(named("TCP_NODELAY"))?;
        socket.set_tcp_user_timeout(self.user_timeout).map_err(named("TCP_USER_TIMEOUT"))?;
        match self.keepalive {
            Some(idle) => {
                let probes = TcpKeepalive::new()
                    .with_time(idle)
                    .with_interval(Duration::from_secs(5))
                    .with_retries(4);
                socket.set_tcp_keepalive(&probes).map_err(named("keepalive"))?;
            }
            None => socket.set_keepalive(false).map_err(named("keepalive"))?,
        }
        if let Some(n) = self.receive_buffer {
            socket.set_recv_buffer_size(n).map_err(named("SO_RCVBUF"))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark).map_err(named("SO_MARK"))?;
        }
        let Some(name) = &self.congestion else { return Ok(()) };
        sockopt::set_tcp_congestion(&*socket, name).map_err(|e| congestion_error(name, e.into()))
    }
}

fn congestion_error(name: &str, e: io::Error) -> io::Error {
    let known = "`sysctl net.ipv4.tcp_available_congestion_control` lists the available ones";
    io::Error::new(e.kind(), format!("cannot set congestion control `{name}`: {e}; {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn congestion_control_is_set_or_refused_by_name() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let set = |name: &str| {
            SocketOptions { congestion: Some(name.into()), ..SocketOptions::default() }
                .apply(SockRef::from(&socket))
        };
        // Every kernel has Reno.
        set("reno").unwrap();
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
        let error = set("no-such-control").unwrap_err().to_string();
        assert!(error.contains("`no-such-control`") && error.contains("sysctl"), "{error}");
    }

    #[test]
    fn options_reach_the_socket() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        SocketOptions::default().apply(SockRef::from(&socket)).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);

        let bare = SocketOptions {
            nodelay: false,
            user_timeout: None,
            keepalive: None,
            congestion: None,
            receive_buffer: Some(65_536),
            mark: None,
        };
        bare.apply(SockRef::from(&socket)).unwrap();
        assert!(!socket.tcp_nodelay().unwrap() && !socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
        // Linux doubles the requested size, for its own bookkeeping (socket(7)).
        assert_eq!(socket.recv_buffer_size().unwrap(), 131_072);
    }
}
