//! Which of the kernel's links, addresses and routes make a usable interface; no I/O.

use super::{Interface, own_address};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::AddressMessage,
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
};
use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr, num::NonZeroU32};

/// What the kernel said, by the interfaces' indices.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<NonZeroU32, Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// Its name, if it is up, running and not loopback.
    name: Option<String>,
    addresses: Vec<IpAddr>,
    /// The smallest metrics.
    default_route: Option<u32>,
    other_route: Option<u32>,
    is_tunnel: bool,
}

impl Known {
    /// Takes in one object of a list; what is none of link, address or route says nothing.
    pub(super) fn learn(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.link(link),
            RouteNetlinkMessage::NewAddress(address) => self.address(address),
            RouteNetlinkMessage::NewRoute(route) => self.route(route),
            _ => {}
        }
    }

    /// The usable ones: default routes first, then by metric, then by index.
    pub(super) fn usable(self) -> Vec<Interface> {
        let mut found: Vec<_> = self.0.into_iter().filter_map(|(i, seen)| seen.usable(i)).collect();
        found.sort_by_key(|i| (Reverse(i.has_default_route), i.metric, i.index));
        found
    }

    fn at(&mut self, index: u32) -> Option<&mut Seen> {
        NonZeroU32::new(index).map(|index| self.0.entry(index).or_default())
    }

    fn link(&mut self, link: &LinkMessage) {
        let flags = link.header.flags;
        let runs = flags.contains(LinkFlags::Up | LinkFlags::Running);
        let name = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        if let Some(seen) = self.at(link.header.index)
            && runs
            && !flags.contains(LinkFlags::Loopback)
        {
            seen.name = name;
            seen.is_tunnel = is_tunnel(link);
        }
    }

    fn address(&mut self, address: &AddressMessage) {
        let Some(ip) = own_address(address).filter(|ip| !is_link_local(*ip)) else { return };
        if let Some(seen) = self.at(address.header.index) {
            seen.addresses.push(ip);
        }
    }

    fn route(&mut self, route: &RouteMessage) {
        if route.header.kind != RouteType::Unicast || is_within_link(route) {
            return;
        }
        let metric = route.attributes.iter().find_map(|a| match a {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        });
        for out in outs(route) {
            let Some(seen) = self.at(out) else { continue };
            let known = match leads_everywhere(&route.header) {
                true => &mut seen.default_route,
                false => &mut seen.other_route,
            };
            let metric = metric.unwrap_or(0);
            *known = Some(known.map_or(metric, |k| k.min(metric)));
        }
    }
}

impl Seen {
    fn usable(self, index: NonZeroU32) -> Option<Interface> {
        let (name, metric) = (self.name?, self.default_route.or(self.other_route)?);
        let has_default_route = self.default_route.is_some();
        let usable = !self.addresses.is_empty();
        let addresses = self.addresses;
        let is_tunnel = self.is_tunnel;
        let found = Interface { index, name, addresses, has_default_route, metric, is_tunnel };
        usable.then_some(found)
    }
}

/// By the kind that its driver has; LTE modems (`wwan`) and cards say another one or none.
fn is_tunnel(link: &LinkMessage) -> bool {
    use InfoKind as K;
    let infos = link.attributes.iter().filter_map(|a| match a {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    infos.flatten().any(|info| match info {
        LinkInfo::Kind(kind) => matches!(
            kind,
            K::Tun
                | K::Wireguard
                | K::IpIp
                | K::Ip6Tnl
                | K::SitTun
                | K::GreTun
                | K::GreTun6
                | K::GreTap
                | K::GreTap6
                | K::Vti
                | K::Vti6
                | K::Xfrm
        ),
        _ => false,
    })
}

/// The devices of a route: one, or those of its next hops.
fn outs(route: &RouteMessage) -> Vec<u32> {
    let out = |a: &RouteAttribute| match a {
        RouteAttribute::Oif(index) => vec![*index],
        RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
        _ => Vec::new(),
    };
    route.attributes.iter().flat_map(out).collect()
}

/// Half of IPv4, or the eighth of IPv6 that is in use (2000::/3), or more.
fn leads_everywhere(header: &RouteHeader) -> bool {
    let bits = if header.address_family == AddressFamily::Inet { 1 } else { 3 };
    header.destination_prefix_length <= bits
}

/// Every IPv6 interface has a route to `fe80::/64`, which leads to nobody else.
fn is_within_link(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|a| match a {
        RouteAttribute::Destination(RouteAddress::Inet6(to)) => to.is_unicast_link_local(),
        RouteAttribute::Destination(RouteAddress::Inet(to)) => to.is_link_local(),
        _ => false,
    })
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::{address::AddressAttribute, route::RouteNextHop};

    fn link(index: u32, name: &str, flags: LinkFlags) -> RouteNetlinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = flags;
        link.attributes.push(LinkAttribute::IfName(name.into()));
        RouteNetlinkMessage::NewLink(link)
    }

    fn address(index: u32, ip: &str) -> RouteNetlinkMessage {
        let mut address = AddressMessage::default();
        address.header.index = index;
        address.attributes.push(AddressAttribute::Address(ip.parse().unwrap()));
        RouteNetlinkMessage::NewAddress(address)
    }

    fn route(index: u32, to: &str, bits: u8, metric: u32) -> RouteNetlinkMessage {
        let to: IpAddr = to.parse().unwrap();
        let mut route = RouteMessage::default();
        route.header.address_family =
            if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        route.header.destination_prefix_length = bits;
        route.header.kind = RouteType::Unicast;
        route.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Oif(index),
            RouteAttribute::Priority(metric),
        ];
        RouteNetlinkMessage::NewRoute(route)
    }

    fn usable(messages: &[RouteNetlinkMessage]) -> Vec<Interface> {
        let mut known = Known::default();
        messages.iter().for_each(|message| known.learn(message));
        known.usable()
    }

    fn names(messages: &[RouteNetlinkMessage]) -> Vec<String> {
        usable(messages).into_iter().map(|i| i.name).collect()
    }

    const RUNS: LinkFlags = LinkFlags::Up.union(LinkFlags::Running);

    /// A whole interface: link, address, default route.
    fn whole(index: u32, name: &str, metric: u32) -> Vec<RouteNetlinkMessage> {
        let ip = format!("10.0.{index}.1");
        vec![link(index, name, RUNS), address(index, &ip), route(index, "0.0.0.0", 0, metric)]
    }

    #[test]
    fn the_smallest_metric_comes_first_and_those_without_a_default_route_last() {
        let mut all = [whole(2, "wifi", 600), whole(3, "card", 100)].concat();
        all.extend([link(1, "bridge", RUNS), address(1, "172.17.0.1")]);
        all.push(route(1, "172.17.0.0", 16, 0));
        assert_eq!(names(&all), ["card", "wifi", "bridge"]);
        let found = usable(&all);
        let defaults: Vec<_> = found.iter().map(|i| (i.has_default_route, i.metric)).collect();
        assert_eq!(defaults, [(true, 100), (true, 600), (false, 0)]);
    }

    #[test]
    fn each_lack_makes_an_interface_unusable() {
        let base = whole(2, "card", 100);
        assert_eq!(names(&base), ["card"]);
        (0..3).for_each(|without| {
            let mut lacking = base.clone();
            lacking.remove(without);
            assert!(names(&lacking).is_empty(), "without {without}");
        });
        for flags in [LinkFlags::Up, LinkFlags::Running, RUNS | LinkFlags::Loopback] {
            let other = [&[link(2, "card", flags)], &base[1..]].concat();
            assert!(names(&other).is_empty(), "{flags:?}");
        }
    }

    #[test]
    fn what_is_link_local_counts_neither_as_address_nor_as_route() {
        let v6 = |ip: &str, to: &str| {
            [link(2, "card", RUNS), address(2, ip), route(2, to, 64, 256)].to_vec()
        };
        assert!(names(&v6("fe80::1", "2001:db8::")).is_empty());
        assert!(names(&v6("2001:db8::1", "fe80::")).is_empty());
        assert_eq!(names(&v6("2001:db8::1", "2001:db8::")), ["card"]);
        assert!(names(&v6("169.254.7.7", "2001:db8::")).is_empty());
    }

    #[test]
    fn a_tunnel_is_told_from_a_card() {
        let mut all = [whole(2, "card", 100), whole(3, "wg0", 50)].concat();
        let RouteNetlinkMessage::NewLink(link) = &mut all[3] else { panic!() };
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]));
        let found: Vec<_> = usable(&all).into_iter().map(|i| (i.name, i.is_tunnel)).collect();
        assert_eq!(found, [("wg0".to_owned(), true), ("card".to_owned(), false)]);
    }

    #[test]
    fn halves_of_the_internet_and_next_hops_make_a_default_route() {
        let mut vpn = whole(2, "tun", 0);
        vpn[2] = route(2, "128.0.0.0", 1, 50);
        assert!(usable(&vpn)[0].has_default_route);
        vpn[2] = route(2, "64.0.0.0", 2, 50);
        assert!(!usable(&vpn)[0].has_default_route);

        let mut spread = RouteMessage::default();
        spread.header.address_family = AddressFamily::Inet;
        spread.header.kind = RouteType::Unicast;
        let hops = [2, 3].map(|index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop
        });
        spread.attributes.push(RouteAttribute::MultiPath(hops.to_vec()));
        let mut all = [&whole(2, "one", 0)[..2], &whole(3, "two", 0)[..2]].concat();
        all.push(RouteNetlinkMessage::NewRoute(spread));
        assert_eq!(usable(&all).iter().filter(|i| i.has_default_route).count(), 2);
    }
}
