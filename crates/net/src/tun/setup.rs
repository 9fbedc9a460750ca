//! Sets up a device's address, route and MTU (rtnetlink).

use super::{TunError, TunSettings};
use crate::netlink::change;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
        RouteScope, RouteType,
    },
};
use std::{io, net::Ipv6Addr};

pub(super) fn set_up(settings: &TunSettings) -> Result<(), TunError> {
    let name = || settings.name.clone();
    let failed = |step| move |source| TunError::SetUp { device: name(), step, source };
    let index = index(&settings.name).map_err(failed("finding it"))?;
    // Otherwise the kernel would solicit routers on the device, where nobody answers.
    _ = change(quiet(index), 0);
    change(up(index, settings.mtu), 0).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => TunError::Rights(name()),
        _ => failed("bringing it up")(source),
    })?;
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    let addressed = change(address(index, settings), flags);
    addressed.map_err(failed("assigning its IPv6 address (is IPv6 turned off on this host?)"))?;
    change(route(index, settings), flags).map_err(|source| unrouted(settings, source))
}

/// The error of the route, which the kernel refuses if it does not know the congestion control.
fn unrouted(settings: &TunSettings, source: io::Error) -> TunError {
    let device = settings.name.clone();
    match &settings.congestion {
        Some(name) if source.kind() == io::ErrorKind::InvalidInput => {
            TunError::Congestion { device, congestion: name.clone(), source }
        }
        _ => TunError::SetUp { device, step: "adding the route to it", source },
    }
}

fn index(name: &str) -> io::Result<u32> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(netdevice::name_to_index(socket, name)?)
}

/// Prevents automatic addresses, which would make the kernel solicit routers.
fn quiet(index: u32) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    link.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])])];
    RouteNetlinkMessage::SetLink(link)
}

fn up(index: u32, mtu: u16) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    (link.header.flags, link.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    link.attributes = vec![LinkAttribute::Mtu(mtu.into())];
    RouteNetlinkMessage::SetLink(link)
}

fn address(index: u32, settings: &TunSettings) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = settings.prefix;
    message.header.index = index;
    // No other host can have the address. The route is added explicitly with more attributes than the automatic one
    // would have.
    let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
    message.attributes = vec![
        AddressAttribute::Local(settings.address.into()),
        AddressAttribute::Address(settings.address.into()),
        AddressAttribute::Flags(flags),
    ];
    RouteNetlinkMessage::NewAddress(message)
}

fn route(index: u32, settings: &TunSettings) -> RouteNetlinkMessage {
    let host = u128::from(settings.address);
    let mask = u128::MAX.checked_shl(128 - u32::from(settings.prefix)).unwrap_or(0);
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = settings.prefix;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet6(Ipv6Addr::from(host & mask))),
        RouteAttribute::Oif(index),
        RouteAttribute::PrefSource(RouteAddress::Inet6(settings.address)),
    ];
    let congestion = settings.congestion.clone();
    let metrics = congestion.map(|name| vec![RouteMetric::CcAlgo(name)]);
    message.attributes.extend(metrics.map(RouteAttribute::Metrics));
    RouteNetlinkMessage::NewRoute(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_congestion_control_is_named() {
        let settings = TunSettings {
            name: "x0".to_owned(),
            mtu: 1400,
            address: Ipv6Addr::LOCALHOST,
            prefix: 64,
            congestion: Some("foo".to_owned()),
        };
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let told = unrouted(&settings, invalid()).to_string();
        assert!(told.contains("`foo` (`congestion` in the settings)"), "{told}");
        let told = unrouted(&TunSettings { congestion: None, ..settings }, invalid()).to_string();
        assert!(told.contains("the route to it failed"), "{told}");
    }
}
