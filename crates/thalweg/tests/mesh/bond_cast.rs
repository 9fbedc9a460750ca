//! Casts by a member with two interfaces in an emulated Internet, from it and to it:
//!
//! ```text
//! client ══ wan0, wan1: 8 Mbit/s each ══ fra ── server
//! ```

use crate::{
    host::{Daemon, Host, until},
    in_lab::{self, lab, ok, said},
    two_links::{LINKS, network},
};
use std::fs;
use thalweg_lab::client::Lab;

const FURTHER: &str = r#"
    [host.fra]
    [host.server]
    [link.near]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [default]
    links = ["near"]
"#;

const LENGTH: usize = 3_000_000;

/// Settings of a node that accepts casts from all members.
fn settings(host: &Host) -> String {
    let inbox = host.path("inbox");
    fs::create_dir_all(&inbox).unwrap();
    format!(
        "[measure]\nenabled = false\n[cast]\nkeep_free = \"0 B\"\n\
         inbox = [{{ path = {inbox:?}, from = [\"*\"], max_bytes = \"100 MB\" }}]\n"
    )
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..LENGTH).map(|i| (i * i / 251 + seed) as u8).collect()
}

/// The bytes that crossed both links, by direction: from the client, to the client.
fn crossed(lab: &Lab) -> [[u64; 2]; 2] {
    let stats = lab.stats(false).unwrap();
    let of = |name: String| stats.links.iter().find(|l| l.name == name).unwrap().bytes;
    ["fwd", "rev"].map(|way| LINKS.map(|link| of(format!("{link}.{way}"))))
}

/// Runs a cast that succeeds. Returns the bytes by each link in one direction.
fn casts(lab: &Lab, (place, host): (&str, &Host), to: &str, more: &[&str], way: usize) -> [u64; 2] {
    let before = crossed(lab)[way];
    ok(lab, place, &host.command(&[&["cast", "big", "--to", to, "--parents", "1"], more].concat()));
    let now = crossed(lab)[way];
    std::array::from_fn(|n| now[n] - before[n])
}

struct Scene {
    lab: Lab,
    fra: Host,
    client: Host,
    _runs: [Daemon; 2],
}

fn scene() -> Option<Scene> {
    let lab = lab(&network(&[("fra", &[]), ("server", &["near"])], FURTHER))?;
    let fra = Host::new();
    said(&lab, "fra", &fra, &["mesh", "init", "--name", "fra", "--address", "fra:7373"]);
    let fra_runs = in_lab::node(&lab, "fra", &fra, &settings(&fra));
    let client = Host::new();
    let token = said(&lab, "fra", &fra, &["mesh", "token", "--role", "relay"]);
    let join = ["mesh", "join", &token, "--name", "client", "--address", "client:7373"];
    said(&lab, "client", &client, &join);
    let client_runs = in_lab::node(&lab, "client", &client, &settings(&client));
    until("fra knows the client", || {
        said(&lab, "fra", &fra, &["mesh", "members"]).contains("client")
    });
    Some(Scene { lab, fra, client, _runs: [fra_runs, client_runs] })
}

/// Stored symbols use both interfaces; a stream uses one.
#[test]
fn the_legs_of_a_source_use_both_interfaces_for_stored_symbols() {
    let Some(Scene { lab, fra, client, _runs }) = scene() else { return };
    fs::write(client.path("big"), bytes(1)).unwrap();
    let each = casts(&lab, ("client", &client), "fra", &["--name", "stored"], 0);
    println!("{each:?} bytes of {LENGTH} by the interfaces");
    assert!(fs::read(fra.path("inbox/stored")).unwrap() == bytes(1));
    assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 4), "{each:?}");

    let more = ["--name", "streamed", "--forward", "ring"];
    let each = casts(&lab, ("client", &client), "fra", &more, 0);
    println!("{each:?} bytes by the interfaces of what streams");
    assert!(fs::read(fra.path("inbox/streamed")).unwrap() == bytes(1));
    assert!(each.iter().any(|bytes| *bytes < LENGTH as u64 / 20), "one alone: {each:?}");
}

/// What a receiver requests from another arrives over all interfaces of the requesting host.
#[test]
fn a_receiver_fetches_from_another_over_both_interfaces() {
    let Some(Scene { lab, fra, client, _runs }) = scene() else { return };
    let server = Host::new();
    let token = said(&lab, "fra", &fra, &["mesh", "token"]);
    said(&lab, "server", &server, &["mesh", "join", &token, "--name", "server", "--no-daemon"]);
    for (place, host) in [("fra", &fra), ("client", &client)] {
        until("they know the source", || {
            said(&lab, place, host, &["mesh", "members"]).contains("server")
        });
    }
    fs::write(server.path("big"), bytes(2)).unwrap();
    let rates =
        "from,to,rate\nserver,fra,90 Mbit/s\nfra,client,16 Mbit/s\nserver,client,1 Mbit/s\n";
    fs::write(server.path("rates.csv"), rates).unwrap();
    let more = ["--rates", "rates.csv"];
    let each = casts(&lab, ("server", &server), "fra,client", &more, 1);
    println!("{each:?} bytes of {LENGTH} by the interfaces");
    assert!(fs::read(client.path("inbox/big")).unwrap() == bytes(2));
    assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 4), "{each:?}");
}
