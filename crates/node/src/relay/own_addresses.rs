//! The addresses of this host's own interfaces, which a relay does not connect to.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::{
    collections::BTreeSet,
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

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
        Ok(Self { notices, stale: false, known: list()? })
    }

    fn follow(&mut self) {
        while self.noticed() {
            self.stale = true;
        }
        if self.stale
            && let Ok(known) = list()
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

/// All addresses of all interfaces but loopback's.
fn list() -> io::Result<BTreeSet<IpAddr>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(), 0)?;
    let mut found = BTreeSet::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        if read(&answer, &mut found)? {
            return Ok(found);
        }
    }
}

/// RTM_GETADDR for all families.
fn request() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(all));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Reads one datagram of the answer; whether it was the last.
fn read(mut answer: &[u8], found: &mut BTreeSet<IpAddr>) -> io::Result<bool> {
    while !answer.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        // Messages are aligned to 4 bytes; the last may lack its padding.
        let length = (message.header.length as usize).next_multiple_of(4).max(4);
        answer = answer.get(length..).unwrap_or_default();
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(address)) => {
                found.extend(own(&address).filter(|ip| !ip.is_loopback()));
            }
            _ => {}
        }
    }
    Ok(false)
}

/// `IFA_LOCAL`, else `IFA_ADDRESS`: on a point-to-point link the latter is the peer's.
fn own(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(ip) => Some(*ip),
            _ => None,
        })
    })
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
