//! Identifies the other end of a connection: a source in the network, or a user of this host.

use std::net::{IpAddr, Ipv6Addr};
use tokio::net::UnixStream;

/// The address that identifies one source: an IPv4 address, or an IPv6 /64, which one host is assigned.
pub fn source_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
    }
}

/// Whether the other end belongs to user `me` or to root.
pub fn is_owner(stream: &UnixStream, me: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| [0, me].contains(&peer.uid()))
}
