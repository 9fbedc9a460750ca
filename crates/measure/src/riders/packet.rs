//! The header fields of IP packets that the carrier reads, and which packets may ride (MGRP §2.2).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

/// The protocol numbers of TCP and UDP, whose headers begin with the two ports.
const WITH_PORTS: [u8; 2] = [6, 17];

/// Fields of the header of an IP packet (RFC 791, RFC 8200; no extension headers are followed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// The ports of TCP or UDP, source first; `None`: another protocol, or a later fragment.
    pub ports: Option<(u16, u16)>,
}

impl PacketHead {
    /// Parses a packet; `None`: the bytes are not a whole IP packet.
    pub fn read(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_v4(packet),
            6 => Self::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &[u8]) -> Option<Self> {
        let head = packet.first_chunk::<20>()?;
        let length = usize::from(head[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let is_first = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
        let payload = packet.get(..total)?.get(length.max(20)..)?;
        let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
        Some(Self {
            source: address(12).into(),
            destination: address(16).into(),
            dscp: head[1] >> 2,
            ports: if is_first { ports(head[9], payload) } else { None },
        })
    }

    fn read_v6(packet: &[u8]) -> Option<Self> {
        let head = packet.first_chunk::<40>()?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let payload = packet.get(40..40 + length)?;
        let address = |at: usize| -> Option<Ipv6Addr> {
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(&head[at..at + 16]).ok()?))
        };
        Some(Self {
            source: address(8)?.into(),
            destination: address(24)?.into(),
            dscp: (head[0] & 15) << 2 | head[1] >> 6,
            ports: ports(head[6], payload),
        })
    }
}

fn ports(protocol: u8, payload: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *payload.first_chunk::<4>()?;
    let both = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    WITH_PORTS.contains(&protocol).then_some(both)
}

/// Which packets may ride; all if both lists are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// TCP and UDP packets from or to these ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Packets with these code points, 0 to 63.
    pub dscp: Vec<u8>,
}

impl Selection {
    /// Whether this packet may ride: one of the two lists has to name it.
    pub fn matches(&self, head: &PacketHead) -> bool {
        let is_named = |port: u16| self.ports.iter().any(|range| range.contains(&port));
        (self.ports.is_empty() && self.dscp.is_empty())
            || head.ports.is_some_and(|(from, to)| is_named(from) || is_named(to))
            || self.dscp.contains(&head.dscp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An IPv6 packet with these ports.
    fn v6(protocol: u8, dscp: u8, from: u16, to: u16) -> Vec<u8> {
        let mut bytes = vec![0x60 | dscp >> 2, dscp << 6, 0, 0, 0, 8, protocol, 64];
        bytes
            .extend([Ipv6Addr::LOCALHOST, "fd00::2".parse().unwrap()].map(|a| a.octets()).concat());
        bytes.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn both_ip_families_are_parsed() {
        let head = PacketHead::read(&v6(17, 46, 5000, 53)).unwrap();
        assert_eq!((head.dscp, head.ports), (46, Some((5000, 53))));
        assert_eq!(head.destination, "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!(PacketHead::read(&v6(58, 0, 1, 2)).unwrap().ports, None);

        let mut v4 = vec![0x46, 46 << 2, 0, 28, 0, 0, 0, 0, 64, 6, 0, 0];
        v4.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1, 0, 80, 1, 0]);
        let head = PacketHead::read(&v4).unwrap();
        assert_eq!((head.dscp, head.ports), (46, Some((80, 256))));
        assert_eq!(head.source, "10.0.0.1".parse::<IpAddr>().unwrap());
        v4[7] = 1;
        assert_eq!(PacketHead::read(&v4).unwrap().ports, None, "a later fragment");
    }

    #[test]
    fn only_selected_packets_ride() {
        let takes = |selection: &Selection, packet: &[u8]| {
            selection.matches(&PacketHead::read(packet).unwrap())
        };
        let all = Selection::default();
        assert!(takes(&all, &v6(58, 0, 0, 0)));
        let some = Selection { ports: vec![80..=90], dscp: vec![46] };
        assert!(takes(&some, &v6(6, 0, 80, 5000)) && takes(&some, &v6(17, 0, 5000, 90)));
        assert!(takes(&some, &v6(58, 46, 0, 0)));
        assert!(!takes(&some, &v6(6, 0, 91, 79)) && !takes(&some, &v6(58, 45, 80, 80)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(head) = PacketHead::read(&bytes) {
                prop_assert!(head.dscp < 64);
            }
        }
    }
}
