//! The interfaces of this host by which others can be reached.

mod changes;
mod usable;
mod world;

pub use changes::Changes;
pub use world::{Wish, into_the_world};

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

/// An interface that is up and has an address that others can answer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's index: what routes are bound to.
    pub index: NonZeroU32,
    /// Its name now, for people's eyes.
    pub name: String,
    /// Its addresses, link-local ones left out.
    pub addresses: Vec<IpAddr>,
    /// Whether a default route leaves by it, in whatever table: also one of the two halves
    /// (or of the eighths of IPv6) that VPN programs write in its place, or whatever they write if
    /// [`Self::is_way`].
    pub has_default_route: bool,
    /// Whether the kernel sends by it what is bound to none and goes into the world, of either family.
    pub is_way: bool,
    /// The smallest metric of its default routes, else of its other routes: the kernel's own
    /// choice has the smallest of all where one table decides. [`interface_for`] knows better.
    pub metric: u32,
    /// Whether what leaves by it goes through another interface in the end: WireGuard, OpenVPN,
    /// IP in IP. Where that is the way into the world, the user wants nothing beside it.
    pub is_tunnel: bool,
    /// The tunnel that is the way into the world of a family for which this one has a default route too: what
    /// is bound to this one bypasses that.
    pub beside: Option<NonZeroU32>,
    /// One that comes before it in [`interfaces`] and has an address in one network with it. Both answer when the
    /// network asks who has either address (arp(7), `arp_ignore`), so what is sent to the one may come in by the other,
    /// where no socket that is bound hears it.
    pub doubles: Option<NonZeroU32>,
}

impl Interface {
    /// A card with a default route, of which no more is known; for who makes a list of his own.
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

/// What an interface lacks to be usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It is switched off.
    Down,
    /// No cable, no network that was joined.
    Carrier,
    /// It has none, or one that nobody beyond its link answers to.
    Address,
    /// No unicast route leaves by it.
    Route,
}

/// All interfaces but loopback, as they are now.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// As [`interfaces`] has them.
    pub usable: Vec<Interface>,
    /// The names of the others, and what each one lacks first; ports of bridges that have none are left out.
    pub lacking: Vec<(String, Lack)>,
}

/// All of this network namespace's interfaces, for who shows them.
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
pub fn survey() -> io::Result<Survey> {
    let known = known()?;
    let lacking = known.clone().lacking();
    Ok(Survey { usable: known.usable(), lacking })
}

/// The interfaces of this network namespace that may carry a transfer: the kernel's own choice first, then those with a
/// default route, by metric, then the others; loopback is none of them.
///
/// One is usable if it is up, running and no loopback device, has an address that is not
/// link-local, and some unicast route leaves by it. Its kind does not matter (a tunnel is as
/// good as a card): which of them to use says [`into_the_world`].
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
pub fn interfaces() -> io::Result<Vec<Interface>> {
    known().map(usable::Known::usable)
}

fn known() -> io::Result<usable::Known> {
    let links = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    let addresses = dump(all_addresses())?;
    let routes = dump(RouteNetlinkMessage::GetRoute(RouteMessage::default()))?;
    let mut known = usable::Known::default();
    links.iter().chain(&addresses).chain(&routes).for_each(|message| known.learn(message));
    known.ways = WORLD.map(|family| family.iter().find_map(|ip| interface_for(*ip).ok()));
    Ok(known)
}

/// Addresses of the world at large, of either family: those of two servers of the DNS's root (a and k), which no VPN has a
/// reason to treat otherwise than all others. Nothing is sent to them.
const WORLD: [[IpAddr; 2]; 2] = [
    [IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), IpAddr::V4(Ipv4Addr::new(193, 0, 14, 129))],
    [
        IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
        IpAddr::V6(Ipv6Addr::new(0x2001, 0x7fd, 0, 0, 0, 0, 0, 1)),
    ],
];

/// The interface by which the kernel sends what is bound to none into the world; `None`: it leads nowhere. Routes
/// alone do not tell: rules decide as well (policy routing, as of `wg-quick`).
pub fn interface_for_the_world() -> Option<NonZeroU32> {
    WORLD.iter().flatten().find_map(|ip| interface_for(*ip).ok())
}

/// The index of the interface by which the kernel sends to `ip` what is bound to none.
///
/// # Errors
/// The kernel's, e.g. `NetworkUnreachable`.
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

/// The address that the kernel would send from to `ip`, by whatever interface; nothing is sent.
///
/// # Errors
/// The kernel's, e.g. `NetworkUnreachable`.
pub fn source_for(ip: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Any port but 0 will do.
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
pub enum Leads {
    /// One does.
    Yes,
    /// One does for what comes from this address of the interface: a socket has to be bound to it (`ip rule`).
    From(IpAddr),
    /// None does.
    No,
}

/// Whether a route to `ip` leaves by this interface.
///
/// A socket that is bound to an interface without one sends all the same: the kernel takes every IPv4 address for a
/// neighbour there, with another interface's address as its own if need be. Who asks first need not wait for what cannot
/// answer. Where the kernel does not say, it is taken for granted.
pub fn leads(index: NonZeroU32, ip: IpAddr) -> Leads {
    if has_route(index, ip, None) {
        return Leads::Yes;
    }
    let own =
        dump(all_addresses()).unwrap_or_default().into_iter().filter_map(|found| match found {
            RouteNetlinkMessage::NewAddress(at) if at.header.index == index.get() => {
                own_address(&at)
            }
            _ => None,
        });
    let mut own = own.filter(|own| own.is_ipv4() == ip.is_ipv4());
    own.find(|own| has_route(index, ip, Some(*own))).map_or(Leads::No, Leads::From)
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

/// All addresses of all interfaces, up or down, but loopback's.
///
/// # Errors
/// If the kernel gives no list (rtnetlink).
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

/// `IFA_LOCAL`, else `IFA_ADDRESS`: on a point-to-point link the latter is the peer's.
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

    /// The kernel's own word: the interface that it would send by is in its list, with the
    /// address that it would send from.
    #[test]
    fn the_interface_that_the_kernel_sends_by_is_usable() {
        let found = interfaces().unwrap();
        assert!(found.iter().all(|i| i.name != "lo" && !i.addresses.is_empty()), "{found:?}");
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // No packet is sent by this.
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
    fn loopback_leads_to_loopback_alone() {
        let lo = interface_for("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(leads(lo, "127.0.0.1".parse().unwrap()), Leads::Yes);
        assert_eq!(leads(lo, "198.51.100.1".parse().unwrap()), Leads::No);
    }

    #[test]
    fn the_way_to_loopback_is_no_usable_interface() {
        let lo = interface_for("127.0.0.1".parse().unwrap()).unwrap();
        assert!(interfaces().unwrap().iter().all(|i| i.index != lo));
    }
}
