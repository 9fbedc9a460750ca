//! The candidate paths of a download: every usable interface, directly and through the relays.

use crate::url::HttpUrl;
use std::{cmp::Reverse, num::NonZeroU32};
use thalweg_net::{Host, Interface, Route, interface_for, internet_interface};
use thalweg_units::Rate;

/// One path to the server.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name for users: `direct`, or the relay's `HOST:PORT`.
    pub name: String,
    pub route: Route,
    /// The mirror that this path leads to; `None`: the download's own URL. Bytes of several mirrors are mixed only if a
    /// digest verifies the whole file.
    pub mirror: Option<HttpUrl>,
}

/// The default for the most paths that a download tries. Each takes a share of sampling and a connection at the server,
/// and UKAIRO finds that a few relays (client-oblivious-5, §2.2.3) provide nearly the whole gain.
pub const MAX_CANDIDATES: usize = 12;

/// The paths to try, the most valuable first, at most `max` (at least one).
///
/// In this order:
/// 1. `direct`, bound to no interface: it uses `own`, the interface that the kernel chooses for the destination
///    ([`own_interface`]); if that is not known, the first of `interfaces`;
/// 2. the relays, bound to no interface either;
/// 3. `direct%IF` for each other one of `interfaces`;
/// 4. `RELAY%IF` for each of these.
///
/// `rate` returns the rate of earlier transfers over the path with this name ([`crate::history::History::prior`]).
/// Relays with a known rate come first, the fastest at the front; the others keep their order. If only known ones would
/// remain, the last place goes to an unknown one: UKAIRO's test detour (§3.2.2), without which no better relay would
/// ever be found.
pub fn candidates(
    interfaces: &[Interface],
    own: Option<NonZeroU32>,
    relays: &[(String, Route)],
    max: usize,
    rate: impl Fn(&str) -> Option<Rate>,
) -> Vec<Candidate> {
    let further = further(interfaces, own);
    let mut relays: Vec<_> = relays.iter().map(|relay| (rate(&relay.0), relay)).collect();
    relays.sort_by_key(|(rate, _)| Reverse(*rate));
    leave_a_place_to_try(&mut relays, max.saturating_sub(1));
    let relays = || relays.iter().map(|(_, (name, route))| (name.as_str(), route.clone()));
    let direct = || ("direct", Route::direct());

    let unbound =
        std::iter::once(direct()).chain(relays()).map(|(n, r)| candidate(n.to_owned(), r));
    let bound = |(name, route): (&str, Route), by: &Interface| {
        candidate(format!("{name}%{}", by.name), route.by_interface(by.index))
    };
    let others = further.iter().map(|by| bound(direct(), by));
    // A bond uses all interfaces already, and a carried route is bound to none.
    let single = || relays().filter(|(_, route)| !route.is_carried());
    let last = further.iter().flat_map(|by| single().map(|relay| bound(relay, by)));
    unbound.chain(others).chain(last).take(max.max(1)).collect()
}

/// The interface over which the kernel sends unbound traffic to the server of `url`: the `own` of [`candidates`]. The
/// kernel is asked, because rules (policy routing, a VPN's) matter as well as metrics. A host name is resolved later
/// and by each path itself, so for a name the kernel is asked about the Internet in general. `None` if there is no
/// route.
pub fn own_interface(url: &HttpUrl) -> Option<NonZeroU32> {
    let known = match &url.destination().host {
        // No interface in the list leads to this host itself.
        Host::Ip(ip) if !ip.is_loopback() => interface_for(*ip).ok(),
        _ => None,
    };
    known.or_else(internet_interface)
}

/// The interfaces that unbound paths do not use.
fn further(interfaces: &[Interface], own: Option<NonZeroU32>) -> Vec<&Interface> {
    let own = own.or_else(|| interfaces.first().map(|i| i.index));
    interfaces.iter().filter(|i| Some(i.index) != own).collect()
}

/// Moves the first unknown relay to the last of `places` if known relays fill them.
fn leave_a_place_to_try(relays: &mut [(Option<Rate>, &(String, Route))], places: usize) {
    let known = relays.iter().take_while(|(rate, _)| rate.is_some()).count();
    if places > 1 && known >= places && known < relays.len() {
        relays.swap(places - 1, known);
    }
}

fn candidate(name: String, route: Route) -> Candidate {
    Candidate { name, route, mirror: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn interface(index: u32) -> Interface {
        Interface::new(NonZeroU32::new(index).unwrap(), &format!("if{index}"))
    }

    fn relays(n: usize) -> Vec<(String, Route)> {
        let route = |i| Route::through([format!("r{i}.example:1080").parse().unwrap()]).unwrap();
        (0..n).map(|i| (format!("r{i}"), route(i))).collect()
    }

    fn names(found: &[Candidate]) -> Vec<&str> {
        found.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn unbound_paths_come_first_and_then_the_other_interfaces() {
        let interfaces = [interface(2), interface(3)];
        let found = candidates(&interfaces, NonZeroU32::new(3), &relays(2), 12, |_| None);
        let expected = ["direct", "r0", "r1", "direct%if2", "r0%if2", "r1%if2"];
        assert_eq!(names(&found), expected);
        assert!(found[..3].iter().all(|c| c.route.interface().is_none()));
        assert!(found[3..].iter().all(|c| c.route.interface() == NonZeroU32::new(2)));
        assert!(found[0].route.is_direct() && found[3].route.is_direct());
    }

    #[test]
    fn without_the_kernels_choice_the_first_interface_is_the_default() {
        let interfaces = [interface(2), interface(3)];
        let found = candidates(&interfaces, None, &[], 12, |_| None);
        assert_eq!(names(&found), ["direct", "direct%if3"]);
        assert_eq!(names(&candidates(&[], None, &[], 0, |_| None)), ["direct"]);
    }

    #[test]
    fn known_relays_come_first_and_one_place_is_left_for_an_unknown_one() {
        let rate = |name: &str| match name {
            "r1" => Some(Rate::from_mbps(5.0)),
            "r3" => Some(Rate::from_mbps(50.0)),
            _ => None,
        };
        let found = candidates(&[], None, &relays(4), 12, rate);
        assert_eq!(names(&found), ["direct", "r3", "r1", "r0", "r2"]);
        let found = candidates(&[], None, &relays(4), 3, rate);
        assert_eq!(names(&found), ["direct", "r3", "r0"]);
    }

    proptest! {
        /// For any input: direct first, no path twice, and as many paths as possible within the limit.
        #[test]
        fn candidates_are_unique_and_complete(n in 0usize..20, m in 0u32..5, max in 0usize..30, known in any::<u32>()) {
            let interfaces: Vec<_> = (1..=m).map(interface).collect();
            let rate = |name: &str| {
                let i: u32 = name[1..].parse().unwrap();
                (known >> i & 1 == 1).then(|| Rate::from_mbps(f64::from(i)))
            };
            let found = candidates(&interfaces, None, &relays(n), max, rate);
            let mut unique = names(&found);
            prop_assert_eq!(unique[0], "direct");
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), found.len());
            let all = (n + 1) * (m as usize).max(1);
            prop_assert_eq!(found.len(), all.min(max.max(1)));
        }
    }
}
