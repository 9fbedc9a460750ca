//! The mesh's port: held by the node, and reachable from other members.

use std::net::{IpAddr, SocketAddr};
use thalweg_net::{Destination, Host};
use thalweg_wire::doctor::{DialOutcome, DialedBack, Finding};

/// The port, who holds it, and what others reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    pub port: u16,
    /// Where the node listens; `None`: no node runs.
    pub listens: Option<Vec<SocketAddr>>,
    /// Another process that holds the port, such as `nc (process 812)`, if no node runs.
    pub holder: Option<String>,
    /// The host's addresses in the roster: those that others connect to.
    pub listed: Vec<Destination>,
    /// What each asked member reached.
    pub dialed: Vec<(String, Vec<DialedBack>)>,
    /// Why no member could be asked, if none was.
    pub unasked: Option<String>,
    /// The host's packet filter: its rules as text, or why they cannot be read.
    pub filter: Option<Result<String, String>>,
}

/// Whether others can connect to the node.
pub fn check(facts: &PortFacts) -> Vec<Finding> {
    let mut found = vec![held(facts)];
    if facts.listed.is_empty() {
        let seen = "the roster lists no address of this host";
        let found_none = Finding::note("port.unlisted", seen)
            .means("this host connects to others; they cannot connect to it");
        found.push(found_none);
        return found;
    }
    found.push(reached(facts));
    found
}

/// Who holds the port on this host.
fn held(facts: &PortFacts) -> Finding {
    let port = facts.port;
    match (&facts.listens, &facts.holder) {
        (None, Some(holder)) => {
            Finding::error("port.in-use", format!("{holder} holds port {port}, and no node runs"))
                .means("`thalweg node` cannot start on this port")
                .remedy(format!(
                    "ss -ltnp 'sport = :{port}' # end it, or choose another port: [node] listen"
                ))
        }
        (None, None) => Finding::warning("node.stopped", "no node runs on this host")
            .means("nothing is relayed, served or measured here, and the roster ages")
            .remedy("systemctl start thalweg # or: thalweg node"),
        (Some(listens), _) if only_loopback(listens, &facts.listed) => {
            let at: Vec<String> = listens.iter().map(ToString::to_string).collect();
            Finding::error("port.loopback-only", format!("the node listens at {} only", at.join(", ")))
                .means("no other host can connect to it")
                .remedy("in the settings: listen = [\"0.0.0.0:7373\", \"[::]:7373\"]; then restart the node")
        }
        (Some(listens), _) => {
            let at: Vec<String> = listens.iter().map(ToString::to_string).collect();
            let at = if at.is_empty() { "nowhere".to_owned() } else { at.join(", ") };
            Finding::ok("port.held", format!("the node listens at {at}"))
        }
    }
}

fn only_loopback(listens: &[SocketAddr], listed: &[Destination]) -> bool {
    let is_local = |ip: IpAddr| ip.to_canonical().is_loopback();
    let is_far = |at: &Destination| !matches!(at.host, Host::Ip(ip) if is_local(ip));
    !listens.is_empty() && listens.iter().all(|at| is_local(at.ip())) && listed.iter().any(is_far)
}

/// What other members reached.
fn reached(facts: &PortFacts) -> Finding {
    if facts.dialed.is_empty() {
        let why = facts.unasked.as_deref().unwrap_or("no other member could be asked");
        return Finding::unchecked("port.reachable", why);
    }
    let outcomes = |address: &Destination| {
        let all =
            facts.dialed.iter().flat_map(|(peer, dialed)| dialed.iter().map(move |d| (peer, d)));
        all.filter(|(_, dialed)| dialed.address == *address).collect::<Vec<_>>()
    };
    let works = |address: &&Destination| {
        outcomes(address).iter().any(|(_, dialed)| is_good(facts, &dialed.outcome))
    };
    let bad: Vec<&Destination> = facts.listed.iter().filter(|address| !works(address)).collect();
    let first = bad.iter().find_map(|address| outcomes(address).into_iter().next());
    let Some((peer, dialed)) = first else {
        if bad.len() == facts.listed.len() {
            let why = "the asked members' rosters list other addresses of this host";
            return Finding::unchecked("port.reachable", why);
        }
        let peers: Vec<&str> = facts.dialed.iter().map(|(peer, _)| &**peer).collect();
        return Finding::ok("port.reachable", format!("reached from {}", peers.join(", ")));
    };
    let some = bad.len() < facts.listed.len();
    closed(facts, peer, dialed, some)
}

/// Without a node, an open connection is all that can be expected.
fn is_good(facts: &PortFacts, outcome: &DialOutcome) -> bool {
    match outcome {
        DialOutcome::Reached => true,
        DialOutcome::Open(_) => facts.listens.is_none(),
        _ => false,
    }
}

fn closed(facts: &PortFacts, peer: &str, dialed: &DialedBack, some: bool) -> Finding {
    let (address, port) = (&dialed.address, facts.port);
    let seen = format!("{peer} cannot connect to {address}: {}", said(&dialed.outcome));
    let means = match some {
        true => "others waste time on this address before they use another one",
        false => "no member can send to this host, fetch from it or relay through it",
    };
    let make = |id: &str, seen: String| match some {
        true => Finding::warning(id, seen).means(means),
        false => Finding::error(id, seen).means(means),
    };
    if dialed.outcome == DialOutcome::OtherKey {
        return make("port.other-host", seen).remedy(format!(
            "find the other host at {address}, or correct the address: thalweg mesh join --address"
        ));
    }
    if let DialOutcome::Open(_) = dialed.outcome {
        let remedy =
            format!("ss -ltnp 'sport = :{port}'; on the router: forward port {port} to this host");
        return make("port.other-program", seen).remedy(remedy);
    }
    match facts.filter.as_ref().and_then(|text| text.as_ref().ok()).and_then(|t| blocking(t, port)) {
        Some(rule) => make("port.firewall", format!("{seen}; a rule of this host drops it: {rule}"))
            .remedy(format!("nft insert rule inet filter input tcp dport {port} accept # and udp; or: ufw allow {port}")),
        None => make("port.closed", seen).remedy(format!(
            "allow TCP and UDP port {port} in the firewall before this host, or forward it on the router"
        )),
    }
}

fn said(outcome: &DialOutcome) -> String {
    match outcome {
        DialOutcome::Reached => "reached".to_owned(),
        DialOutcome::Open(why) => format!("something accepts, but is no node of this host ({why})"),
        DialOutcome::OtherKey => "a node with another key answers there".to_owned(),
        DialOutcome::Refused => "connection refused".to_owned(),
        DialOutcome::TimedOut => "no answer".to_owned(),
        DialOutcome::Failed(why) => why.clone(),
    }
}

/// The first rule on the way into this host, as `nft list ruleset` or `iptables-save` prints them, that drops or
/// rejects TCP to this port; also a chain whose policy does, if it accepts nothing for the port. Sets and jumps are not
/// followed.
fn blocking(rules: &str, port: u16) -> Option<String> {
    let (mut is_input, mut policy): (bool, Option<String>) = (false, None);
    for line in rules.lines().map(str::trim) {
        if line.starts_with("chain ") || line == "}" {
            if line == "}" && is_input && policy.is_some() {
                return policy;
            }
            (is_input, policy) = (false, None);
        }
        if line.contains("hook input") || line.contains("hook prerouting") {
            is_input = true;
            policy = line.contains("policy drop").then(|| line.to_owned());
            continue;
        }
        let is_input = is_input || line.starts_with("-A INPUT");
        if !is_input || !names_port(line, port) {
            continue;
        }
        if ["drop", "reject", "DROP", "REJECT"].iter().any(|verdict| has_word(line, verdict)) {
            return Some(line.to_owned());
        }
        if has_word(line, "accept") || has_word(line, "ACCEPT") {
            policy = None;
        }
    }
    None
}

fn has_word(line: &str, word: &str) -> bool {
    line.split_whitespace().any(|found| found == word)
}

/// Whether a rule is for TCP to this port, or for all of TCP.
fn names_port(line: &str, port: u16) -> bool {
    if line.contains("udp") || line.contains("sport") {
        return false;
    }
    let words = |text: &str| {
        let split = text.split(|c: char| !c.is_ascii_digit() && c != '-' && c != ':');
        split.filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<String>>()
    };
    let after = line.split_once("dport");
    let Some((_, after)) = after else {
        // A rule without a port concerns all of TCP, if it restricts nothing else.
        return line.contains("meta l4proto tcp") || line.contains("ip protocol tcp");
    };
    let covers = |word: &String| match word.split_once(['-', ':']) {
        Some((from, to)) => {
            let [from, to] = [from, to].map(|n| n.parse::<u16>().unwrap_or(0));
            (from..=to).contains(&port)
        }
        None => *word == port.to_string(),
    };
    let ports = match after.split_once('}') {
        Some((set, _)) => set,
        None => after.split_whitespace().next().unwrap_or_default(),
    };
    words(ports).iter().any(covers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_wire::doctor::Severity;

    fn facts(outcome: DialOutcome) -> PortFacts {
        let address: Destination = "192.0.2.1:7373".parse().unwrap();
        let took = Duration::from_millis(9);
        let dialed = vec![DialedBack { address: address.clone(), outcome, took }];
        PortFacts {
            port: 7373,
            listens: Some(vec!["0.0.0.0:7373".parse().unwrap()]),
            listed: vec![address],
            dialed: vec![("fra".to_owned(), dialed)],
            ..PortFacts::default()
        }
    }

    fn ids(facts: &PortFacts) -> Vec<String> {
        check(facts).into_iter().map(|found| found.id).collect()
    }

    #[test]
    fn what_a_member_reaches_decides() {
        for (outcome, expected) in [
            (DialOutcome::Reached, "port.reachable"),
            (DialOutcome::TimedOut, "port.closed"),
            (DialOutcome::Refused, "port.closed"),
            (DialOutcome::OtherKey, "port.other-host"),
            (DialOutcome::Open("no TLS".to_owned()), "port.other-program"),
        ] {
            assert_eq!(ids(&facts(outcome.clone())), ["port.held", expected], "{outcome:?}");
        }
        let filter = Some(Ok(NFT.to_owned()));
        let found = check(&PortFacts { filter, ..facts(DialOutcome::TimedOut) });
        assert!(found[1].id == "port.firewall" && found[1].seen.contains("tcp dport 7373 drop"));
    }

    #[test]
    fn one_of_two_addresses_is_a_warning() {
        let mut both = facts(DialOutcome::TimedOut);
        let other: Destination = "[2001:db8::1]:7373".parse().unwrap();
        let took = Duration::from_millis(9);
        both.listed.push(other.clone());
        let reached = DialedBack { address: other, outcome: DialOutcome::Reached, took };
        both.dialed[0].1.push(reached);
        assert_eq!(check(&both)[1].severity, Severity::Warning);
    }

    #[test]
    fn without_a_node_the_port_may_be_another_programs() {
        let stopped = PortFacts { listens: None, ..facts(DialOutcome::Open("closed".to_owned())) };
        assert_eq!(ids(&stopped), ["node.stopped", "port.reachable"]);
        let holder = Some("nc (process 812)".to_owned());
        let found = check(&PortFacts { holder, ..stopped.clone() });
        assert_eq!((&*found[0].id, found[0].severity), ("port.in-use", Severity::Error));
        let loopback = Some(vec!["127.0.0.1:7373".parse().unwrap()]);
        assert_eq!(ids(&PortFacts { listens: loopback, ..stopped })[0], "port.loopback-only");
    }

    const NFT: &str = "table inet filter {
\tchain output {
\t\ttype filter hook output priority filter; policy accept;
\t\ttcp dport 7373 drop
\t}
\tchain input {
\t\ttype filter hook input priority filter; policy accept;
\t\ttcp dport 22 drop
\t\ttcp sport 7373 drop
\t\tudp dport 7373 drop
\t\ttcp dport 7373 drop
\t}
}";

    #[test]
    fn rules_that_block_the_port_are_found_and_no_others() {
        assert_eq!(blocking(NFT, 7373).as_deref(), Some("tcp dport 7373 drop"));
        assert_eq!(blocking(&NFT.replace("hook input", "hook output"), 7373), None);
        assert_eq!(blocking(NFT, 80), None);
        let set = "chain i {\ntype filter hook input priority 0; policy accept;\n\
                   tcp dport { 22, 7000-8000 } reject with tcp reset\n}";
        assert!(blocking(set, 7373).is_some() && blocking(set, 6999).is_none());
        let policy = "chain i {\ntype filter hook input priority 0; policy drop;\n\
                      ct state established accept\ntcp dport 22 accept\n}";
        assert!(blocking(policy, 7373).unwrap().contains("policy drop"));
        assert_eq!(blocking(&policy.replace("22", "7373"), 7373), None);
        let saved = "*filter\n-A INPUT -p tcp -m tcp --dport 7373 -j DROP\nCOMMIT";
        assert!(blocking(saved, 7373).is_some() && blocking(saved, 22).is_none());
    }
}
