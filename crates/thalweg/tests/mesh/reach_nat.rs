//! Members behind real NATs and firewalls reach each other with every command.

use crate::{
    host::{Daemon, Host, until},
    nat_network::{Namespace, Nat, NatNetwork},
    reach::settings,
};
use std::fs;

/// Settings of a relay in this network, whose addresses are private ones.
const RELAY: &str = "[relay]\nallow_to = [\"10.99.0.0/16\"]\nports = [\"1-65535\"]\n";

/// A member behind a NAT.
struct Member {
    name: &'static str,
    nat: Nat,
    namespace: Namespace,
    host: Host,
    _runs: Daemon,
}

struct Scene {
    members: Vec<Member>,
    fra: (Namespace, Host),
    nyc_runs: Option<Daemon>,
    _nyc: (Namespace, Host),
    _fra_runs: Daemon,
    network: NatNetwork,
}

/// A mesh of two open relays and these members.
fn scene(kinds: &[(&'static str, Nat)]) -> Option<Scene> {
    let mut network = NatNetwork::new()?;
    let (place, address) = network.host(Nat::Open);
    let fra = Host::new();
    let at = format!("{address}:7373");
    place.ok(&fra, &["mesh", "init", "--name", "fra", "--address", &at]);
    let fra_runs = place.start(&fra, &format!("{RELAY}{}", settings(&fra)));
    let fra = (place, fra);
    let (nyc, nyc_runs) = {
        let (place, address) = network.host(Nat::Open);
        let host = joined(&fra, &place, "nyc", Some(&address));
        let runs = place.start(&host, RELAY);
        ((place, host), runs)
    };
    let mut members = Vec::new();
    for &(name, nat) in kinds {
        let (namespace, address) = network.host(nat);
        // Where a router forwards a port, or a firewall hides it, the roster has an address.
        let is_listed = matches!(nat, Nat::Open | Nat::FullCone | Nat::Firewall);
        let host = joined(&fra, &namespace, name, is_listed.then_some(&address));
        let runs = namespace.start(&host, &format!("{RELAY}{}", settings(&host)));
        members.push(Member { name, nat, namespace, host, _runs: runs });
    }
    let nyc_runs = Some(nyc_runs);
    Some(Scene { members, fra, nyc_runs, _nyc: nyc, _fra_runs: fra_runs, network })
}

/// A host that has joined the mesh, with the role relay if it has an address.
fn joined(fra: &(Namespace, Host), place: &Namespace, name: &str, address: Option<&str>) -> Host {
    let host = Host::new();
    let role: &[&str] = if address.is_some() { &["--role", "relay"] } else { &[] };
    let token = fra.0.ok(&fra.1, &[&["mesh", "token"], role].concat());
    let mut join = vec!["mesh", "join", token.trim(), "--name", name];
    let at = address.map(|address| format!("{address}:7373"));
    at.iter().for_each(|at| join.extend(["--address", at]));
    place.ok(&host, &join);
    host
}

impl Scene {
    /// The relays of a member, as this member's node knows them.
    fn relays(&self, by: &Member, of: &str) -> usize {
        let roster = by.namespace.ok(&by.host, &["mesh", "members", "--json"]);
        let roster: serde_json::Value = serde_json::from_str(&roster).unwrap();
        let members = roster["members"].as_array().unwrap();
        let member = members.iter().find(|member| member["name"] == of);
        member.map_or(0, |member| member["relays"].as_array().unwrap().len())
    }

    fn until_reached(&self) {
        for by in &self.members {
            for of in self.members.iter().filter(|of| needs_relays(of.nat)) {
                until("all members know the relays of all others", || {
                    self.relays(by, of.name) == 2
                });
            }
        }
    }
}

fn needs_relays(nat: Nat) -> bool {
    !matches!(nat, Nat::Open | Nat::FullCone)
}

/// Runs this command of `from` about `to`, and checks what arrived.
fn check(verb: &str, from: &Member, to: &Member) {
    let unique = format!("{verb}-{}-{}", from.name, to.name);
    let bytes = vec![from.name.len() as u8; 300_000];
    let (place, host, name) = (&from.namespace, &from.host, to.name);
    println!("{verb}: {} ({:?}) and {name} ({:?})", from.name, from.nat, to.nat);
    match verb {
        "gather" => {
            fs::write(to.host.path("data").join(&unique), &bytes).unwrap();
            let source = format!("{name}:{}/{unique}", to.host.path("data").display());
            place.ok(host, &["gather", &source, "--into", "here"]);
            assert!(fs::read(host.path("here").join(&unique)).unwrap() == bytes);
        }
        "send" => {
            fs::write(host.path(&unique), &bytes).unwrap();
            let inbox = format!("{name}:{}", to.host.path("inbox").display());
            place.ok(host, &["send", &unique, &inbox, "--via", "none"]);
            assert!(fs::read(to.host.path("inbox").join(&unique)).unwrap() == bytes);
        }
        "cast" => {
            fs::write(host.path(&unique), &bytes).unwrap();
            place.ok(host, &["cast", &unique, "--to", name]);
            assert!(fs::read(to.host.path("casts").join(&unique)).unwrap() == bytes);
        }
        _ => {
            let args = ["measure", name, "--method", "tcp", "--within", "500ms", "--json"];
            let found: serde_json::Value = serde_json::from_str(&place.ok(host, &args)).unwrap();
            let is_direct = found["through"] == "direct";
            assert_eq!(is_direct, !needs_relays(to.nat), "{found}");
        }
    }
}

#[test]
fn members_behind_every_kind_of_nat_reach_each_other() {
    let kinds = [
        ("open", Nat::Open),
        ("cone", Nat::FullCone),
        ("home", Nat::PortRestricted),
        ("sym", Nat::Symmetric),
        ("cgn", Nat::Carrier),
        ("wall", Nat::Firewall),
    ];
    let Some(scene) = scene(&kinds) else { return };
    scene.until_reached();
    for from in &scene.members {
        for to in scene.members.iter().filter(|to| to.name != from.name) {
            check("gather", from, to);
            check("measure", from, to);
        }
    }
    // What sends the other way, from behind the strictest NAT and from the open.
    let from = |name| scene.members.iter().find(|member| member.name == name).unwrap();
    for from in [from("cgn"), from("open")] {
        for to in scene.members.iter().filter(|to| to.name != from.name) {
            check("send", from, to);
            check("cast", from, to);
        }
    }
}

#[test]
fn neighbours_behind_one_nat_and_a_dead_relay() {
    let Some(mut scene) = scene(&[("home", Nat::PortRestricted)]) else { return };
    let place = scene.network.neighbour(&scene.members[0].namespace);
    let host = joined(&scene.fra, &place, "near", None);
    let runs = place.start(&host, &settings(&host));
    let near = Member { name: "near", nat: Nat::Carrier, namespace: place, host, _runs: runs };
    scene.members.push(near);
    scene.until_reached();
    let [home, near] = &scene.members[..] else { panic!() };
    check("gather", home, near);
    check("gather", near, home);
    // The relay's whole host falls silent: no packet says so.
    scene._nyc.0.sh("ip link set wan down");
    check("send", near, home);
    until("one relay is left", || scene.relays(home, "near") == 1);
    check("send", home, near);
    drop(scene.nyc_runs.take());
}
