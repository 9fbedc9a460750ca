//! A member's address changes.

use super::{
    get,
    host::{Daemon, Host, text, until},
    server::{Server, Version},
};
use std::{fs, net::Ipv4Addr};
use thalweg_lab::port::Port;

/// Starts the node at this address instead of the host's own.
fn start_at(host: &Host, address: &str) -> Daemon {
    let file = host.path("node.toml");
    fs::write(&file, "[relay]\nallow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n").unwrap();
    let file = file.display().to_string();
    let args = ["node", "--json", "--listen", address, "--config", &file];
    Daemon::spawn(&mut host.command(&args))
}

#[tokio::test(flavor = "multi_thread")]
async fn other_members_follow_a_relay_to_its_new_address() {
    let version = Version::new(1, 1_000_000);
    let server = Server::honest(&version).await;
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let lap = Host::joined(&fra, "lap", &[], &[]);
    let _lap = lap.start();
    nyc.start().end();

    // The relay comes back at another address, which only it knows.
    let port = Port::reserve(Ipv4Addr::new(127, 0, 0, 2)).unwrap();
    let moved = format!("127.0.0.2:{}", port.number());
    let _nyc = start_at(&nyc, &moved);
    let reply = nyc.json(&["mesh", "address", &moved, "--json"]);
    assert_eq!((&reply["name"], &reply["addresses"]), (&"nyc".into(), &[moved.as_str()].into()));
    until("the laptop knows the new address", || lap.ok(&["mesh", "members"]).contains(&moved));
    let output = get(&lap, &server, &["--path", "nyc"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The same addresses again publish nothing.
    let again = nyc.json(&["mesh", "address", &moved, "--json"]);
    assert_eq!(again["version"], reply["version"]);

    // A member that is no relay has none, and an address that nobody can have is refused.
    let said = lap.fails(1, &["mesh", "address", "127.0.0.3:7373"]);
    assert!(said.contains("only members with the role relay"), "{said}");
    let said = nyc.fails(1, &["mesh", "address", "0.0.0.0:7373"]);
    assert!(said.contains("unspecified address"), "{said}");
    assert!(nyc.ok(&["mesh", "members"]).contains(&moved));

    // The oracle's own host moves while its node is away; members still find the oracle once it is back.
    fra_runs.end();
    fra.ok(&["mesh", "address", &fra.address(), "127.0.0.1:9"]);
    let _fra = fra.start();
    until("nyc knows", || nyc.ok(&["mesh", "members"]).contains("127.0.0.1:9"));
}
