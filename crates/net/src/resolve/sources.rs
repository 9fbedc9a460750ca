//! The files that list hosts and name servers.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::fs::read_to_string;

/// Where the dialer finds hosts and name servers for paths that are bound to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSources {
    /// The hosts file, whose names need no server.
    pub hosts: PathBuf,
    /// A directory of files by interface index, whose `DNS=` lines list the servers that the interface's network
    /// announced (systemd-networkd).
    pub links: PathBuf,
    /// Files in the format of resolv.conf(5). The first one that lists a server off this host counts: a server on this
    /// host (a stub) would send its queries by any interface.
    pub servers: Vec<PathBuf>,
    /// The servers' port.
    pub port: u16,
    /// How long they are waited for in all, before the system's resolver is asked. 3 s allow two tries of a second
    /// each, and leave enough of a dial's 10 s for the rest.
    pub patience: Duration,
}

impl Default for NameSources {
    fn default() -> Self {
        Self {
            hosts: "/etc/hosts".into(),
            links: "/run/systemd/netif/links".into(),
            servers: ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"]
                .map(PathBuf::from)
                .to_vec(),
            port: 53,
            patience: Duration::from_secs(3),
        }
    }
}

impl NameSources {
    /// The addresses of a name in the hosts file; none if it is not listed.
    pub async fn host(&self, name: &str) -> Vec<IpAddr> {
        addresses_of(name, &text(&self.hosts).await)
    }

    /// The servers to ask over this interface, the best first; none if none is known.
    pub(super) async fn servers_of(&self, interface: NonZeroU32) -> Vec<IpAddr> {
        let own = announced(&text(&self.links.join(interface.to_string())).await);
        if !own.is_empty() {
            return own;
        }
        for file in &self.servers {
            let mut servers = listed(&text(file).await);
            servers.retain(|server| !server.is_loopback());
            if !servers.is_empty() {
                return servers;
            }
        }
        Vec::new()
    }
}

/// The file's text; empty if it cannot be read.
async fn text(file: &Path) -> String {
    read_to_string(file).await.unwrap_or_default()
}

/// All addresses of `name` in the text of /etc/hosts (hosts(5)).
///
/// It is parsed here because the resolver library would ask a server for an address family that the file lacks, which
/// the system's resolver does not.
fn addresses_of(name: &str, text: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let of_line = |line: &str| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    };
    text.lines().filter_map(of_line).collect()
}

/// The servers in `DNS=` lines: `ADDRESS[%SCOPE][#NAME]`, or `[ADDRESS]:PORT`. The latter do not parse and are ignored;
/// such servers are listed beside others of the usual port.
fn announced(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("DNS="));
    let server = |word: &str| word.split(['%', '#']).next()?.parse().ok();
    lines.flat_map(str::split_ascii_whitespace).filter_map(server).collect()
}

/// The servers in `nameserver` lines (resolv.conf(5)).
fn listed(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        address.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_hosts_file_is_read_like_the_system_does() {
        let text = "127.0.0.1 localhost\n# 192.0.2.9 www.example\n\
                    192.0.2.1\twww.example www # 192.0.2.8 other\n2001:db8::1 WWW.Example\nx y";
        assert_eq!(addresses_of("www.example", text), ips(&["192.0.2.1", "2001:db8::1"]));
        assert_eq!(addresses_of("www.example.", text).len(), 2);
        assert_eq!(addresses_of("www", text), ips(&["192.0.2.1"]));
        assert!(["other", "example", "y", ""].iter().all(|n| addresses_of(n, text).is_empty()));
    }

    #[test]
    fn servers_are_read_in_both_formats() {
        let link = "ADMIN_STATE=configured\nDNS=192.0.2.53 2001:db8::53#dns.example fe80::1%eth0\n\
                    NTP=192.0.2.1\nDNS=nonsense\n";
        assert_eq!(announced(link), ips(&["192.0.2.53", "2001:db8::53", "fe80::1"]));
        let resolv = "# nameserver 192.0.2.9\nnameserver 192.0.2.53\nsearch example\n\
                      nameserver fe80::1%eth0\nnameserver\nnameservers 192.0.2.8\n";
        assert_eq!(listed(resolv), ips(&["192.0.2.53", "fe80::1"]));
    }

    #[tokio::test]
    async fn the_interfaces_servers_come_before_the_hosts_and_stubs_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let sources = NameSources {
            links: at("links"),
            servers: vec![at("stub"), at("real")],
            ..NameSources::default()
        };
        let index = NonZeroU32::new(7).unwrap();
        assert_eq!(sources.servers_of(index).await, ips(&[]));
        fs::write(at("stub"), "nameserver 127.0.0.53\n").unwrap();
        assert_eq!(sources.servers_of(index).await, ips(&[]));
        fs::write(at("real"), "nameserver 192.0.2.53\n").unwrap();
        assert_eq!(sources.servers_of(index).await, ips(&["192.0.2.53"]));
        fs::create_dir(at("links")).unwrap();
        fs::write(at("links").join("7"), "DNS=192.0.2.77\n").unwrap();
        assert_eq!(sources.servers_of(index).await, ips(&["192.0.2.77"]));
        assert_eq!(sources.servers_of(NonZeroU32::MIN).await, ips(&["192.0.2.53"]));
    }
}
