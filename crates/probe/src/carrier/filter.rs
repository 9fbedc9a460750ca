//! Filters the packets of members that may reach this host's programs.
//!
//! Many programs listen at all addresses, including that of the carrier's device. Members reach the mesh's port there,
//! and otherwise only replies are admitted: to connections that this host's programs opened and to datagrams that they
//! sent. The settings open further ports.
//!
//! TCP needs no state: without an initial segment (SYN) there is no connection. For UDP the filter remembers where this
//! host's programs sent datagrams, and the first fragments that it admitted. Of ICMPv6 it admits errors and echoes;
//! neighbour and router discovery have no meaning on this device.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    time::Duration,
};
use thalweg_units::Time;
use thalweg_wire::mesh::{MemberPattern, PORT};

/// The ports of this host that are open to members at the device, and to which members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPorts {
    /// Members that reach these ports.
    pub from: Vec<MemberPattern>,
    /// Open TCP and UDP ports. If all ports are open, other protocols are admitted as well.
    pub open: Vec<RangeInclusive<u16>>,
}

impl Default for OpenPorts {
    fn default() -> Self {
        Self { from: vec![MemberPattern::All], open: Vec::new() }
    }
}

impl OpenPorts {
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

/// How long replies are admitted after the last datagram that this host sent. NATs keep their mappings for at least two
/// minutes (RFC 4787, section 4.3). Datagrams of the member do not count: it could keep a port open for ever.
const REPLIES: Duration = Duration::from_secs(180);

/// The most port pairs that are remembered for one member; if there are more, the oldest are forgotten.
const MOST: usize = 4_096;

/// The most fragmented packets of one member that are admitted at a time, and for how long (RFC 8200, section 4.5).
/// Members can send more at a time, but then lose the older ones.
const FRAGMENTED: (usize, Duration) = (64, Duration::from_secs(60));

/// What is admitted from one member as a consequence of earlier packets.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// The local and remote ports between which this host's programs have sent datagrams, and the time of the last one.
    ports: BTreeMap<(u16, u16), Time>,
    /// The identifications of packets whose first fragments were admitted; the newest last.
    fragmented: VecDeque<(u32, Time)>,
}

impl Replies {
    /// Records a packet sent by this host. `doors`: the open ports, if they are open to the member. What comes to these
    /// needs no record; otherwise the member could displace other records by asking from many ports.
    pub fn sent(&mut self, packet: &[u8], doors: Option<&OpenPorts>, now: Time) {
        let Some(Upper::Of(UDP, [a, b, c, d, ..])) = Upper::read(packet) else { return };
        if doors.is_some_and(|doors| doors.has(u16::from_be_bytes([*a, *b]))) {
            return;
        }
        let ports = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        let known = &mut self.ports;
        if known.len() >= MOST && !known.contains_key(&ports) {
            known.retain(|_, last| now.since(*last) < REPLIES);
            if known.len() >= MOST {
                let oldest = known.iter().min_by_key(|(_, last)| **last).map(|(ports, _)| *ports);
                oldest.map(|ports| known.remove(&ports));
            }
        }
        known.insert(ports, now);
    }

    /// Whether a packet of the member is admitted. `doors`: the open ports, if they are open to this member.
    pub fn lets_in(&mut self, packet: &[u8], doors: Option<&OpenPorts>, now: Time) -> bool {
        let Some(upper) = Upper::read(packet) else { return doors.is_some_and(OpenPorts::is_all) };
        match upper {
            // Only after the first one, which says what the packet is.
            Upper::Later(id) => doors.is_some_and(OpenPorts::is_all) || self.continues(id, now),
            Upper::First(id, protocol, bytes) => {
                let is_let_in = self.admits(protocol, bytes, doors, now);
                if is_let_in {
                    self.begins(id, now);
                }
                is_let_in
            }
            Upper::Of(protocol, bytes) => self.admits(protocol, bytes, doors, now),
        }
    }

    fn begins(&mut self, id: u32, now: Time) {
        if self.fragmented.len() >= FRAGMENTED.0 {
            self.fragmented.pop_front();
        }
        self.fragmented.push_back((id, now));
    }

    fn continues(&self, id: u32, now: Time) -> bool {
        let is_it = |(known, at): &(u32, Time)| *known == id && now.since(*at) < FRAGMENTED.1;
        self.fragmented.iter().any(is_it)
    }

    fn admits(&self, protocol: u8, bytes: &[u8], doors: Option<&OpenPorts>, now: Time) -> bool {
        let is_open = |port| doors.is_some_and(|doors| doors.has(port));
        match (protocol, bytes) {
            (TCP, bytes) => match bytes.first_chunk::<14>() {
                Some(head) if head[13] & (SYN | ACK) == SYN => {
                    let port = u16::from_be_bytes([head[2], head[3]]);
                    port == PORT || is_open(port)
                }
                head => head.is_some(),
            },
            (UDP, [a, b, c, d, ..]) => {
                let (far, own) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                is_open(own) || self.answers((own, far), now)
            }
            (ICMPV6, [kind, ..]) => matches!(kind, 1..=4 | 128 | 129),
            _ => doors.is_some_and(OpenPorts::is_all),
        }
    }

    fn answers(&self, ports: (u16, u16), now: Time) -> bool {
        self.ports.get(&ports).is_some_and(|last| now.since(*last) < REPLIES)
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
    /// The same of a first fragment, after its identification.
    First(u32, u8, &'a [u8]),
    /// The identification of a later fragment.
    Later(u32),
}

/// The most extension headers that are read; longer chains have no use (RFC 8504, section 5.3).
const HEADERS: usize = 8;

impl<'a> Upper<'a> {
    /// Finds the payload; `None` if the packet is malformed or the payload is unknown.
    fn read(packet: &'a [u8]) -> Option<Self> {
        let head = packet.first_chunk::<40>().filter(|head| head[0] >> 4 == 6)?;
        let (mut next, mut rest) = (head[6], &packet[40..]);
        let mut first = None;
        for _ in 0..HEADERS {
            let length = match next {
                // Hop-by-hop options, routing and destination options (RFC 8200, section 4).
                0 | 43 | 60 => 8 + usize::from(*rest.get(1)?) * 8,
                44 => {
                    let [_, _, a, b, id @ ..] = rest.first_chunk::<8>()?;
                    let id = u32::from_be_bytes(*id);
                    if u16::from_be_bytes([*a, *b]) >> 3 != 0 {
                        return Some(Self::Later(id));
                    }
                    first = Some(id);
                    8
                }
                _ => {
                    let whole = Self::Of(next, rest);
                    return Some(first.map_or(whole, |id| Self::First(id, next, rest)));
                }
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

    fn lets_in(packet: &[u8], doors: Option<&OpenPorts>) -> bool {
        Replies::default().lets_in(packet, doors, START)
    }

    #[test]
    fn members_open_connections_to_the_meshs_port_and_to_open_ones() {
        let none = OpenPorts::default();
        let some = OpenPorts { open: vec![22..=22, 8000..=8010], ..OpenPorts::default() };
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
        replies.sent(&udp(5000, 53), None, at(0));
        assert!(replies.lets_in(&udp(53, 5000), None, at(179)));
        assert!(
            !replies.lets_in(&udp(54, 5000), None, at(1))
                && !replies.lets_in(&udp(53, 5001), None, at(1))
        );
        assert!(!replies.lets_in(&udp(53, 5000), None, at(181)), "what came does not count");
        replies.sent(&udp(5000, 53), None, at(200));
        assert!(replies.lets_in(&udp(53, 5000), None, at(379)));
        let open = OpenPorts { open: vec![5001..=5001], ..OpenPorts::default() };
        assert!(replies.lets_in(&udp(1, 5001), Some(&open), at(600)));
        for port in 0..=MOST as u16 {
            replies.sent(&udp(5001, port), Some(&open), at(379));
        }
        assert!(replies.lets_in(&udp(53, 5000), None, at(379)), "nothing displaces it");
        for port in 0..=MOST as u16 {
            replies.sent(&udp(port, 9), None, at(700));
        }
        assert_eq!(replies.ports.len(), MOST);
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
        // A first fragment that is too short to identify.
        assert!(!lets_in(&packet(44, &[TCP, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 22]), None));
        let chain: Vec<u8> = (0..9).flat_map(|_| [60, 0, 0, 0, 0, 0, 0, 0]).collect();
        assert!(!lets_in(&packet(60, &chain), None));
    }

    #[test]
    fn later_fragments_are_admitted_after_their_first_one() {
        let at = |s: u64| START + Duration::from_secs(s);
        let first = |id: u8, to: u16| {
            packet(44, &[&[TCP, 0, 0, 1, 0, 0, 0, id][..], &tcp(1, to, SYN)[40..]].concat())
        };
        let later = |id: u8| packet(44, &[TCP, 0, 0, 8, 0, 0, 0, id, 1, 2, 3]);
        let mut replies = Replies::default();
        assert!(!replies.lets_in(&later(1), None, at(0)), "without a first one");
        assert!(replies.lets_in(&later(1), Some(&OpenPorts::all()), at(0)));
        assert!(replies.lets_in(&first(1, PORT), None, at(0)));
        assert!(
            replies.lets_in(&later(1), None, at(59)) && replies.lets_in(&later(1), None, at(59))
        );
        assert!(!replies.lets_in(&later(2), None, at(59)));
        assert!(!replies.lets_in(&first(2, 22), None, at(59)));
        assert!(!replies.lets_in(&later(2), None, at(59)), "of a first one that was refused");
        assert!(!replies.lets_in(&later(1), None, at(60)));
        for id in 0..=FRAGMENTED.0 as u8 {
            assert!(replies.lets_in(&first(id, PORT), None, at(60)));
        }
        assert!(
            !replies.lets_in(&later(0), None, at(60)) && replies.lets_in(&later(1), None, at(60))
        );
        assert_eq!(replies.fragmented.len(), FRAGMENTED.0);
    }

    #[test]
    fn icmpv6_echoes_and_errors_are_admitted() {
        for (kind, passes) in
            [(1, true), (2, true), (128, true), (129, true), (134, false), (135, false)]
        {
            assert_eq!(lets_in(&packet(ICMPV6, &[kind, 0, 0, 0]), None), passes, "{kind}");
        }
        assert!(!lets_in(&packet(132, &[0; 20]), Some(&OpenPorts::default())));
        assert!(lets_in(&packet(132, &[0; 20]), Some(&OpenPorts::all())));
        assert!(!lets_in(&[0x45; 40], Some(&OpenPorts::default())), "IPv4");
    }
}
