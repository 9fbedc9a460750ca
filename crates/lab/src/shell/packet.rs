//! Parses the packet headers that the emulator needs, and corrupts packets.

use super::engine::Packet;
use std::net::IpAddr;

/// The header fields that the emulator uses.
#[derive(Debug, PartialEq)]
pub struct PacketHeader {
    pub destination: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port; 0 if there is none.
    pub source_port: u16,
    /// Destination port; 0 if there is none.
    pub port: u16,
}

impl PacketHeader {
    /// Parses an IPv4 or IPv6 header and, if they follow, the ports. `None` for any other packet.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (destination, protocol, ports) = match bytes.first()? >> 4 {
            4 => {
                let address: [u8; 4] = bytes.get(16..20)?.try_into().ok()?;
                (IpAddr::from(address), bytes[9], usize::from(bytes[0] & 15) * 4)
            }
            6 => {
                let address: [u8; 16] = bytes.get(24..40)?.try_into().ok()?;
                (IpAddr::from(address), bytes[6], 40)
            }
            _ => return None,
        };
        let port =
            |at: usize| bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        Some(Self { destination, protocol, source_port: port(ports), port: port(ports + 2) })
    }
}

/// Returns a copy of the packet in which one bit after the IP header is flipped; `random` chooses the bit.
pub fn flip_a_bit(packet: &[u8], random: u64) -> Packet {
    let mut copy = packet.to_vec();
    let header = if packet[0] >> 4 == 6 { 40 } else { usize::from(packet[0] & 15) * 4 };
    let bits = copy.len().saturating_sub(header) as u64 * 8;
    if let Some(bit) = random.checked_rem(bits) {
        copy[header + (bit / 8) as usize] ^= 1 << (bit % 8);
    }
    copy.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_header_is_read() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&[10, 1, 0, 7]);
        packet[20..24].copy_from_slice(&[0x12, 0x34, 0, 53]);
        let header = PacketHeader::parse(&packet).unwrap();
        assert_eq!(header.destination, "10.1.0.7".parse::<IpAddr>().unwrap());
        assert_eq!((header.protocol, header.source_port, header.port), (17, 0x1234, 53));
        assert_eq!(PacketHeader::parse(&packet[..10]), None);
        assert_eq!(PacketHeader::parse(&[]), None);
    }

    #[test]
    fn corruption_flips_one_bit_past_the_header() {
        let packet = [0x45_u8; 60];
        for random in [0, 319, 320, u64::MAX] {
            let damaged = flip_a_bit(&packet, random);
            let flipped: u32 = damaged.iter().zip(packet).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(flipped, 1);
            assert_eq!(damaged[..20], packet[..20]);
        }
    }
}
