//! Refuses foreign names that resolve to this host, or to addresses that only its local network or its cloud can reach.
//!
//! A foreign name is a DNS name that is neither local nor listed in the hosts file. Its owner can make it resolve to
//! 127.0.0.1 (DNS rebinding). Services on this host often admit everything that comes from it, and a browser that uses
//! a proxy cannot see which address a page is from, so its own guard does not work. Such names are therefore refused,
//! as Squid does by default (`to_localhost`). The check comes after connecting and before any byte is passed, so that
//! it sees the address that was really used. The same holds for names that resolve to link-local addresses
//! (169.254.0.0/16, fe80::/10), where devices without passwords are, and to addresses where clouds serve credentials.
//! Intended uses remain possible: addresses, `localhost`, names without a dot or of local domains, and names that the
//! hosts file gives to this host.

use std::net::{IpAddr, SocketAddr};
use thalweg_net::NameSources;
use thalweg_wire::{
    Destination, Host,
    address_class::{Class, classify},
};

/// Whether foreign names must not resolve to this address.
fn is_guarded(ip: IpAddr) -> bool {
    let class = classify(ip.to_canonical());
    matches!(class, Some(Class::Loopback | Class::Unspecified | Class::LinkLocal | Class::Metadata))
}

/// Whether `to` is a foreign name and the connected address `peer` is a loopback or link-local address, or that of a
/// cloud's metadata service.
pub async fn is_rebound(to: &Destination, peer: SocketAddr) -> bool {
    if !is_guarded(peer.ip()) || to.host.is_near() {
        return false;
    }
    let Host::Name(name) = &to.host else { return false };
    NameSources::default().host(name).await.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn foreign_names_for_this_host_are_told_from_its_own() {
        let rebound = async |to: &str, peer: &str| {
            is_rebound(&to.parse().unwrap(), peer.parse().unwrap()).await
        };
        for peer in ["127.0.0.1:80", "127.0.1.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(rebound("www.example.org:80", peer).await, "{peer}");
        }
        let links = ["169.254.7.7:80", "[fe80::1]:80", "[::ffff:169.254.7.7]:80"];
        let clouds = ["169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80"];
        for peer in links.into_iter().chain(clouds) {
            assert!(rebound("www.example.org:80", peer).await, "{peer}");
            assert!(!rebound(peer, peer).await, "{peer} itself is meant");
            assert!(!rebound("printer.local:80", peer).await, "{peer}");
        }
        assert!(!rebound("www.example.org:80", "192.0.2.1:80").await);
        assert!(!rebound("www.example.org:80", "192.168.1.1:80").await);
        for own in ["localhost:80", "127.0.0.1:80", "[::1]:80", "a.localhost:80", "box:80"] {
            assert!(!rebound(own, "127.0.0.1:80").await, "{own}");
        }
    }
}
