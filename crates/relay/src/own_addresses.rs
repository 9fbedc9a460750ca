//! The addresses of this host's own interfaces, which a relay connects to only if the operator allows them one by one.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use parking_lot::Mutex;
use std::{collections::BTreeSet, fmt, io, net::IpAddr, sync::Arc};
use thalweg_net::own_addresses;

/// The rtnetlink groups for changes of IPv4 and IPv6 addresses (linux/rtnetlink.h).
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

/// The bytes that are read of one notice. Its content is ignored, since only its arrival matters.
const NOTICE_BUFFER: usize = 64;

/// This host's own addresses, updated after each change in the kernel; cheap to clone.
///
/// The kernel sends a notice of every change (rtnetlink), so a query costs one system call, and the list is fetched
/// only after a change. Loopback is not included: it is a class of its own ([`super::Class::Loopback`]).
#[derive(Clone)]
pub struct OwnAddresses(Arc<AddressSource>);

enum AddressSource {
    Kernel(Mutex<KernelAddresses>),
    Fixed(BTreeSet<IpAddr>),
}

struct KernelAddresses {
    notices: Socket,
    /// Whether something changed since `known` was fetched.
    stale: bool,
    known: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    /// Creates the list and follows its changes. It is that of the calling thread's network namespace, because a
    /// netlink socket belongs to the namespace in which it is opened.
    ///
    /// # Errors
    /// If the kernel gives no rtnetlink socket or no list.
    pub fn of_this_host() -> io::Result<Self> {
        Ok(Self(Arc::new(AddressSource::Kernel(Mutex::new(KernelAddresses::start()?)))))
    }

    /// Creates a fixed list, which does not follow the kernel.
    pub fn fixed(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(Arc::new(AddressSource::Fixed(addresses.into_iter().collect())))
    }

    /// Whether `ip` is one of the addresses now.
    ///
    /// If the kernel refuses a new list (for example without a free descriptor), the old one is used, and the kernel is
    /// asked again the next time.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match &*self.0 {
            AddressSource::Fixed(known) => known.contains(&ip),
            AddressSource::Kernel(watched) => {
                let mut watched = watched.lock();
                watched.update();
                watched.known.contains(&ip)
            }
        }
    }
}

impl fmt::Debug for OwnAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            AddressSource::Fixed(known) => f.debug_set().entries(known).finish(),
            AddressSource::Kernel(_) => f.write_str("OwnAddresses(of this host)"),
        }
    }
}

impl KernelAddresses {
    /// Subscribes to notices first and then fetches the list, so that no change is missed.
    fn start() -> io::Result<Self> {
        let mut notices = Socket::new(NETLINK_ROUTE)?;
        notices.bind(&SocketAddr::new(0, ADDRESS_GROUPS))?;
        notices.set_non_blocking(true)?;
        Ok(Self { notices, stale: false, known: own_addresses()? })
    }

    fn update(&mut self) {
        while self.take_notice() {
            self.stale = true;
        }
        if self.stale
            && let Ok(known) = own_addresses()
        {
            self.known = known;
            self.stale = false;
        }
    }

    /// Reads a notice. Returns true if there was one, or if some were lost (ENOBUFS), which also means a change.
    fn take_notice(&self) -> bool {
        let mut notice = [0; NOTICE_BUFFER];
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

    /// The kernel's choice of a source address is an own address.
    #[test]
    fn the_source_address_that_the_kernel_chooses_is_listed() {
        let own = OwnAddresses::of_this_host().unwrap();
        assert!(!own.contains("127.0.0.1".parse().unwrap()), "loopback is a class");
        assert!(!own.contains("192.0.2.200".parse().unwrap()));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // This sends no packet.
        if socket.connect("198.51.100.1:9").is_err() {
            eprintln!("skipped in part: this host has no IPv4 route");
            return;
        }
        assert!(own.contains(socket.local_addr().unwrap().ip()));
    }
}
