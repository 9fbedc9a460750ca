//! Which of this host's interfaces connections are assigned to; no I/O.

use super::{settings::Settings, table::Present};
use thalweg_net::Interface;

/// Those that lead into the world, in the kernel's order of preference.
///
/// A tunnel that is the way into the world goes through one of the others: its user wants nothing
/// beside it. One that is not the way is of no use, since it shares a way that is. So all are of
/// the first one's kind, but for those that the settings name. Where nothing leads into the world,
/// as in a closed network, all are taken.
///
/// Two in one network have one way into the world between them, and take each other's answers
/// ([`Interface::doubles`]): the first is used, and the other once that is gone or if the settings name it.
pub fn present(found: &[Interface], settings: &Settings) -> Vec<Present> {
    let is_closed = !found.iter().any(|i| i.has_default_route);
    let is_tunnel = found.first().is_some_and(|i| i.is_tunnel);
    let is_named = |i: &Interface| settings.policies.contains_key(&i.name);
    let leads = |i: &Interface| i.has_default_route || is_closed;
    let is_first = |i: &Interface| i.is_tunnel == is_tunnel && i.doubles.is_none();
    let wanted = found.iter().filter(|i| leads(i) && (is_first(i) || is_named(i)));
    wanted.map(|i| Present { index: i.index.get(), name: i.name.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;
    use thalweg_bond::Policy;

    fn interface(index: u32, name: &str, has_default_route: bool, is_tunnel: bool) -> Interface {
        let (index, name) = (NonZeroU32::new(index).unwrap(), name.to_owned());
        let (addresses, metric, doubles) = (Vec::new(), index.get(), None);
        Interface { index, name, addresses, has_default_route, metric, is_tunnel, doubles }
    }

    fn names(found: &[Interface], named: &[&str]) -> Vec<String> {
        let policies = named.iter().map(|name| ((*name).to_owned(), Policy::default())).collect();
        let settings = Settings { policies, ..Settings::default() };
        present(found, &settings).into_iter().map(|present| present.name).collect()
    }

    #[test]
    fn nothing_goes_beside_a_tunnel_unless_it_is_named() {
        let (wg, eth) = (interface(1, "wg0", true, true), interface(2, "eth0", true, false));
        let (lte, docker) = (interface(3, "lte0", true, false), interface(4, "br0", false, false));
        let all = [wg.clone(), eth.clone(), lte.clone(), docker.clone()];
        assert_eq!(names(&all, &[]), ["wg0"]);
        assert_eq!(names(&all, &["lte0"]), ["wg0", "lte0"]);
        assert_eq!(names(&[eth, wg, lte, docker.clone()], &[]), ["eth0", "lte0"]);
        assert_eq!(names(&[docker], &[]), ["br0"]);
    }

    #[test]
    fn of_two_in_one_network_the_second_waits_unless_it_is_named() {
        let (eth, mut wifi) =
            (interface(1, "eth0", true, false), interface(2, "wifi", true, false));
        wifi.doubles = Some(eth.index);
        let all = [eth, wifi.clone()];
        assert_eq!(names(&all, &[]), ["eth0"]);
        assert_eq!(names(&all, &["wifi"]), ["eth0", "wifi"]);
    }
}
