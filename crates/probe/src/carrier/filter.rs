//! Filters the packets of members that may reach this host's programs.
//!
//! Many programs listen at all addresses, including that of the carrier's device. Members reach the mesh's port there,
//! and otherwise only replies are admitted: to connections that this host's programs opened and to datagrams that they
//! sent. The settings open further ports.
//!
//! TCP needs no state: without an initial segment (SYN) there is no connection. For UDP the filter remembers where this
//! host's programs sent datagrams. Of ICMPv6 it admits errors and echoes; neighbour and router discovery have no
//! meaning on this device.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};
use thalweg_units::Time;
use thalweg_wire::mesh::{MemberPattern, PORT};

/// The ports of this host that are open to members at the device, and to which members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doors {
    /// Members that reach these ports.
    pub from: Vec<MemberPattern>,
    /// Open TCP and UDP ports. If all ports are open, other protocols are admitted as well.
    pub open: Vec<RangeInclusive<u16>>,
}

impl Default for Doors {
    fn default() -> Self {
        Self { from: vec![MemberPattern::All], open: Vec::new() }
    }
}

impl Doors {
    /// Opens everything to all members.
    pub fn all() -> Self {
        Self { open: vec![1..=u16::MAX], ..Self::default() }
    }

    fn has(&self, port: u16) -> bool {
        self.open.iter().any(|range| range.contains(&port))
    }

    fn is_all(&self) -> bool {
        self.open.iter().any(|range| *range.start() <= 1 && *range.end() == u16::MAX)
    }
}

/// How long replies are admitted after the last datagram in either direction. NATs keep their mappings for at least two
/// minutes (RFC 4787, section 4.3).
const REPLIES: Duration = Duration::from_secs(180);

/// The most port pairs that are remembered for one member; if there are more, the oldest are forgotten.
const MOST: usize = 4_096;

/// The local and remote ports between which this host's programs have sent datagrams to a member, with the time of the
/// last datagram.
#[derive(Debug, Default)]
pub(super) struct Replies(BTreeMap<(u16, u16), Time>);

impl Replies {
    /// Records a packet sent by this host.
    pub fn sent(&mut self, packet: &[u8], now: Time) {
        let Some(Upper::Of(UDP, [a, b, c, d, ..])) = Upper::read(packet) else { return };
        let ports = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        if self.0.len() >= MOST && !self.0.contains_key(&ports) {
            self.0.retain(|_, last| now.since(*last) < REPLIES);
            if self.0.len() >= MOST {
                let oldest = self.0.iter().min_by_key(|(_, last)| **last).map(|(ports, _)| *ports);
                oldest.map(|ports| self.0.remove(&ports));
            }
        }
        self.0.insert(ports, now);
    }

    /// Whether a packet of the member is admitted. `doors`: the open ports, if they are open to this member.
    pub fn lets_in(&mut self, packet: &[u8], doors: Option<&Doors>, now: Time) -> bool {
        let is_open = |port| doors.is_some_and(|doors| doors.has(port));
        match Upper::read(packet) {
            // A later fragment is useless without the first one, which was checked.
            Some(Upper::Later) => true,
            Some(Upper::Of(TCP, bytes)) => match bytes.first_chunk::<14>() {
                Some(head) if head[13] & (SYN | ACK) == SYN => {
                    let port = u16::from_be_bytes([head[2], head[3]]);
                    port == PORT || is_open(port)
                }
                head => head.is_some(),
            },
            Some(Upper::Of(UDP, [a, b, c, d, ..])) => {
                let (far, own) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                is_open(own) || self.answers((own, far), now)
            }
            Some(Upper::Of(ICMPV6, [kind, ..])) => matches!(kind, 1..=4 | 128 | 129),
            _ => doors.is_some_and(Doors::is_all),
        }
    }

    fn answers(&mut self, ports: (u16, u16), now: Time) -> bool {
        let Some(last) = self.0.get_mut(&ports) else { return false };
        let is_young = now.since(*last) < REPLIES;
        if is_young {
            *last = now;
        }
        is_young
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Flags of a TCP segment (RFC 9293, section 3.1).
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The payload of an IPv6 packet after its extension headers.
enum Upper<'a> {
    /// The protocol number and the payload.
    Of(u8, &'a [u8]),
    /// A fragment that is not the first.
    Later,
}

/// The most extension headers that are read; longer chains have no use (RFC 8504, section 5.3).
const HEADERS: usize = 8;

impl<'a> Upper<'a> {
    /// Finds the payload; `None` if the packet is malformed or the payload is unknown.
    fn read(packet: &'a [u8]) -> Option<Self> {
        let head = packet.first_chunk::<40>().filter(|head| head[0] >> 4 == 6)?;
        let (mut next, mut rest) = (head[6], &packet[40..]);
        for _ in 0..HEADERS {
            let length = match next {
                // Hop-by-hop options, routing and destination options (RFC 8200, section 4).
                0 | 43 | 60 => 8 + usize::from(*rest.get(1)?) * 8,
                44 if u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]) >> 3 != 0 => {
                    return Some(Self::Later);
                }
                44 => 8,
                _ => return Some(Self::Of(next, rest)),
            };
            next = *rest.first()?;
            rest = rest.get(length..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::ZERO;

    fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
        bytes.extend([0; 32]);
        bytes.extend(payload);
        bytes
    }

    fn tcp(from: u16, to: u16, flags: u8) -> Vec<u8> {
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        packet(TCP, &[&ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0]].concat())
    }

    fn udp(from: u16, to: u16) -> Vec<u8> {
        packet(UDP, &[&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 8, 0, 0]].concat())
    }

    fn lets_in(packet: &[u8], doors: Option<&Doors>) -> bool {
        Replies::default().lets_in(packet, doors, START)
    }

    #[test]
    fn members_open_connections_to_the_meshs_port_and_to_open_ones() {
        let none = Doors::default();
        let some = Doors { open: vec![22..=22, 8000..=8010], ..Doors::default() };
        for flags in [SYN, SYN | 0x08, SYN | 0xc0] {
            assert!(lets_in(&tcp(40_000, PORT, flags), None), "{flags:x}");
            assert!(!lets_in(&tcp(40_000, 22, flags), Some(&none)), "{flags:x}");
            assert!(lets_in(&tcp(40_000, 22, flags), Some(&some)), "{flags:x}");
            assert!(!lets_in(&tcp(40_000, 23, flags), Some(&some)), "{flags:x}");
            // The source port has no effect.
            assert!(!lets_in(&tcp(PORT, 23, flags), Some(&some)), "{flags:x}");
        }
        assert!(lets_in(&tcp(22, 40_000, SYN | ACK), None), "an answer");
        assert!(lets_in(&tcp(22, 40_000, ACK), None) && lets_in(&tcp(22, 40_000, 4), None));
        assert!(!lets_in(&packet(TCP, &[0; 13]), Some(&some)), "a head that is cut");
    }

    #[test]
    fn datagrams_are_admitted_as_replies_for_a_while() {
        let mut replies = Replies::default();
        let at = |s: u64| START + Duration::from_secs(s);
        assert!(!replies.lets_in(&udp(53, 5000), None, at(0)));
        replies.sent(&udp(5000, 53), at(0));
        assert!(replies.lets_in(&udp(53, 5000), None, at(179)));
        assert!(
            !replies.lets_in(&udp(54, 5000), None, at(1))
                && !replies.lets_in(&udp(53, 5001), None, at(1))
        );
        assert!(replies.lets_in(&udp(53, 5000), None, at(300)), "what came lately counts");
        assert!(!replies.lets_in(&udp(53, 5000), None, at(600)));
        let open = Doors { open: vec![5001..=5001], ..Doors::default() };
        assert!(replies.lets_in(&udp(1, 5001), Some(&open), at(600)));
        for port in 0..=MOST as u16 {
            replies.sent(&udp(port, 9), at(700));
        }
        assert_eq!(replies.0.len(), MOST);
    }

    #[test]
    fn extension_headers_do_not_hide_the_protocol() {
        let hidden = |next: u8, header: [u8; 8], inner: &[u8]| {
            packet(next, &[&header[..], &inner[40..]].concat())
        };
        let (opening, allowed) = (tcp(1, 22, SYN), tcp(1, PORT, SYN));
        for next in [0, 43, 60, 44] {
            assert!(!lets_in(&hidden(next, [TCP, 0, 0, 1, 0, 0, 0, 0], &opening), None), "{next}");
            assert!(lets_in(&hidden(next, [TCP, 0, 0, 1, 0, 0, 0, 0], &allowed), None), "{next}");
        }
        // A first fragment that is too short to identify, and a later one.
        assert!(!lets_in(&packet(44, &[TCP, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 22]), None));
        assert!(lets_in(&packet(44, &[TCP, 0, 0, 8, 0, 0, 0, 0, 1, 2, 3]), None));
        let chain: Vec<u8> = (0..9).flat_map(|_| [60, 0, 0, 0, 0, 0, 0, 0]).collect();
        assert!(!lets_in(&packet(60, &chain), None));
    }

    #[test]
    fn icmpv6_echoes_and_errors_are_admitted() {
        for (kind, passes) in
            [(1, true), (2, true), (128, true), (129, true), (134, false), (135, false)]
        {
            assert_eq!(lets_in(&packet(ICMPV6, &[kind, 0, 0, 0]), None), passes, "{kind}");
        }
        assert!(!lets_in(&packet(132, &[0; 20]), Some(&Doors::default())));
        assert!(lets_in(&packet(132, &[0; 20]), Some(&Doors::all())));
        assert!(!lets_in(&[0x45; 40], Some(&Doors::default())), "IPv4");
    }
}
