//! The network interfaces of this host over which other hosts can be reached.

mod changes;
mod internet;
mod kernel_state;

pub use changes::Changes;
pub use internet::{InterfaceWish, internet_interfaces};

use crate::netlink::{ask, dump};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::LinkMessage,
    route::{RouteAttribute, RouteFlags, RouteMessage},
};
use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    num::NonZeroU32,
};

/// An interface that is up and has an address to which others can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index, to which routes are bound.
    pub index: NonZeroU32,
    /// Its present name, for display.
    pub name: String,
    /// Its addresses except link-local ones.
    pub addresses: Vec<IpAddr>,
    /// Whether a default route leaves by it, in any table. The two halves (eighths for IPv6) that VPN programs install
    /// instead count as well, and any routes if [`Self::is_way`].
    pub has_default_route: bool,
    /// Whether the kernel sends unbound traffic to the internet by it, of either family.
    pub is_way: bool,
    /// The smallest metric of its default routes, or else of its other routes. The kernel's choice has the smallest one
    /// if a single table decides; [`interface_for`] is accurate.
    pub metric: u32,
    /// Whether its traffic finally leaves through another interface: WireGuard, OpenVPN, IP in IP. If the internet is
    /// reached through a tunnel, the user does not want other interfaces to bypass it.
    pub is_tunnel: bool,
    /// The tunnel through which the kernel reaches the internet in a family for which this interface has a default
    /// route too. Traffic bound to this interface bypasses the tunnel.
    pub beside: Option<NonZeroU32>,
    /// An earlier interface in [`interfaces`] with an address in the same network. Both answer ARP requests for either
    /// address (arp(7), `arp_ignore`), so packets to one may arrive at the other, where no bound socket receives them.
    pub doubles: Option<NonZeroU32>,
}

impl Interface {
    /// A network card with a default route and no further properties, for callers that build their own list.
    pub fn new(index: NonZeroU32, name: &str) -> Self {
        let name = name.to_owned();
        let (addresses, metric, beside, doubles) = Default::default();
        let (has_default_route, is_way, is_tunnel) = (true, false, false);
        Self {
            index,
            name,
            addresses,
            has_default_route,
            is_way,
            metric,
            is_tunnel,
            beside,
            doubles,
        }
    }
}

/// The first requirement that an unusable interface lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnusableReason {
    /// It is switched off.
    Down,
    /// No cable, or no network joined.
    Carrier,
    /// It has no address, or only one that is not reachable from beyond its link.
    Address,
    /// No unicast route leaves by it.
    Route,
}

/// The present state of all interfaces except loopback.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The usable ones, as in [`interfaces`].
    pub usable: Vec<Interface>,
    /// The names of the others, with the first thing that each lacks. Ports of bridges without carrier are left out.
    pub lacking: Vec<(String, UnusableReason)>,
}

/// All interfaces of this network namespace, for display.
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
pub fn survey() -> io::Result<Survey> {
    let known = known()?;
    let lacking = known.clone().lacking();
    Ok(Survey { usable: known.usable(), lacking })
}

/// The interfaces of this network namespace that may carry a transfer: the kernel's choice first, then those with a
/// default route, by metric, then the others. Loopback is excluded.
///
/// An interface is usable if it is up, running and no loopback device, has an address that is not link-local, and some
/// unicast route leaves by it. Its kind does not matter (a tunnel counts like a card); [`internet_interfaces`] selects
/// the ones to use.
///
/// # Errors
/// If the kernel returns no list (rtnetlink).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    known().map(kernel_state::KernelState::usable)
}

fn known() -> io::Result<kernel_state::KernelState> {
    let links = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let addresses = dump(all_addresses())?;
    let routes = dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
    let mut known = kernel_state::KernelState::default();
    links.iter().chain(&addresses).chain(&routes).for_each(|message| known.learn(message));
    known.ways = WORLD.map(|family| family.iter().find_map(|ip| interface_for(*ip).ok()));
    Ok(known)
}

/// Internet addresses of either family: those of two DNS root servers (a and k), which no VPN has a reason to treat
/// differently from others. Nothing is sent to them.
const WORLD: [[IpAddr; 2]; 2] = [
    [IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129))],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
    ],
];

/// The interface by which the kernel sends unbound traffic to the internet; `None` if it has no route. Routes alone do
/// not decide this, because policy rules (as of `wg-quick`) count as well.
pub fn internet_interface() -> Option<NonZeroU32> {
    WORLD.iter().flatten().find_map(|ip| interface_for(*ip).ok())
}

/// The index of the interface by which the kernel sends unbound traffic to `ip`.
///
/// # Errors
/// The kernel's error, e.g. `NetworkUnreachable`.
pub fn interface_for(ip: IpAddr) -> io::Result<NonZeroU32> {
    let question = question(ip);
    let RouteNetlinkMessage::NewRoute(route) = ask(RouteNetlinkMessage::GetRoute(question))? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let out = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Oif(index) => NonZeroU32::new(*index),
        _ => None,
    });
    out.ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
}

/// The source address that the kernel would use for unbound traffic to `ip`. Nothing is sent.
///
/// # Errors
/// The kernel's error, e.g. `NetworkUnreachable`.
pub fn source_for(ip: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Any port but 0 works.
    socket.connect((ip, 9))?;
    Ok(socket.local_addr()?.ip())
}

fn question(ip: IpAddr) -> RouteMessage {
    let mut question = RouteMessage::default();
    let (family, bits) = match ip {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = bits;
    question.attributes.push(RouteAttribute::Destination(ip.into()));
    question
}

/// Whether a route leaves by an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAnswer {
    /// A route leaves by it for traffic from any address.
    Yes,
    /// A route leaves by it, but only for traffic from this address of the interface: a socket must bind to it (`ip
    /// rule`).
    From(IpAddr),
    /// No route leaves by it.
    No,
}

/// Whether a route to `ip` leaves by this interface.
///
/// A socket bound to an interface without such a route sends all the same: the kernel treats every IPv4 address as a
/// neighbour there, and may use another interface's address as the source. Callers that check first need not wait for
/// answers that cannot come. If the kernel does not tell, a route is assumed.
pub fn leads(index: NonZeroU32, ip: IpAddr) -> RouteAnswer {
    if has_route(index, ip, None) {
        return RouteAnswer::Yes;
    }
    let own =
        dump(all_addresses()).unwrap_or_default().into_iter().filter_map(|found| match found {
            RouteNetlinkMessage::NewAddress(at) if at.header.index == index.get() => {
                own_address(&at)
            }
            _ => None,
        });
    let mut own = own.filter(|own| own.is_ipv4() == ip.is_ipv4());
    own.find(|own| has_route(index, ip, Some(*own))).map_or(RouteAnswer::No, RouteAnswer::From)
}

fn has_route(index: NonZeroU32, to: IpAddr, from: Option<IpAddr>) -> bool {
    let mut question = question(to);
    question.header.flags = RouteFlags::FibMatch;
    question.attributes.push(RouteAttribute::Oif(index.get()));
    if let Some(from) = from {
        question.header.source_prefix_length = question.header.destination_prefix_length;
        question.attributes.push(RouteAttribute::Source(from.into()));
    }
    let none = [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ESRCH];
    match ask(RouteNetlinkMessage::GetRoute(question)) {
        Err(why) => !why.raw_os_error().is_some_and(|code| none.contains(&code)),
        Ok(_) => true,
    }
}

/// All addresses of all interfaces, up or down, except loopback addresses.
///
/// # Errors
/// If the kernel returns no list (rtnetlink).
pub fn own_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let found = dump(all_addresses())?;
    let own = found.iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(address) => own_address(address),
        _ => None,
    });
    Ok(own.filter(|ip| !ip.is_loopback()).collect())
}

fn all_addresses() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetAddress(AddressMessage::default())
}

/// `IFA_LOCAL`, or else `IFA_ADDRESS`, which is the peer's address on a point-to-point link.
fn own_address(message: &AddressMessage) -> Option<IpAddr> {
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

    /// The interface that the kernel would use is listed, with the source address that it would use.
    #[test]
    fn the_interface_that_the_kernel_sends_by_is_usable() {
        let found = interfaces().unwrap();
        assert!(found.iter().all(|i| i.name != "lo" && !i.addresses.is_empty()), "{found:?}");
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // This sends no packet.
        if socket.connect("198.51.100.1:9").is_err() {
            eprintln!("skipped in part: this host has no IPv4 route");
            assert!(interface_for("198.51.100.1".parse().unwrap()).is_err());
            return;
        }
        let index = interface_for("198.51.100.1".parse().unwrap()).unwrap();
        let own = socket.local_addr().unwrap().ip();
        let by = found.iter().find(|i| i.index == index);
        assert!(by.is_some_and(|i| i.addresses.contains(&own)), "{own} {index} {found:?}");
        assert!(own_addresses().unwrap().contains(&own));
    }

    #[test]
    fn loopback_leads_only_to_loopback() {
        let lo = interface_for("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(leads(lo, "127.0.0.1".parse().unwrap()), RouteAnswer::Yes);
        assert_eq!(leads(lo, "198.51.100.1".parse().unwrap()), RouteAnswer::No);
    }

    #[test]
    fn loopback_is_not_a_usable_interface() {
        let lo = interface_for("127.0.0.1".parse().unwrap()).unwrap();
        assert!(interfaces().unwrap().iter().all(|i| i.index != lo));
    }
}
