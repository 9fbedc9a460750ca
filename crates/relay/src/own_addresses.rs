//! The addresses of this host's own interfaces, which a relay does not connect to.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::{
    collections::BTreeSet,
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};
use thalweg_net::own_addresses;

/// rtnetlink's groups that tell of IPv4 and IPv6 addresses that come and go (linux/rtnetlink.h).
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

/// What one `recv` of a notice takes; the rest of it is dropped, since only its coming counts.
const NOTICE: usize = 64;

/// This host's own addresses, always as the kernel has them; cheap to clone.
///
/// The kernel tells of every change (rtnetlink), so that asking costs one
/// system call, and a list is fetched only after one. Loopback is not among
/// them: it is a class of its own ([`super::Class::Loopback`]).
#[derive(Clone)]
pub struct OwnAddresses(Arc<Source>);

enum Source {
    Kernel(Mutex<Watched>),
    Fixed(BTreeSet<IpAddr>),
}

struct Watched {
    notices: Socket,
    /// Something changed since `known` was fetched.
    stale: bool,
    known: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    /// Those of the network namespace this thread is in, followed from now on.
    ///
    /// # Errors
    /// If the kernel gives no rtnetlink socket or no list.
    pub fn of_this_host() -> io::Result<Self> {
        Ok(Self(Arc::new(Source::Kernel(Mutex::new(Watched::start()?)))))
    }

    /// These and no others, for tests and for hosts that know better.
    pub fn fixed(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(Arc::new(Source::Fixed(addresses.into_iter().collect())))
    }

    /// Whether `ip` is one of them now.
    ///
    /// If the kernel refuses a new list (no descriptor left, say) the old one holds,
    /// and it is asked again the next time.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match &*self.0 {
            Source::Fixed(known) => known.contains(&ip),
            Source::Kernel(watched) => {
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                watched.follow();
                watched.known.contains(&ip)
            }
        }
    }
}

impl fmt::Debug for OwnAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Source::Fixed(known) => f.debug_set().entries(known).finish(),
            Source::Kernel(_) => f.write_str("OwnAddresses(of this host)"),
        }
    }
}

impl Watched {
    /// The notices first, then the list: no change falls between.
    fn start() -> io::Result<Self> {
        let mut notices = Socket::new(NETLINK_ROUTE)?;
        notices.bind(&SocketAddr::new(0, ADDRESS_GROUPS))?;
        notices.set_non_blocking(true)?;
        Ok(Self { notices, stale: false, known: own_addresses()? })
    }

    fn follow(&mut self) {
        while self.noticed() {
            self.stale = true;
        }
        if self.stale
            && let Ok(known) = own_addresses()
        {
            self.known = known;
            self.stale = false;
        }
    }

    /// Takes one notice; also if some were lost (ENOBUFS), which is a change like any.
    fn noticed(&self) -> bool {
        let mut notice = [0; NOTICE];
        match self.notices.recv(&mut &mut notice[..], 0) {
            Ok(_) => true,
            Err(e) => e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The kernel's own word: whatever it sends from is ours.
    #[test]
    fn the_address_that_the_kernel_sends_from_is_among_them() {
        let own = OwnAddresses::of_this_host().unwrap();
        assert!(!own.contains("127.0.0.1".parse().unwrap()), "loopback is a class");
        assert!(!own.contains("192.0.2.200".parse().unwrap()));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // No packet is sent by this.
        if socket.connect("198.51.100.1:9").is_err() {
            eprintln!("skipped in part: this host has no IPv4 route");
            return;
        }
        assert!(own.contains(socket.local_addr().unwrap().ip()));
    }
}
