//! The kind of address translation (NAT) between this host and other members, as far as their views tell.

use std::net::SocketAddr;
use thalweg_wire::doctor::Finding;

/// One member's view of a connection from this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressView {
    /// The member's name.
    pub peer: String,
    /// This end's own address.
    pub local: SocketAddr,
    /// The address from which the member saw it.
    pub seen: SocketAddr,
}

impl AddressView {
    fn is_translated(&self) -> bool {
        self.local.ip().to_canonical() != self.seen.ip().to_canonical()
    }
}

/// Whether and how addresses are translated.
pub fn check(views: &[AddressView]) -> Finding {
    let Some(view) = views.iter().find(|view| view.is_translated()) else {
        return match views.first() {
            None => Finding::unchecked("nat.kind", "no other member could be asked"),
            Some(view) => {
                let (peer, ip) = (&view.peer, view.seen.ip().to_canonical());
                Finding::ok("nat.none", format!("{peer} sees this host's own address {ip}"))
            }
        };
    };
    let seen: Vec<String> = views
        .iter()
        .filter(|view| view.is_translated())
        .map(|view| format!("{} sees {} as {}", view.peer, view.local, view.seen))
        .collect();
    let seen = seen.join("; ");
    let forward = format!(
        "on the router: forward TCP and UDP port 7373 to {}; or hold a channel to a relay",
        view.local.ip()
    );
    match mapping(views) {
        Some(Mapping::ByDestination) => Finding::warning("nat.symmetric", seen)
            .means("one port becomes another one for each destination: others cannot connect to it")
            .remedy(forward),
        Some(Mapping::Constant) => Finding::note("nat.translated", seen)
            .means("one port becomes the same one for all destinations; others connect only to forwarded ports")
            .remedy(forward),
        None => Finding::note("nat.translated", seen)
            .means("a second member is needed to tell which kind of NAT it is")
            .remedy(forward),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    Constant,
    ByDestination,
}

/// Compares views of one local address by different members.
fn mapping(views: &[AddressView]) -> Option<Mapping> {
    let pairs =
        views.iter().enumerate().flat_map(|(i, a)| views[i + 1..].iter().map(move |b| (a, b)));
    let mut same = pairs.filter(|(a, b)| a.local == b.local && a.peer != b.peer).peekable();
    same.peek()?;
    match same.all(|(a, b)| a.seen == b.seen) {
        true => Some(Mapping::Constant),
        false => Some(Mapping::ByDestination),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(peer: &str, local: &str, seen: &str) -> AddressView {
        let [local, seen] = [local, seen].map(|at| at.parse().unwrap());
        AddressView { peer: peer.to_owned(), local, seen }
    }

    #[test]
    fn two_views_of_one_port_tell_the_kind_of_translation() {
        let inner = "192.168.1.5:4000";
        let id = |views: &[AddressView]| check(views).id;
        assert_eq!(id(&[view("fra", "192.0.2.1:4000", "192.0.2.1:4000")]), "nat.none");
        assert_eq!(id(&[view("fra", inner, "192.0.2.1:4000")]), "nat.translated");
        let same = [view("fra", inner, "192.0.2.1:99"), view("nyc", inner, "192.0.2.1:99")];
        assert_eq!(id(&same), "nat.translated");
        let other = [view("fra", inner, "192.0.2.1:99"), view("nyc", inner, "192.0.2.1:98")];
        assert_eq!(id(&other), "nat.symmetric");
        assert_eq!(id(&[]), "nat.kind");
    }

    #[test]
    fn a_mapped_address_is_the_same_address() {
        assert_eq!(check(&[view("fra", "192.0.2.1:1", "[::ffff:192.0.2.1]:1")]).id, "nat.none");
    }
}
