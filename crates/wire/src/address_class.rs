//! Classes of IP addresses that relays and oracles treat differently from public ones.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The SMTP port. Relays never connect to it, whatever their lists allow, so that they cannot be used to send spam.
pub const SMTP: u16 = 25;

/// A class of addresses other than those of ordinary public hosts.
///
/// Sources: the IANA special-purpose address registries (RFC 6890) and Smokescreen's classes; the documentation of the
/// cloud providers for `Metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 0.0.0.0/8 and `::`; Linux connects them to the host itself.
    Unspecified,
    Loopback,
    /// RFC 1918; fc00::/7; the deprecated site-local fec0::/10.
    Private,
    /// 100.64.0.0/10 (RFC 6598).
    CarrierNat,
    /// 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// Addresses at which clouds serve credentials to their machines.
    Metadata,
    /// 224.0.0.0/4, ff00::/8, and broadcast.
    Multicast,
    /// Documentation, benchmarking, protocol assignments, discard.
    Special,
    /// Not allocated: 240.0.0.0/4, and IPv6 outside 2000::/3.
    Reserved,
    /// ::ffff:0:0/96; the kernel connects to the embedded IPv4 address.
    Mapped,
    /// ::/96, deprecated (RFC 4291 §2.5.5.1).
    Compatible,
    /// 64:ff9b::/96, 64:ff9b:1::/48; a translator connects to the embedded address.
    Nat64,
    /// 2002::/16 (RFC 3056).
    SixToFour,
    /// 2001::/32 (RFC 4380).
    Teredo,
    /// Interface identifiers `0:5efe` and `200:5efe` (RFC 5214).
    Isatap,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::CarrierNat => "carrier NAT",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Multicast => "multicast",
            Self::Special => "special-purpose",
            Self::Reserved => "reserved",
            Self::Mapped => "IPv4-mapped",
            Self::Compatible => "IPv4-compatible",
            Self::Nat64 => "NAT64",
            Self::SixToFour => "6to4",
            Self::Teredo => "Teredo",
            Self::Isatap => "ISATAP",
        })
    }
}

/// IPv4 addresses of metadata services: AWS/GCP/Azure/OpenStack; ECS tasks; EKS pods; Azure's wire server; Alibaba;
/// Oracle.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// IPv6 addresses of metadata services: AWS, EKS pods, GCP, Scaleway.
const METADATA_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// The class of an address; `None` for an ordinary public one.
pub fn classify(ip: IpAddr) -> Option<Class> {
    match ip {
        IpAddr::V4(ip) => classify_v4(ip),
        IpAddr::V6(ip) => classify_v6(ip),
    }
}

fn classify_v4(ip: Ipv4Addr) -> Option<Class> {
    if METADATA_V4.contains(&ip) {
        return Some(Class::Metadata);
    }
    Some(match ip.octets() {
        [0, ..] => Class::Unspecified,
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private,
        [100, 64..=127, ..] => Class::CarrierNat,
        [169, 254, ..] => Class::LinkLocal,
        [224..=239, ..] | [255, 255, 255, 255] => Class::Multicast,
        [240..=255, ..] => Class::Reserved,
        // Protocol assignments, TEST-NET-1 to 3, benchmarking, 6to4 anycast.
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Special,
        [198, 18..=19, ..] | [192, 88, 99, _] => Class::Special,
        _ => return None,
    })
}

fn classify_v6(ip: Ipv6Addr) -> Option<Class> {
    if METADATA_V6.contains(&ip) {
        return Some(Class::Metadata);
    }
    Some(match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0, 0, 0, 0, 0, 0xffff, ..] => Class::Mapped,
        [0, 0, 0, 0, 0, 0, ..] => Class::Compatible,
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 1, ..] => Class::Nat64,
        [0x2002, ..] => Class::SixToFour,
        [0x2001, 0, ..] => Class::Teredo,
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        // Protocol assignments 2001::/23, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Special,
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, ..] => Class::Isatap,
        [0x2000..=0x3fff, ..] => return None,
        _ => Class::Reserved,
    })
}

/// The IPv4 addresses embedded in `ip`; none for classes without embedded addresses.
///
/// A connection to `ip` may end at these addresses. A Teredo address has two: the server's, and the client's, which is
/// inverted. For the local NAT64 prefix 64:ff9b:1::/48 the last 32 bits are taken, as in its usual /96 parts
/// (RFC 8215).
pub fn embedded(ip: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let (first, second) = match (classify(ip), ip) {
        (Some(class), IpAddr::V6(ip)) => embedded_v6(class, ip.octets()),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

fn embedded_v6(class: Class, b: [u8; 16]) -> (Option<Ipv4Addr>, Option<Ipv4Addr>) {
    let last = Ipv4Addr::new(b[12], b[13], b[14], b[15]);
    match class {
        Class::Mapped | Class::Compatible | Class::Nat64 | Class::Isatap => (Some(last), None),
        Class::SixToFour => (Some(Ipv4Addr::new(b[2], b[3], b[4], b[5])), None),
        Class::Teredo => {
            (Some(Ipv4Addr::new(b[4], b[5], b[6], b[7])), Some(Ipv4Addr::from(!u32::from(last))))
        }
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<Class> {
        classify(text.parse().unwrap())
    }

    #[test]
    fn each_class_covers_exactly_its_range() {
        use Class::*;
        for (first, last, expected) in [
            ("0.0.0.0", "0.255.255.255", Unspecified),
            ("10.0.0.0", "10.255.255.255", Private),
            ("100.64.0.0", "100.127.255.255", CarrierNat),
            ("127.0.0.0", "127.255.255.255", Loopback),
            ("169.254.0.0", "169.254.255.255", LinkLocal),
            ("172.16.0.0", "172.31.255.255", Private),
            ("192.0.0.0", "192.0.0.255", Special),
            ("192.0.2.0", "192.0.2.255", Special),
            ("192.88.99.0", "192.88.99.255", Special),
            ("192.168.0.0", "192.168.255.255", Private),
            ("198.18.0.0", "198.19.255.255", Special),
            ("198.51.100.0", "198.51.100.255", Special),
            ("203.0.113.0", "203.0.113.255", Special),
            ("64:ff9b::", "64:ff9b::ffff:ffff", Nat64),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Nat64),
            ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", Teredo),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", Special),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", SixToFour),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", Special),
        ] {
            assert_eq!(class(first), Some(expected), "{first}");
            assert_eq!(class(last), Some(expected), "{last}");
            let (before, after) = neighbours(first.parse().unwrap(), last.parse().unwrap());
            assert_ne!(before.and_then(classify), Some(expected), "before {first}");
            assert_ne!(classify(after), Some(expected), "after {last}");
        }
    }

    fn neighbours(first: IpAddr, last: IpAddr) -> (Option<IpAddr>, IpAddr) {
        match (first, last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (
                u32::from(a).checked_sub(1).map(|n| Ipv4Addr::from(n).into()),
                Ipv4Addr::from(u32::from(b) + 1).into(),
            ),
            (IpAddr::V6(a), IpAddr::V6(b)) => (
                u128::from(a).checked_sub(1).map(|n| Ipv6Addr::from(n).into()),
                Ipv6Addr::from(u128::from(b) + 1).into(),
            ),
            _ => unreachable!(),
        }
    }

    #[test]
    fn single_addresses_have_their_class() {
        use Class::*;
        for (text, expected) in [
            ("255.255.255.255", Multicast),
            ("224.0.0.1", Multicast),
            ("239.255.255.255", Multicast),
            ("240.0.0.1", Reserved),
            ("169.254.169.254", Metadata),
            ("168.63.129.16", Metadata),
            ("100.100.100.200", Metadata),
            ("fd00:ec2::254", Metadata),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Compatible),
            ("::127.0.0.1", Compatible),
            ("::ffff:8.8.8.8", Mapped),
            ("fd54:1::1", Private),
            ("fc00::", Private),
            ("fec0::1", Private),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("ff02::1", Multicast),
            ("100::1", Reserved),
            ("5f00::1", Reserved),
            ("4000::1", Reserved),
            ("2001:1ff::1", Special),
            ("2a00:1450::5efe:7f00:1", Isatap),
            ("2a00:1450::200:5efe:7f00:1", Isatap),
        ] {
            assert_eq!(class(text), Some(expected), "{text}");
        }
        for text in
            ["8.8.8.8", "1.1.1.1", "172.32.0.1", "2a00:1450::1", "2001:200::1", "3fff:1000::"]
        {
            assert_eq!(class(text), None, "{text}");
        }
    }

    #[test]
    fn embedded_addresses_are_found() {
        let inside = |text: &str| {
            embedded(text.parse().unwrap()).map(|ip| ip.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(inside("::ffff:10.1.2.3"), ["10.1.2.3"]);
        assert_eq!(inside("::10.1.2.3"), ["10.1.2.3"]);
        assert_eq!(inside("64:ff9b::7f00:1"), ["127.0.0.1"]);
        assert_eq!(inside("64:ff9b:1::a9fe:a9fe"), ["169.254.169.254"]);
        assert_eq!(inside("2002:0a01:0203::1"), ["10.1.2.3"]);
        // RFC 4380 §4: the client's address is inverted.
        assert_eq!(inside("2001:0:4136:e378:8000:63bf:3fff:fdd2"), ["65.54.227.120", "192.0.2.45"]);
        assert_eq!(inside("2a00:1450::5efe:7f00:1"), ["127.0.0.1"]);
        assert!(inside("2a00:1450::1").is_empty() && inside("10.1.2.3").is_empty());
    }
}
