//! Draws test cases from a seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// splitmix64 (Steele, Lea, Flood 2014), good enough to draw cases.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub(super) fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}

/// IPv4 addresses inside and next to all special ranges.
const V4: [[u8; 4]; 26] = [
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [8, 8, 8, 8],
    [9, 255, 255, 255],
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 0, 0, 3],
    [10, 66, 1, 1],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [127, 0, 0, 1],
    [127, 255, 255, 254],
    [168, 63, 129, 16],
    [169, 254, 1, 1],
    [169, 254, 169, 254],
    [172, 16, 0, 1],
    [172, 32, 0, 1],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 168, 0, 1],
    [198, 18, 0, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [240, 0, 0, 1],
    [255, 255, 255, 255],
    [11, 0, 0, 0],
];

/// An address, often one of a special range.
pub(super) fn ip(chance: &mut Chance) -> IpAddr {
    let v4 = match chance.below(3) {
        0 => Ipv4Addr::from(chance.next() as u32),
        _ => Ipv4Addr::from(chance.pick(&V4)),
    };
    let bits = u32::from(v4);
    let [a, b] = [(bits >> 16) as u16, bits as u16];
    let v6 = match chance.below(12) {
        0..=3 => return v4.into(),
        4 => v4.to_ipv6_mapped(),
        5 => v4.to_ipv6_compatible(),
        6 => Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
        7 => Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, a, b),
        8 => Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
        9 => Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !a, !b),
        10 => Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0x5efe, a, b),
        _ => {
            let first = chance.pick(&[0x2a00, 0xfd00, 0xfe80, 0xff02, 0, 0x2001, 0x4000, 0xfd54]);
            let low = u128::from(chance.next()) << 64 | u128::from(chance.next());
            Ipv6Addr::from(low >> 16 | u128::from(first as u16) << 112)
        }
    };
    v6.into()
}

/// A port, often a significant one.
pub(super) fn port(chance: &mut Chance) -> u16 {
    match chance.below(3) {
        0 => chance.next() as u16,
        _ => chance.pick(&[25, 80, 443, 7373, 9000, 22, 6379]),
    }
}
