//! The egress policy: the addresses and ports that a relay may connect to.

use super::{
    address_class::{self, Class},
    denial::Denial,
    own_addresses::OwnAddresses,
};
use ipnet::IpNet;
use std::{
    io,
    net::{IpAddr, SocketAddr},
};
use thalweg_wire::mesh::PortRange;
use tokio::net::TcpStream;

pub use thalweg_wire::address_class::SMTP;

/// Decides which addresses and ports a relay connects to.
///
/// Public addresses on the listed ports (by default 80 and 443) are allowed, and the networks in `allow`, with these
/// rules:
/// - an address in `deny` never passes, even if `allow` contains it;
/// - an address of a special [`Class`] needs an entry in `allow` that contains it;
/// - a metadata address and the host's own addresses each need an entry of their own (/32 or /128), so that a wide
///   entry gives access neither to the cloud's credentials nor to services of this host that only its local network
///   should reach;
/// - the node's own ports never pass, on any address by which they can be reached;
/// - an address that embeds an IPv4 address (mapped, NAT64, 6to4, …) needs an entry in its own form, *and* the embedded
///   address must pass as well;
/// - port 25 never passes.
#[derive(Clone, Debug)]
pub struct EgressPolicy {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    ports: Vec<PortRange>,
    own: Option<OwnAddresses>,
    admin: Vec<SocketAddr>,
}

impl EgressPolicy {
    /// Creates a policy with these allowed networks and ports; no `ports` means 80 and 443.
    pub fn new(allow: Vec<IpNet>, ports: Vec<PortRange>) -> Self {
        let web = || vec![PortRange::one(80), PortRange::one(443)];
        let ports = if ports.is_empty() { web() } else { ports };
        Self { allow, deny: Vec::new(), ports, own: None, admin: Vec::new() }
    }

    /// Adds networks that are never connected to, even if they are allowed.
    #[must_use]
    pub fn deny(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.deny.extend(nets);
        self
    }

    /// Sets the host's own addresses, unless they are set already.
    #[must_use]
    pub fn with_own(mut self, own: &OwnAddresses) -> Self {
        self.own.get_or_insert_with(|| own.clone());
        self
    }

    /// Sets this host's own addresses, unless they are set already, and adds addresses that this node listens on.
    ///
    /// # Errors
    /// If the kernel does not list the addresses.
    pub fn deny_this_host(self, listens: impl IntoIterator<Item = SocketAddr>) -> io::Result<Self> {
        let policy = match self.own {
            Some(_) => self,
            None => self.with_own(&OwnAddresses::of_this_host()?),
        };
        Ok(policy.with_admin(listens))
    }

    /// Adds addresses that this node listens on, e.g. `0.0.0.0:7373` or `127.0.0.1:9100`, which are never connected to.
    #[must_use]
    pub fn with_admin(mut self, listens: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.admin.extend(listens);
        self
    }

    /// Checks that `port` may be connected to on some address.
    ///
    /// # Errors
    /// The reason why it is denied.
    pub fn check_port(&self, port: u16) -> Result<(), Denial> {
        match port {
            SMTP => Err(Denial::Smtp),
            _ if self.ports.iter().any(|r| r.contains(port)) => Ok(()),
            _ => Err(Denial::Port(port)),
        }
    }

    /// Checks that this address and port may be connected to.
    ///
    /// # Errors
    /// The reason why it is denied.
    pub fn check(&self, to: SocketAddr) -> Result<(), Denial> {
        self.check_always_denied(to)?;
        self.check_port(to.port())?;
        self.check_ip(to.ip())
    }

    /// Checks the rules that no entry of `allow` overrides: port 25, the deny list, and this node's own ports.
    ///
    /// # Errors
    /// The reason why it is denied.
    pub fn check_always_denied(&self, to: SocketAddr) -> Result<(), Denial> {
        if to.port() == SMTP {
            return Err(Denial::Smtp);
        }
        with_embedded(to.ip()).try_for_each(|ip| {
            if let Some(net) = self.deny.iter().find(|net| net.contains(&ip)) {
                return Err(Denial::Listed(ip, *net));
            }
            let to = SocketAddr::new(ip, to.port());
            if self.is_own_listener(to) { Err(Denial::Admin(to)) } else { Ok(()) }
        })
    }

    /// Whether this address reaches one of the node's own listeners.
    fn is_own_listener(&self, to: SocketAddr) -> bool {
        // Linux connects the unspecified address to the host itself.
        let any = || to.ip().is_loopback() || to.ip().is_unspecified() || self.is_own(to.ip());
        self.admin.iter().filter(|admin| admin.port() == to.port()).any(|admin| {
            match admin.ip().to_canonical() {
                ip if ip.is_unspecified() => any(),
                ip if ip.is_loopback() => ip == to.ip() || to.ip().is_unspecified(),
                ip => ip == to.ip(),
            }
        })
    }

    /// Whether this is an address of one of this host's interfaces.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.as_ref().is_some_and(|own| own.contains(ip))
    }

    /// Checks that an established connection does not end at this host itself.
    ///
    /// A host may answer for addresses that no interface has (a `local` route). Both ends then have the same address,
    /// and no byte has been sent yet.
    ///
    /// # Errors
    /// [`Denial::Own`].
    pub fn check_connected(&self, tcp: &TcpStream) -> Result<(), Denial> {
        // A socket without addresses is broken, which its first use will report.
        let (Ok(local), Ok(peer)) = (tcp.local_addr(), tcp.peer_addr()) else { return Ok(()) };
        let ip = peer.ip().to_canonical();
        let known = ip.is_loopback() || self.allows_alone(ip);
        if local.ip() == peer.ip() && !known { Err(Denial::Own(ip)) } else { Ok(()) }
    }

    /// Whether `allow` has an entry for exactly this address.
    fn allows_alone(&self, ip: IpAddr) -> bool {
        let alone = |net: &&IpNet| net.prefix_len() == net.max_prefix_len();
        self.allow.iter().filter(alone).any(|net| net.contains(&ip))
    }

    fn allows(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|net| net.contains(&ip))
    }

    /// Checks that this address may be connected to on some port.
    ///
    /// # Errors
    /// The reason why it is denied.
    pub fn check_ip(&self, ip: IpAddr) -> Result<(), Denial> {
        if self.is_own(ip) && !self.allows_alone(ip) {
            return Err(Denial::Own(ip));
        }
        if let Some(class) = address_class::classify(ip)
            && !self.allows_alone(ip)
            && (class == Class::Metadata || !self.allows(ip))
        {
            return Err(Denial::Address(ip, class));
        }
        address_class::embedded(ip).try_for_each(|inner| self.check_ip(inner.into()))
    }

    /// Returns the addresses of a name that may be connected to, in their order.
    ///
    /// Only these are dialled, and the name is not resolved again, so an answer that changes between check and dial
    /// (rebinding) has no effect.
    ///
    /// # Errors
    /// The denial of the first address, if none of them is allowed. Without addresses the result is empty.
    pub fn admit(&self, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, Denial> {
        let passed: Vec<_> = addresses.iter().copied().filter(|a| self.check(*a).is_ok()).collect();
        match addresses.first() {
            Some(first) if passed.is_empty() => self.check(*first).map(|()| passed),
            _ => Ok(passed),
        }
    }
}

/// The address, and the addresses embedded in it.
pub fn with_embedded(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    std::iter::once(ip).chain(address_class::embedded(ip).map(IpAddr::from))
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
    fn by_default_only_public_addresses_on_web_ports_pass() {
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
    fn embedded_addresses_must_pass_too() {
        let nat64 = policy(&["64:ff9b::/96"], &[]);
        assert!(passes(&nat64, "[64:ff9b::808:808]:80"));
        assert!(!passes(&nat64, "[64:ff9b::7f00:1]:80"));
        assert!(!passes(&nat64, "[64:ff9b::a9fe:a9fe]:80"));
        let mapped = policy(&["::ffff:0:0/96", "10.0.0.0/8"], &[]);
        assert!(passes(&mapped, "[::ffff:10.0.0.1]:80"));
        assert!(!passes(&mapped, "[::ffff:127.0.0.1]:80"));
        // An IPv4 entry alone does not allow the mapped form.
        assert!(!passes(&policy(&["10.0.0.0/8"], &[]), "[::ffff:10.0.0.1]:80"));
    }

    #[test]
    fn only_allowed_addresses_of_a_name_are_dialled() {
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
    fn deny_overrides_allow_in_every_form_of_an_address() {
        let net = |t: &str| t.parse::<IpNet>().unwrap();
        let forms = ["0.0.0.0/0", "64:ff9b::/96", "::ffff:0:0/96"];
        let policy = policy(&forms, &[]).deny([net("10.9.0.0/16"), net("8.8.8.0/24")]);
        assert!(passes(&policy, "10.1.0.1:80") && passes(&policy, "[64:ff9b::a01:1]:80"));
        for to in ["10.9.1.1:80", "8.8.8.8:80", "[64:ff9b::a09:1]:80", "[::ffff:10.9.0.1]:80"] {
            let denied = policy.check(to.parse().unwrap()).unwrap_err();
            assert!(matches!(denied, Denial::Listed(..)), "{to}: {denied}");
        }
    }

    #[test]
    fn own_addresses_need_an_entry_of_their_own_and_own_ports_never_pass() {
        let ip = |t: &str| t.parse::<IpAddr>().unwrap();
        let own = OwnAddresses::fixed([ip("10.0.0.1"), ip("203.0.112.7"), ip("2a00::7")]);
        let listens = ["0.0.0.0:7373", "127.0.0.1:443"].map(|t| t.parse().unwrap());
        let with = |allow: &[&str], ports: &[&str]| {
            policy(allow, ports).with_own(&own).with_admin(listens)
        };
        let wide = with(&["0.0.0.0/0", "::/0"], &["1-65535"]);
        for to in ["10.0.0.1:80", "203.0.112.7:80", "[2a00::7]:443", "[::ffff:10.0.0.1]:80"] {
            let denied = wide.check(to.parse().unwrap()).unwrap_err();
            assert!(matches!(denied, Denial::Own(_)), "{to}: {denied}");
        }
        let exact = with(&["10.0.0.1/32", "127.0.0.0/8", "0.0.0.0/8"], &["1-65535"]);
        assert!(passes(&exact, "10.0.0.1:80") && passes(&exact, "127.0.0.1:80"));
        assert!(passes(&exact, "127.0.0.2:443"), "only 127.0.0.1 listens on 443");
        for to in [
            "10.0.0.1:7373",
            "127.0.0.1:7373",
            "127.9.9.9:7373",
            "0.0.0.0:7373",
            "127.0.0.1:443",
            "0.0.0.0:443",
        ] {
            let denied = exact.check(to.parse().unwrap()).unwrap_err();
            assert!(matches!(denied, Denial::Admin(_)), "{to}: {denied}");
        }
        assert!(passes(&exact, "8.8.8.8:7373"), "others may listen there");
    }

    #[tokio::test]
    async fn a_connection_to_this_host_is_denied_even_by_an_unknown_address() {
        let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        // This sends no packet; the kernel chooses an interface's address as the source.
        if probe.connect("198.51.100.1:9").is_err() {
            eprintln!("skipped: this host has no IPv4 route");
            return;
        }
        let ip = probe.local_addr().unwrap().ip();
        let listener = tokio::net::TcpListener::bind((ip, 0)).await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        // The policy has no list of own addresses, as if no interface had the address.
        let unknowing = policy(&["0.0.0.0/0"], &["1-65535"]);
        assert!(unknowing.check(tcp.peer_addr().unwrap()).is_ok());
        assert_eq!(unknowing.check_connected(&tcp), Err(Denial::Own(ip)));
        let named = format!("{ip}/32");
        assert_eq!(policy(&[named.as_str()], &[]).check_connected(&tcp), Ok(()));
    }

    proptest! {
        /// An independent oracle for IPv4: no address that std considers special passes.
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

        /// No IPv6 form of an IPv4 address passes if the IPv4 address itself does not.
        #[test]
        fn embedding_does_not_allow_a_denied_address(bits: u32, form in 0..5usize) {
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
            // `::` and `::1` have classes of their own, and "::/96" contains them too.
            prop_assume!(u128::from(v6) > 1);
            prop_assert_eq!(open.check(at(v6.into())).is_ok(), open.check(at(v4.into())).is_ok());
            prop_assert!(policy(&[], &[]).check(at(v6.into())).is_err());
        }
    }
}
