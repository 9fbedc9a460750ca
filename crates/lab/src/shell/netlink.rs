//! Sets up devices, addresses, routes and rules of a network namespace through rtnetlink.

use anyhow::{Context, Result, bail};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    route::{
        RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
        RouteType,
    },
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::net::IpAddr;

/// An rtnetlink socket of the network namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A route out of a device.
pub struct Route<'a> {
    /// Destination network.
    pub to: IpAddr,
    /// Prefix length of the destination network.
    pub prefix: u8,
    /// Device index.
    pub device: u32,
    /// The route with the smaller metric is preferred.
    pub metric: u32,
    /// Source address of packets that originate here.
    pub source: IpAddr,
    /// Routing table; 254 is the main one.
    pub table: u32,
    /// Congestion control of TCP connections over it.
    pub congestion: Option<&'a str>,
}

impl Netlink {
    /// Opens a socket in this thread's network namespace.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("cannot open a netlink socket")?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    fn request(&mut self, payload: RouteNetlinkMessage, flags: u16) -> Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
            NetlinkPayload::Error(e) if e.code.is_some() => bail!("{}", e.to_io()),
            _ => Ok(()),
        }
    }

    /// Brings a device up, with a transmit queue of `queue` packets.
    pub fn bring_up(&mut self, device: u32, queue: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = device;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.push(LinkAttribute::TxQueueLen(queue));
        self.request(RouteNetlinkMessage::SetLink(message), 0).context("cannot bring a device up")
    }

    /// Adds an address to a device. It is usable at once and gets no automatic route.
    pub fn add_address(&mut self, device: u32, address: IpAddr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = device;
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        // The automatic route of an address has no congestion control and would take precedence over ours.
        let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
        message.attributes.push(AddressAttribute::Flags(flags));
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
            .with_context(|| format!("cannot add the address {address}/{prefix}"))
    }

    /// Adds a route.
    pub fn add_route(&mut self, route: &Route<'_>) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(route.to);
        message.header.destination_prefix_length = route.prefix;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        let metrics = route.congestion.map(|name| RouteMetric::CcAlgo(name.to_owned()));
        message.attributes = vec![
            RouteAttribute::Destination(route_address(route.to)),
            RouteAttribute::Oif(route.device),
            RouteAttribute::Priority(route.metric),
            RouteAttribute::PrefSource(route_address(route.source)),
            RouteAttribute::Table(route.table),
        ];
        message.attributes.extend(metrics.map(|m| RouteAttribute::Metrics(vec![m])));
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
            .with_context(|| match route.congestion {
                Some(name) => format!(
                    "cannot add a route with congestion control `{name}`; check that this kernel has it \
                     (`sysctl net.ipv4.tcp_available_congestion_control`)"
                ),
                None => format!("cannot add the route to {}/{}", route.to, route.prefix),
            })
    }

    /// Adds a rule that packets from `source` look up `table` first.
    pub fn add_rule(&mut self, source: IpAddr, table: u32) -> Result<()> {
        let mut message = RuleMessage::default();
        message.header.family = family(source);
        message.header.src_len = if source.is_ipv4() { 32 } else { 128 };
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![
            RuleAttribute::Source(source),
            RuleAttribute::Table(table),
            RuleAttribute::Priority(1_000 + table),
        ];
        self.request(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE)
            .with_context(|| format!("cannot add the rule for packets from {source}"))
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(a) => RouteAddress::Inet(a),
        IpAddr::V6(a) => RouteAddress::Inet6(a),
    }
}
