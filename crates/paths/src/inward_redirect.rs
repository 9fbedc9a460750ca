//! Refuses redirects from the Internet into this network, including on paths where no relay's rules apply (decision
//! 0042).

use std::net::IpAddr;
use thalweg_net::{Host, resolve};
use thalweg_wire::{
    Destination,
    address_class::{Class, classify, embedded},
};
use thiserror::Error;

/// A redirect to an address that the server itself cannot reach, but this host can.
///
/// The answer from there (a router's page, a cloud's credentials) was never meant to become a file, and the request
/// alone may do harm. A URL that the user gave may lead anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "it leads to {to}, and {ip} is a {class} address; give that URL itself if this is intended"
)]
pub struct InwardRedirect {
    to: Host,
    ip: IpAddr,
    class: Class,
}

/// Checks whether a redirect may lead to `to` at `ip`, if the user's own URL was at `given`.
///
/// - To a public address: always.
/// - To a private network: from any address that is not public, for example from the host itself.
/// - To loopback, link-local, metadata and similar addresses: from the same class only.
pub fn check(to: &Host, ip: IpAddr, given: &[IpAddr]) -> Result<(), InwardRedirect> {
    let Some(class) = reach(ip) else { return Ok(()) };
    let may = |from: &IpAddr| match (reach(*from), class) {
        (None, _) => false,
        (Some(_), Class::Private | Class::CarrierNat | Class::Special) => true,
        (Some(from), class) => from == class,
    };
    if given.iter().any(may) { Ok(()) } else { Err(InwardRedirect { to: to.clone(), ip, class }) }
}

/// As [`check`], for a connected `peer` to which nothing was sent yet.
///
/// Checks the address that was dialled, not one that a name had a moment ago. The addresses of the user's own URL are
/// resolved only if they matter.
pub async fn check_peer(
    to: &Host,
    peer: IpAddr,
    given: &Destination,
) -> Result<(), InwardRedirect> {
    if given.host == *to || reach(peer).is_none() {
        return Ok(());
    }
    let addresses = resolve(given).await.unwrap_or_default();
    let given: Vec<IpAddr> = addresses.iter().map(|a| a.ip()).collect();
    check(to, peer, &given)
}

/// Whether `ip` leads to something other than an ordinary public host.
pub fn is_inside(ip: IpAddr) -> bool {
    reach(ip).is_some()
}

/// The class of the host that `ip` leads to: that of an embedded address, if a translator or the kernel forwards to it.
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
    fn a_translated_address_has_the_class_of_its_destination() {
        let class = |text: &str| reach(text.parse().unwrap());
        assert_eq!(class("64:ff9b::808:808"), None);
        assert_eq!(class("64:ff9b::7f00:1"), Some(Class::Loopback));
        assert_eq!(class("::ffff:169.254.169.254"), Some(Class::Metadata));
    }
}
