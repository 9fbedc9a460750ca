//! Redirects from the Internet into this network: refused, also where no relay's rules do it.

use std::net::IpAddr;
use thalweg_net::{Host, resolve};
use thalweg_wire::{
    Destination,
    address_class::{Class, classify, embedded},
};
use thiserror::Error;

/// A server redirected to an address where it could not go itself, and we can.
///
/// What answers there (a router's page, a cloud's credentials) was never meant to become
/// a file, and asking may do harm already. A URL that the user gave leads where he likes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("it leads to {to}, and {ip} is a {class} address; give that URL itself if that is well")]
pub struct Inward {
    to: Host,
    ip: IpAddr,
    class: Class,
}

/// Whether a redirect may lead to `to` at `ip`, if the user's own URL was at `given`.
///
/// - To a public address: always.
/// - To a private network: from any address that is not public, e.g. from the host itself.
/// - To loopback, link-local and metadata addresses and the like: from the same class alone.
pub fn check(to: &Host, ip: IpAddr, given: &[IpAddr]) -> Result<(), Inward> {
    let Some(class) = reach(ip) else { return Ok(()) };
    let may = |from: &IpAddr| match (reach(*from), class) {
        (None, _) => false,
        (Some(_), Class::Private | Class::CarrierNat | Class::Special) => true,
        (Some(from), class) => from == class,
    };
    if given.iter().any(may) { Ok(()) } else { Err(Inward { to: to.clone(), ip, class }) }
}

/// As [`check`], for a `peer` that we are connected to and have told nothing yet.
///
/// The address that was dialled is checked, not one that a name had a moment ago. What the
/// user's own URL was at is looked up only if it matters.
pub async fn check_peer(to: &Host, peer: IpAddr, given: &Destination) -> Result<(), Inward> {
    if given.host == *to || reach(peer).is_none() {
        return Ok(());
    }
    let addresses = resolve(given).await.unwrap_or_default();
    let given: Vec<IpAddr> = addresses.iter().map(|a| a.ip()).collect();
    check(to, peer, &given)
}

/// Whether what is reached at `ip` is no ordinary public host.
pub fn is_inside(ip: IpAddr) -> bool {
    reach(ip).is_some()
}

/// The class of what is reached at `ip`: of the addresses inside, where a translator or the
/// kernel goes on to those.
fn reach(ip: IpAddr) -> Option<Class> {
    let mut inside = embedded(ip).peekable();
    match inside.peek() {
        Some(_) => inside.find_map(|ip| classify(ip.into())),
        None => classify(ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_leads_inward_is_found_out_when_connected() {
        let to = Host::parse("rebound.example").unwrap();
        let peer = "127.0.0.1".parse().unwrap();
        let from = |text: &str| text.parse::<Destination>().unwrap();
        let error = check_peer(&to, peer, &from("8.8.8.8:80")).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("rebound.example") && text.contains("loopback"), "{text}");
        assert_eq!(check_peer(&to, peer, &from("localhost:80")).await, Ok(()));
        assert_eq!(check_peer(&to, peer, &from("rebound.example:80")).await, Ok(()));
        let public = "9.9.9.9".parse().unwrap();
        assert_eq!(check_peer(&to, public, &from("8.8.8.8:80")).await, Ok(()));
    }

    #[test]
    fn a_translated_address_is_judged_by_where_it_leads() {
        let class = |text: &str| reach(text.parse().unwrap());
        assert_eq!(class("64:ff9b::808:808"), None);
        assert_eq!(class("64:ff9b::7f00:1"), Some(Class::Loopback));
        assert_eq!(class("::ffff:169.254.169.254"), Some(Class::Metadata));
    }
}
