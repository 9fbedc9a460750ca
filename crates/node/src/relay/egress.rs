//! Where a relay may connect to.

use super::address_class::{self, Class};
use ipnet::IpNet;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};
use thiserror::Error;

/// The port that is never relayed to, whatever the lists say: mail would make us a spammer.
pub const SMTP: u16 = 25;

/// TCP ports `first` to `last`; reads as `443` or `8000-8999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text is no port range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no port range: write one port (`443`) or two, the lower first (`8000-8999`)")]
pub struct PortRangeError(String);

impl PortRange {
    /// The one port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;
    fn from_str(s: &str) -> Result<Self, PortRangeError> {
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|&p| digits && p > 0)
        };
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(PortRangeError(s.chars().take(32).flat_map(char::escape_debug).collect())),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Which addresses and ports a relay connects to.
///
/// Public addresses on the listed ports (80 and 443 unless told otherwise),
/// and what else `allow` names:
/// - any address of a [`Class`] needs an entry that contains it;
/// - a metadata address needs an entry of its own (/32 or /128), so that a wide
///   entry does not give the cloud's credentials away;
/// - an address that carries an IPv4 address inside (mapped, NAT64, 6to4, …)
///   needs an entry in its own form, *and* what it carries must pass as well;
/// - port 25 never passes.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    allow: Vec<IpNet>,
    ports: Vec<PortRange>,
}

/// Why an address is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Denial {
    /// Port 25.
    #[error("port {SMTP} is never relayed to")]
    Smtp,
    /// A port that is not listed.
    #[error("port {0} is not among the allowed ports")]
    Port(u16),
    /// Not a public address, and not listed.
    #[error("{0} is a {1} address and not in an allowed network")]
    Address(IpAddr, Class),
}

impl EgressPolicy {
    /// The policy with these exceptions; no `ports` means 80 and 443.
    pub fn new(allow: Vec<IpNet>, ports: Vec<PortRange>) -> Self {
        let web = || vec![PortRange::one(80), PortRange::one(443)];
        Self { allow, ports: if ports.is_empty() { web() } else { ports } }
    }

    /// Whether `port` may be connected to, on any address.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_port(&self, port: u16) -> Result<(), Denial> {
        match port {
            SMTP => Err(Denial::Smtp),
            _ if self.ports.iter().any(|r| r.contains(port)) => Ok(()),
            _ => Err(Denial::Port(port)),
        }
    }

    /// Whether this address and port may be connected to.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self, to: SocketAddr) -> Result<(), Denial> {
        self.check_port(to.port())?;
        self.check_ip(to.ip())
    }

    fn check_ip(&self, ip: IpAddr) -> Result<(), Denial> {
        if let Some(class) = address_class::classify(ip) {
            let listed = |net: &IpNet| {
                let own = net.prefix_len() == net.max_prefix_len();
                net.contains(&ip) && (own || class != Class::Metadata)
            };
            if !self.allow.iter().any(listed) {
                return Err(Denial::Address(ip, class));
            }
        }
        address_class::embedded(ip).try_for_each(|inner| self.check_ip(inner.into()))
    }

    /// Those of a name's addresses that may be connected to, in their order.
    ///
    /// Only these are dialled, never the name again: an answer that changes
    /// between check and dial (rebinding) so changes nothing.
    ///
    /// # Errors
    /// The first denial, if none of them may; no addresses give none.
    pub fn admit(&self, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, Denial> {
        let passed: Vec<_> = addresses.iter().copied().filter(|a| self.check(*a).is_ok()).collect();
        match addresses.first() {
            Some(first) if passed.is_empty() => self.check(*first).map(|()| passed),
            _ => Ok(passed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(allow: &[&str], ports: &[&str]) -> EgressPolicy {
        let nets = allow.iter().map(|t| t.parse().unwrap()).collect();
        EgressPolicy::new(nets, ports.iter().map(|t| t.parse().unwrap()).collect())
    }

    fn passes(policy: &EgressPolicy, to: &str) -> bool {
        policy.check(to.parse().unwrap()).is_ok()
    }

    #[test]
    fn by_default_public_addresses_on_the_webs_ports() {
        let default = policy(&[], &[]);
        for to in ["8.8.8.8:80", "8.8.8.8:443", "[2a00:1450::1]:443"] {
            assert!(passes(&default, to), "{to}");
        }
        for to in [
            "8.8.8.8:22",
            "8.8.8.8:25",
            "127.0.0.1:80",
            "10.0.0.1:80",
            "100.64.0.1:80",
            "169.254.169.254:80",
            "0.0.0.0:80",
            "224.0.0.1:80",
            "[::1]:80",
            "[::]:80",
            "[::ffff:8.8.8.8]:80",
            "[64:ff9b::808:808]:80",
            "[2002:808:808::1]:80",
            "[2001:0:808:808::1]:80",
            "[fd54:1::1]:80",
            "[fe80::1]:80",
        ] {
            assert!(!passes(&default, to), "{to}");
        }
    }

    #[test]
    fn listed_networks_and_ports_pass_and_port_25_never() {
        let lab = policy(&["10.0.0.0/8", "fd54::/16"], &["80", "1024-65535"]);
        for to in ["10.1.2.3:80", "10.1.2.3:8080", "[fd54:1::2]:1024", "8.8.8.8:80"] {
            assert!(passes(&lab, to), "{to}");
        }
        for to in ["10.1.2.3:443", "192.168.0.1:80", "127.0.0.1:80", "[::1]:80"] {
            assert!(!passes(&lab, to), "{to}");
        }
        let all = policy(&["0.0.0.0/0", "::/0"], &["1-65535"]);
        assert!(passes(&all, "127.0.0.1:24") && passes(&all, "[::1]:26"));
        assert_eq!(all.check("127.0.0.1:25".parse().unwrap()), Err(Denial::Smtp));
        assert!(!passes(&all, "[::1]:25"));
    }

    #[test]
    fn metadata_needs_an_entry_of_its_own() {
        let wide = policy(&["169.254.0.0/16", "0.0.0.0/0"], &[]);
        assert!(passes(&wide, "169.254.1.1:80"));
        assert!(!passes(&wide, "169.254.169.254:80") && !passes(&wide, "168.63.129.16:80"));
        assert!(passes(&policy(&["169.254.169.254/32"], &[]), "169.254.169.254:80"));
    }

    #[test]
    fn what_an_address_carries_must_pass_too() {
        let nat64 = policy(&["64:ff9b::/96"], &[]);
        assert!(passes(&nat64, "[64:ff9b::808:808]:80"));
        assert!(!passes(&nat64, "[64:ff9b::7f00:1]:80"));
        assert!(!passes(&nat64, "[64:ff9b::a9fe:a9fe]:80"));
        let mapped = policy(&["::ffff:0:0/96", "10.0.0.0/8"], &[]);
        assert!(passes(&mapped, "[::ffff:10.0.0.1]:80"));
        assert!(!passes(&mapped, "[::ffff:127.0.0.1]:80"));
        // An IPv4 entry alone does not let the other spelling in.
        assert!(!passes(&policy(&["10.0.0.0/8"], &[]), "[::ffff:10.0.0.1]:80"));
    }

    #[test]
    fn of_a_names_addresses_only_the_passing_ones_are_dialled() {
        let list = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let default = policy(&[], &[]);
        let mixed = list(&["127.0.0.1:80", "8.8.8.8:80", "[::1]:80", "[2a00::1]:80"]);
        assert_eq!(default.admit(&mixed), Ok(list(&["8.8.8.8:80", "[2a00::1]:80"])));
        let denied = default.admit(&list(&["127.0.0.1:80", "[::1]:80"]));
        let loopback = Denial::Address("127.0.0.1".parse().unwrap(), Class::Loopback);
        assert_eq!(denied, Err(loopback));
        assert_eq!(default.admit(&[]), Ok(vec![]));
    }

    #[test]
    fn port_ranges_are_read_exactly() {
        assert_eq!("443".parse(), Ok(PortRange::one(443)));
        assert_eq!("8000-8999".parse(), Ok(PortRange { first: 8000, last: 8999 }));
        for text in ["", "0", "-", "1-", "-1", "2-1", "65536", "+1", "1-2-3", "http"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    proptest! {
        /// An oracle of our own for IPv4: no address that std calls special passes.
        #[test]
        fn no_special_address_passes_by_default(bits: u32, port: u16) {
            let ip = std::net::Ipv4Addr::from(bits);
            let special = ip.is_loopback() || ip.is_private() || ip.is_link_local()
                || ip.is_multicast() || ip.is_broadcast() || ip.is_documentation()
                || ip.is_unspecified();
            let passed = policy(&[], &[]).check(SocketAddr::new(ip.into(), port)).is_ok();
            prop_assert!(!(passed && special));
            prop_assert!(!passed || port == 80 || port == 443);
        }

        /// No spelling of an IPv4 address in IPv6 passes where the address itself does not.
        #[test]
        fn no_wrapping_passes_what_is_denied_bare(bits: u32, form in 0..5usize) {
            let v4 = std::net::Ipv4Addr::from(bits);
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            let v6 = match form {
                0 => v4.to_ipv6_mapped(),
                1 => v4.to_ipv6_compatible(),
                2 => std::net::Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
                3 => std::net::Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
                _ => std::net::Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !a, !b),
            };
            let forms = ["::/96", "::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32"];
            let open = policy(&forms, &[]);
            let at = |ip: IpAddr| SocketAddr::new(ip, 80);
            // `::` and `::1` are classes of their own, which "::/96" lists too.
            prop_assume!(u128::from(v6) > 1);
            prop_assert_eq!(open.check(at(v6.into())).is_ok(), open.check(at(v4.into())).is_ok());
            prop_assert!(policy(&[], &[]).check(at(v6.into())).is_err());
        }
    }
}
