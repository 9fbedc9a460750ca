//! Interfaces and routes.

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
};
use thalweg_net::{Interface, UnusableReason};
use thalweg_wire::doctor::Finding;

/// The interfaces and routes of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Interfaces that could carry a transfer.
    pub usable: Vec<Interface>,
    /// The names of those that transfers may use.
    pub used: Vec<String>,
    /// The others, and what each lacks.
    pub lacking: Vec<(String, UnusableReason)>,
    /// Whether the kernel has a route to the IPv4 internet.
    pub routes_v4: bool,
    /// Whether it has one to the IPv6 internet.
    pub routes_v6: bool,
}

/// Judges interfaces, the default route and IPv6.
pub fn check(facts: &NetworkFacts) -> Vec<Finding> {
    let mut found = vec![interfaces(facts)];
    found.extend(facts.usable.iter().filter_map(|one| unused(facts, one)));
    found.extend(facts.lacking.iter().map(|(name, why)| lacking(facts, name, *why)));
    if !facts.usable.is_empty() {
        found.push(default_route(facts));
    }
    found.extend(ipv6(facts));
    found
}

fn interfaces(facts: &NetworkFacts) -> Finding {
    if facts.usable.is_empty() {
        return Finding::error(
            "interface.none",
            "no interface but loopback is up with an address and a route",
        )
        .means("no other host can be reached")
        .remedy("ip addr; ip route # then bring the network up: networkctl reconfigure IFACE");
    }
    let one = |i: &Interface| {
        let addresses: Vec<String> = i.addresses.iter().map(ToString::to_string).collect();
        format!("{} ({})", i.name, addresses.join(", "))
    };
    let seen = facts.usable.iter().map(one).collect::<Vec<_>>().join("; ");
    Finding::ok("interface.usable", seen)
}

/// Why transfers leave a usable interface out.
fn unused(facts: &NetworkFacts, one: &Interface) -> Option<Finding> {
    if facts.used.contains(&one.name) {
        return None;
    }
    let name = &one.name;
    let of = |index: Option<NonZeroU32>| {
        facts.usable.iter().find(|i| Some(i.index) == index).map(|i| &*i.name)
    };
    let (why, remedy) = if let Some(first) = of(one.doubles) {
        (
            format!("{name} is in the same network as {first}, which is used instead"),
            format!(
                "thalweg interfaces allow {name} # if the two really lead to different networks"
            ),
        )
    } else if let Some(tunnel) = of(one.beside) {
        (
            format!(
                "{name} would bypass the tunnel {tunnel}, through which the internet is reached"
            ),
            format!("thalweg interfaces allow {name} # if that is intended"),
        )
    } else if one.is_tunnel {
        (format!("{name} is a tunnel over an interface that is used anyway"), String::new())
    } else {
        (
            format!("no default route leaves by {name}"),
            format!("ip route add default via ROUTER dev {name} metric 200"),
        )
    };
    let found = Finding::note("interface.left-out", why);
    Some(found.means("transfers do not use it").remedy(remedy))
}

fn lacking(facts: &NetworkFacts, name: &str, why: UnusableReason) -> Finding {
    let (lacks, remedy) = match why {
        UnusableReason::Down => ("it is switched off", format!("ip link set {name} up")),
        UnusableReason::Carrier => ("it has no cable or network", format!("ip link show {name}")),
        UnusableReason::Address => ("it has no address", format!("networkctl reconfigure {name}")),
        UnusableReason::Route => {
            ("no route leaves by it", format!("ip route add default via ROUTER dev {name}"))
        }
    };
    let found = match facts.usable.is_empty() {
        true => Finding::warning("interface.left-out", format!("{name}: {lacks}")),
        false => Finding::note("interface.left-out", format!("{name}: {lacks}")),
    };
    found.means("transfers do not use it").remedy(remedy)
}

fn default_route(facts: &NetworkFacts) -> Finding {
    if facts.routes_v4 || facts.routes_v6 {
        let families = match (facts.routes_v4, facts.routes_v6) {
            (true, true) => "IPv4 and IPv6",
            (true, false) => "IPv4",
            _ => "IPv6",
        };
        return Finding::ok("route.default", format!("the internet is routed for {families}"));
    }
    let device = facts.usable.first().map_or("IFACE", |first| &first.name);
    Finding::warning("route.none", "no default route, for IPv4 or IPv6")
        .means("only hosts in the networks of the interfaces are reached")
        .remedy(format!("ip route add default via ROUTER dev {device}"))
}

/// An address of the internet without a route makes programs try it first, and wait.
fn ipv6(facts: &NetworkFacts) -> Option<Finding> {
    let global = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if is_global(ip));
    let has =
        facts.usable.iter().find_map(|i| Some((i, i.addresses.iter().find(|ip| global(ip))?)));
    let (interface, address) = has?;
    if facts.routes_v6 {
        return Some(Finding::ok("ipv6.routed", format!("{address} and a default route")));
    }
    let name = &interface.name;
    let seen = format!("{name} has the address {address}, but no route leads to the IPv6 internet");
    let found = Finding::warning("ipv6.no-route", seen);
    let found = found.means("connections to hosts with IPv6 addresses first fail, and other members cannot answer to it");
    Some(found.remedy(format!(
        "ip -6 route add default via ROUTER dev {name} # or: sysctl -w net.ipv6.conf.{name}.disable_ipv6=1"
    )))
}

/// Whether the address is one of the internet: 2000::/3.
fn is_global(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xe000 == 0x2000
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    fn card(index: u32, name: &str, address: &str) -> Interface {
        let addresses = vec![address.parse().unwrap()];
        Interface { addresses, ..Interface::new(NonZeroU32::new(index).unwrap(), name) }
    }

    fn one_card() -> NetworkFacts {
        NetworkFacts {
            usable: vec![card(2, "eth0", "192.0.2.1")],
            used: vec!["eth0".to_owned()],
            routes_v4: true,
            ..NetworkFacts::default()
        }
    }

    fn bad(facts: &NetworkFacts) -> Vec<String> {
        let found = check(facts);
        found.into_iter().filter(|f| f.severity > Severity::Unchecked).map(|f| f.id).collect()
    }

    #[test]
    fn one_card_with_a_default_route_is_in_order() {
        assert_eq!(bad(&one_card()), Vec::<String>::new());
    }

    #[test]
    fn an_interface_that_is_not_used_is_named_with_the_reason() {
        let mut facts = one_card();
        facts.lacking.push(("lte0".to_owned(), UnusableReason::Down));
        let second = Interface { doubles: NonZeroU32::new(2), ..card(3, "wifi", "192.0.2.7") };
        facts.usable.push(second);
        assert_eq!(bad(&facts), ["interface.left-out", "interface.left-out"]);
        let texts: Vec<String> = check(&facts).into_iter().map(|f| f.seen + &f.remedy).collect();
        assert!(texts.iter().any(|text| text.contains("same network as eth0")), "{texts:?}");
        assert!(texts.iter().any(|text| text.contains("ip link set lte0 up")), "{texts:?}");
    }

    #[test]
    fn routes_that_lack_are_warnings() {
        let facts = NetworkFacts { routes_v4: false, ..one_card() };
        assert_eq!(bad(&facts), ["route.none"]);
        let mut facts = one_card();
        facts.usable[0].addresses.push("2001:db8::5".parse().unwrap());
        assert_eq!(bad(&facts), ["ipv6.no-route"]);
        facts.usable[0].addresses[1] = "fd00::5".parse().unwrap();
        assert_eq!(bad(&facts), Vec::<String>::new(), "a private address needs no route");
        assert_eq!(bad(&NetworkFacts::default()), ["interface.none"]);
    }
}
