//! Names: whether the name servers answer; and proxies that the environment names.

use std::{net::IpAddr, time::Duration};
use thalweg_wire::doctor::Finding;

/// The name servers of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameFacts {
    /// `/etc/resolv.conf` cannot be read, for this reason.
    Unreadable(String),
    /// The servers that it names, and how long each took to answer, or why it did not.
    Servers(Vec<(IpAddr, Result<Duration, String>)>),
}

/// Whether names can be resolved.
pub fn check(facts: &NameFacts) -> Finding {
    let means = "hosts given by name are not found; addresses still work";
    let remedy = "resolvectl status # or correct /etc/resolv.conf";
    let servers = match facts {
        NameFacts::Unreadable(why) => {
            let seen = format!("/etc/resolv.conf: {why}");
            return Finding::warning("dns.broken", seen).means(means).remedy(remedy);
        }
        NameFacts::Servers(servers) => servers,
    };
    if servers.is_empty() {
        let seen = "/etc/resolv.conf names no server";
        return Finding::warning("dns.broken", seen).means(means).remedy(remedy);
    }
    let answer = |(server, result): &(IpAddr, Result<Duration, String>)| match result {
        Ok(took) => format!("{server} answered in {} ms", took.as_millis()),
        Err(why) => format!("{server}: {why}"),
    };
    let seen = servers.iter().map(answer).collect::<Vec<_>>().join("; ");
    let answering = servers.iter().filter(|(_, result)| result.is_ok()).count();
    if answering == 0 {
        return Finding::error("dns.broken", seen).means(means).remedy(remedy);
    }
    // The first is asked first, and waited for: 5 s for each name.
    if servers.first().is_some_and(|(_, first)| first.is_err()) {
        let slow = "each lookup waits seconds for the server that is asked first";
        return Finding::warning("dns.slow", seen).means(slow).remedy(remedy);
    }
    Finding::ok("dns.answers", seen)
}

/// Whether variables name proxies, which Thalweg ignores.
pub fn check_proxies(variables: &[(String, String)]) -> Finding {
    if variables.is_empty() {
        return Finding::ok("proxy.environment", "no variable names a proxy");
    }
    let set: Vec<String> = variables.iter().map(|(name, to)| format!("{name}={to}")).collect();
    let seen = set.join(", ");
    Finding::note("proxy.environment", seen)
        .means("Thalweg chooses paths itself and ignores them; other programs use them")
        .remedy("if only the proxy leads outside, let it tunnel: thalweg get URL --via HOST:PORT (SOCKS5)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    #[test]
    fn servers_that_do_not_answer_are_named() {
        let at = |last: u8| IpAddr::from([192, 0, 2, last]);
        let late = || Err("no answer in 2 s".to_owned());
        let quick = || Ok(Duration::from_millis(8));
        let of = |servers: Vec<_>| check(&NameFacts::Servers(servers));
        let dead = of(vec![(at(1), late())]);
        assert_eq!((&*dead.id, dead.severity), ("dns.broken", Severity::Error));
        assert!(dead.seen.contains("192.0.2.1: no answer"));
        assert_eq!(of(vec![(at(1), late()), (at(2), quick())]).id, "dns.slow");
        assert_eq!(of(vec![(at(2), quick()), (at(1), late())]).severity, Severity::Ok);
        assert_eq!(of(Vec::new()).id, "dns.broken");
    }

    #[test]
    fn proxies_are_only_a_note() {
        let set = [("https_proxy".to_owned(), "http://p:3128".to_owned())];
        assert_eq!(check_proxies(&set).severity, Severity::Note);
        assert_eq!(check_proxies(&[]).severity, Severity::Ok);
    }
}
