//! Selects the interfaces of a host that are used; no I/O.

use super::Interface;

/// The user's settings for an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceWish {
    /// The settings name the interface.
    pub is_named: bool,
    /// It is used even if the kernel reaches the internet through a tunnel.
    pub beside_tunnel: bool,
}

/// Selects the interfaces that lead to the internet and should be used, in the same order.
///
/// If the kernel reaches the internet through a tunnel, the tunnel's traffic goes through one of the other interfaces.
/// Its user does not want them to bypass it ([`Interface::beside`]), so they are not used unless `beside_tunnel` is
/// set. A name alone does not suffice: settings that cap an LTE modem express nothing about a VPN.
///
/// Another tunnel is of no use, because it shares an interface that is used anyway, unless the kernel's choice is a
/// tunnel too (a host may have no cards at all); it is used if it is named. If nothing leads to the internet, as in a
/// closed network, all others are taken.
///
/// Two interfaces in one network share one path to the internet and receive each other's answers
/// ([`Interface::doubles`]): the first is used; the second is used if it is named, or once the first is gone.
pub fn internet_interfaces(
    found: &[Interface],
    wish: impl Fn(&str) -> InterfaceWish,
) -> Vec<Interface> {
    let is_closed = !found.iter().any(|i| i.has_default_route);
    let way = found.iter().find(|i| i.is_way).or(found.first());
    let by_tunnel = way.is_some_and(|way| way.is_tunnel);
    let is_used = |i: &&Interface| {
        let InterfaceWish { is_named, beside_tunnel } = wish(&i.name);
        let is_first = i.doubles.is_none() && (by_tunnel || !i.is_tunnel);
        let leads = i.has_default_route || is_closed;
        leads && (is_first || is_named) && (i.beside.is_none() || beside_tunnel)
    };
    found.iter().filter(is_used).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn card(index: u32, name: &str) -> Interface {
        Interface::new(NonZeroU32::new(index).unwrap(), name)
    }

    fn names(found: &[Interface], wishes: &[(&str, InterfaceWish)]) -> Vec<String> {
        let wish = |name: &str| {
            let found = wishes.iter().find(|(of, _)| *of == name);
            found.map(|(_, wish)| *wish).unwrap_or_default()
        };
        internet_interfaces(found, wish).into_iter().map(|i| i.name).collect()
    }

    const NAMED: InterfaceWish = InterfaceWish { is_named: true, beside_tunnel: false };
    const BESIDE: InterfaceWish = InterfaceWish { is_named: true, beside_tunnel: true };

    #[test]
    fn no_interface_bypasses_a_tunnel_unless_the_user_says_so() {
        let (mut eth, mut lte, mut wg) = (card(2, "eth0"), card(3, "lte0"), card(1, "wg0"));
        let inner = Interface { has_default_route: false, ..card(4, "br0") };
        (wg.is_tunnel, wg.is_way) = (true, true);
        (eth.beside, lte.beside) = (Some(wg.index), Some(wg.index));
        let all = [wg.clone(), eth.clone(), lte.clone(), inner.clone()];
        assert_eq!(names(&all, &[]), ["wg0"]);
        assert_eq!(names(&all, &[("lte0", NAMED)]), ["wg0"], "a cap says nothing of a VPN");
        assert_eq!(names(&all, &[("lte0", BESIDE)]), ["wg0", "lte0"]);
        (eth.beside, lte.beside, wg.is_way) = (None, None, false);
        let all = [eth, wg, lte, inner.clone()];
        assert_eq!(names(&all, &[]), ["eth0", "lte0"]);
        assert_eq!(names(&all, &[("wg0", NAMED)]), ["eth0", "wg0", "lte0"]);
        assert_eq!(names(&[inner], &[]), ["br0"]);
    }

    #[test]
    fn the_second_interface_in_one_network_is_used_only_if_named() {
        let (eth, mut wifi) = (card(1, "eth0"), card(2, "wifi"));
        wifi.doubles = Some(eth.index);
        let all = [eth, wifi];
        assert_eq!(names(&all, &[]), ["eth0"]);
        assert_eq!(names(&all, &[("wifi", NAMED)]), ["eth0", "wifi"]);
    }
}
