//! Decides which interfaces are usable, from the kernel's links, addresses and routes; no I/O.

use super::{Interface, UnusableReason, own_address};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::AddressMessage,
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
};
use std::{cmp::Reverse, collections::BTreeMap, net::IpAddr, num::NonZeroU32};

/// What is known from the kernel, by interface index.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelState {
    seen: BTreeMap<NonZeroU32, InterfaceState>,
    /// The interfaces by which the kernel sends unbound traffic to the internet, for IPv4 and IPv6.
    pub(super) ways: [Option<NonZeroU32>; 2],
}

#[derive(Clone, Debug, Default)]
struct InterfaceState {
    /// Its name, unless it is loopback or a port of another interface (a bridge, a team).
    name: Option<String>,
    is_up: bool,
    runs: bool,
    /// The addresses, with the prefix lengths of their networks.
    addresses: Vec<(IpAddr, u8)>,
    /// The smallest metrics of the default routes of IPv4 and of IPv6.
    default_routes: [Option<u32>; 2],
    other_route: Option<u32>,
    is_tunnel: bool,
}

impl KernelState {
    /// Records one object of a list. Objects other than links, addresses and routes are ignored.
    pub(super) fn learn(&mut self, message: &RouteNetlinkMessage) {
        match message {
            RouteNetlinkMessage::NewLink(link) => self.link(link),
            RouteNetlinkMessage::NewAddress(address) => self.address(address),
            RouteNetlinkMessage::NewRoute(route) => self.route(route),
            _ => {}
        }
    }

    /// The usable interfaces: the kernel's choice first, for IPv4 before IPv6, then those with default routes, then by
    /// metric, then by index. If the kernel has no route to the internet, the first of this order is treated as its
    /// choice.
    pub(super) fn usable(mut self) -> Vec<Interface> {
        let usable = self.seen.iter().filter_map(|(i, seen)| seen.clone().usable(*i));
        let mut found: Vec<Interface> = usable.collect();
        let by_metric = |i: &Interface| (Reverse(i.has_default_route), i.metric, i.index);
        let is_closed = self.ways == [None, None];
        if is_closed {
            self.ways = [found.iter().min_by_key(|i| by_metric(i)).map(|i| i.index); 2];
        }
        for interface in &mut found {
            interface.is_way = self.ways.contains(&Some(interface.index));
            interface.has_default_route |= interface.is_way && !is_closed;
            interface.beside = self.beside(interface.index);
        }
        let turn = |i: &Interface| self.ways.iter().position(|way| *way == Some(i.index));
        found.sort_by_key(|i| (turn(i).unwrap_or(usize::MAX), by_metric(i)));
        for at in 1..found.len() {
            let (before, this) = found.split_at_mut(at);
            let seen = |interface: &Interface| self.seen.get(&interface.index);
            let Some(own) = this.first().and_then(seen) else { continue };
            let double =
                before.iter().find(|one| seen(one).is_some_and(|one| own.shares_network(one)));
            this[0].doubles = double.map(|one| one.index);
        }
        found
    }

    /// The tunnel that traffic bound to this interface bypasses. One tunnel does not bypass another.
    fn beside(&self, index: NonZeroU32) -> Option<NonZeroU32> {
        let own = self.seen.get(&index).filter(|own| !own.is_tunnel)?;
        let tunnel = |way: &NonZeroU32| {
            *way != index && self.seen.get(way).is_some_and(|seen| seen.is_tunnel)
        };
        let families = self.ways.into_iter().zip(own.default_routes);
        families.filter(|(_, own)| own.is_some()).find_map(|(way, _)| way.filter(tunnel))
    }

    /// The unusable interfaces, in the order of their indices.
    pub(super) fn lacking(self) -> Vec<(String, UnusableReason)> {
        let lacking = |seen: InterfaceState| Some((seen.name.clone()?, seen.lack()?));
        self.seen.into_values().filter_map(lacking).collect()
    }

    fn at(&mut self, index: u32) -> Option<&mut InterfaceState> {
        NonZeroU32::new(index).map(|index| self.seen.entry(index).or_default())
    }

    fn link(&mut self, link: &LinkMessage) {
        let flags = link.header.flags;
        let name = link.attributes.iter().find_map(|a| match a {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        let is_port = link.attributes.iter().any(|a| matches!(a, LinkAttribute::Controller(_)));
        if let Some(seen) = self.at(link.header.index)
            && !flags.contains(LinkFlags::Loopback)
        {
            let is_up = flags.contains(LinkFlags::Up);
            (seen.is_up, seen.runs) = (is_up, is_up && flags.contains(LinkFlags::Running));
            seen.name = name.filter(|_| !is_port || seen.runs);
            seen.is_tunnel = is_tunnel(link);
        }
    }

    fn address(&mut self, address: &AddressMessage) {
        let Some(ip) = own_address(address).filter(|ip| !is_link_local(*ip)) else { return };
        if let Some(seen) = self.at(address.header.index) {
            seen.addresses.push((ip, address.header.prefix_len));
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
                true => &mut seen.default_routes[family(&route.header)],
                false => &mut seen.other_route,
            };
            let metric = metric.unwrap_or(0);
            *known = Some(known.map_or(metric, |k| k.min(metric)));
        }
    }
}

impl InterfaceState {
    fn usable(self, index: NonZeroU32) -> Option<Interface> {
        let lack = self.lack();
        let (default_route, is_tunnel) = (self.default_route(), self.is_tunnel);
        let metric = default_route.or(self.other_route)?;
        let has_default_route = default_route.is_some();
        let addresses = self.addresses.into_iter().map(|(ip, _)| ip).collect();
        let card = Interface::new(index, &self.name?);
        let found = Interface { addresses, has_default_route, metric, is_tunnel, ..card };
        lack.is_none().then_some(found)
    }

    fn lack(&self) -> Option<UnusableReason> {
        let has_route = self.default_route().or(self.other_route).is_some();
        match () {
            () if !self.is_up => Some(UnusableReason::Down),
            () if !self.runs => Some(UnusableReason::Carrier),
            () if self.addresses.is_empty() => Some(UnusableReason::Address),
            () if !has_route => Some(UnusableReason::Route),
            () => None,
        }
    }

    /// The smallest metric of the default routes.
    fn default_route(&self) -> Option<u32> {
        self.default_routes.into_iter().flatten().min()
    }

    fn shares_network(&self, other: &Self) -> bool {
        let all = self.addresses.iter().flat_map(|a| other.addresses.iter().map(move |b| (a, b)));
        all.into_iter().any(|((a, bits), (b, more))| {
            bits == more && network(*a, *bits).is_some_and(|own| Some(own) == network(*b, *more))
        })
    }
}

/// The network part of the address. `None` for a network of a single address, which cannot be shared.
fn network(ip: IpAddr, bits: u8) -> Option<(bool, u128)> {
    let (whole, length): (u128, u8) = match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let host = u32::from(length.checked_sub(bits).filter(|host| *host > 0)?);
    Some((ip.is_ipv4(), whole.checked_shr(host).unwrap_or(0)))
}

/// Decides by the kind that the driver reports; LTE modems (`wwan`) and cards report another one or none.
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

/// The index of the family: 0 for IPv4, 1 for IPv6.
fn family(header: &RouteHeader) -> usize {
    usize::from(header.address_family != AddressFamily::Inet)
}

/// Whether a route covers at least half of IPv4, or the eighth of IPv6 that is in use (2000::/3).
fn leads_everywhere(header: &RouteHeader) -> bool {
    let bits = if header.address_family == AddressFamily::Inet { 1 } else { 3 };
    header.destination_prefix_length <= bits
}

/// Whether a route leads to link-local addresses: every IPv6 interface has a route to `fe80::/64`.
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
        let mut known = KernelState::default();
        messages.iter().for_each(|message| known.learn(message));
        known.usable()
    }

    fn names(messages: &[RouteNetlinkMessage]) -> Vec<String> {
        usable(messages).into_iter().map(|i| i.name).collect()
    }

    const RUNS: LinkFlags = LinkFlags::Up.union(LinkFlags::Running);

    /// A complete interface: link, address, default route.
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
    fn link_local_addresses_and_routes_do_not_count() {
        let v6 = |ip: &str, to: &str| {
            [link(2, "card", RUNS), address(2, ip), route(2, to, 64, 256)].to_vec()
        };
        assert!(names(&v6("fe80::1", "2001:db8::")).is_empty());
        assert!(names(&v6("2001:db8::1", "fe80::")).is_empty());
        assert_eq!(names(&v6("2001:db8::1", "2001:db8::")), ["card"]);
        assert!(names(&v6("169.254.7.7", "2001:db8::")).is_empty());
    }

    #[test]
    fn an_unusable_interface_reports_what_it_lacks() {
        let lack = |messages: &[RouteNetlinkMessage]| {
            let mut known = KernelState::default();
            messages.iter().for_each(|message| known.learn(message));
            known.lacking()
        };
        let base = whole(2, "card", 100);
        let of = |without: usize, lack_of: UnusableReason| {
            let mut lacking = base.clone();
            lacking.remove(without);
            assert_eq!(lack(&lacking), [("card".to_owned(), lack_of)]);
        };
        assert_eq!(lack(&base), []);
        of(1, UnusableReason::Address);
        of(2, UnusableReason::Route);
        let flags = |flags| [&[link(2, "card", flags)], &base[1..]].concat();
        assert_eq!(lack(&flags(LinkFlags::Up)), [("card".to_owned(), UnusableReason::Carrier)]);
        assert_eq!(lack(&flags(LinkFlags::Running)), [("card".to_owned(), UnusableReason::Down)]);
        assert_eq!(lack(&[link(1, "lo", RUNS | LinkFlags::Loopback)]), []);
        let mut port = link(3, "port", LinkFlags::Up);
        let RouteNetlinkMessage::NewLink(of_bridge) = &mut port else { panic!() };
        of_bridge.attributes.push(LinkAttribute::Controller(9));
        assert_eq!(lack(&[port]), [], "what belongs to a bridge is the bridge's affair");
    }

    #[test]
    fn two_interfaces_in_one_network_are_detected() {
        let doubles = |one: (&str, u8), other: (&str, u8)| {
            let mut all = Vec::new();
            for (index, (ip, bits)) in [(2, one), (3, other)] {
                let mut at = address(index, ip);
                let RouteNetlinkMessage::NewAddress(own) = &mut at else { panic!() };
                own.header.prefix_len = bits;
                all.extend([link(index, "card", RUNS), at, route(index, "0.0.0.0", 0, 9 - index)]);
            }
            // The interface with the smaller metric comes first.
            usable(&all).iter().map(|i| i.doubles.map_or(0, NonZeroU32::get)).collect::<Vec<_>>()
        };
        assert_eq!(doubles(("192.168.1.7", 24), ("192.168.1.8", 24)), [0, 3]);
        assert_eq!(doubles(("192.168.1.7", 24), ("192.168.2.8", 24)), [0, 0]);
        assert_eq!(doubles(("192.168.1.7", 32), ("192.168.1.7", 32)), [0, 0]);
        assert_eq!(doubles(("2001:db8::7", 64), ("2001:db8::8", 64)), [0, 3]);
        assert_eq!(doubles(("0.0.0.7", 24), ("::7", 120)), [0, 0]);
    }

    /// The usable interfaces if the kernel sends internet traffic by `ways`.
    fn sent_by(ways: [u32; 2], messages: &[RouteNetlinkMessage]) -> Vec<Interface> {
        let mut known = KernelState { ways: ways.map(NonZeroU32::new), ..KernelState::default() };
        messages.iter().for_each(|message| known.learn(message));
        known.usable()
    }

    fn tunnel(index: u32, name: &str) -> RouteNetlinkMessage {
        let mut tunnel = link(index, name, RUNS);
        let RouteNetlinkMessage::NewLink(link) = &mut tunnel else { panic!() };
        link.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]));
        tunnel
    }

    /// `wg-quick` installs policy rules that send all traffic by a table of its own, whose metrics are not compared
    /// with those of other tables.
    #[test]
    fn the_kernels_own_choice_comes_first_whatever_the_metrics_are() {
        let mut all = [whole(2, "card", 0), whole(3, "wifi", 600), whole(9, "vpn0", 50)].concat();
        all[6] = tunnel(9, "vpn0");
        assert_eq!(names(&all), ["card", "vpn0", "wifi"], "by metric, if nobody were asked");
        let found = sent_by([9, 0], &all);
        let told: Vec<_> = found.iter().map(|i| (&*i.name, i.is_way, i.beside)).collect();
        let vpn = NonZeroU32::new(9);
        assert_eq!(
            told,
            [("vpn0", true, None), ("card", false, vpn), ("wifi", false, vpn)],
            "{found:?}"
        );
        let direct = sent_by([3, 0], &all);
        assert!(direct.iter().all(|i| i.beside.is_none()), "{direct:?}");
    }

    #[test]
    fn the_kernels_choice_counts_as_a_default_route_whatever_its_routes_are() {
        let mut all = [whole(2, "card", 0), whole(9, "vpn0", 50)].concat();
        (all[3], all[5]) = (tunnel(9, "vpn0"), route(9, "198.0.0.0", 7, 0));
        let found = sent_by([9, 0], &all);
        assert!(found[0].name == "vpn0" && found[0].has_default_route, "{found:?}");
        assert!(!usable(&all).iter().any(|i| i.name == "vpn0" && i.has_default_route));
    }

    #[test]
    fn a_tunnel_is_bypassed_only_by_interfaces_with_a_default_route_of_its_family() {
        let mut all = [whole(2, "card", 0), whole(3, "both", 1)].concat();
        all.extend([tunnel(9, "six0"), address(9, "2001:db8::9"), route(9, "::", 0, 1024)]);
        all.push(route(3, "::", 0, 2048));
        let beside = |found: Vec<Interface>| {
            found.into_iter().filter(|i| i.beside.is_some()).map(|i| i.name).collect::<Vec<_>>()
        };
        assert_eq!(beside(sent_by([2, 9], &all)), ["both"]);
    }

    #[test]
    fn a_tunnel_is_told_apart_from_a_card() {
        let mut all = [whole(2, "card", 100), whole(3, "wg0", 50)].concat();
        all[3] = tunnel(3, "wg0");
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
