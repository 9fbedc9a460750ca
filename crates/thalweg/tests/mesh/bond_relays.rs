//! A client with one interface in an emulated Internet, whose bond goes by two relays:
//!
//! ```text
//!          ┌ 8 Mbit/s ─ nyc ┐
//! client ──┼ 8 Mbit/s ─ ber ┼── fra ── server, which knows no ranges
//!          └── 1 Mbit/s ────┘
//! ```
//!
//! The narrow links are the client's, so that of what comes each relay takes all that its buffers hold, and
//! neither fra's TCP nor its kernel can tell how fast the rest of the way is.

use crate::{
    host::{Daemon, Host, text, until},
    in_lab::{self, Running, lab, ok, within},
    two_links::whole_files,
};
use std::{fs, process::Command};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    [host.nyc]
    [host.ber]
    [host.fra]
    [host.server]
    [link.nyc]
    rate = "8 Mbit/s"
    delay = "10 ms"
    [link.ber]
    rate = "8 Mbit/s"
    delay = "20 ms"
    [link.direct]
    rate = "1 Mbit/s"
    delay = "10 ms"
    [link.near]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [[path]]
    from = "client"
    to = "nyc"
    links = ["nyc"]
    [[path]]
    from = "client"
    to = "ber"
    links = ["ber"]
    [[path]]
    from = "client"
    to = "fra"
    links = ["direct"]
    [[path]]
    from = "client"
    to = "server"
    links = ["direct"]
    [default]
    links = ["near"]
"#;

const LENGTH: u64 = 4_000_000;

const PATH: &str = "fra%bond%nyc%ber";

/// The bytes that arrived at the client from each relay, and directly.
fn came(lab: &Lab) -> [u64; 3] {
    let stats = lab.stats(false).unwrap();
    let of = |name: &str| stats.links.iter().find(|l| l.name == name).unwrap().bytes;
    ["nyc.rev", "ber.rev", "direct.rev"].map(of)
}

/// A mesh, a file, and a client that fetches it.
struct Scene {
    lab: Lab,
    client: Host,
    nyc: Option<Daemon>,
    bytes: Vec<u8>,
    _others: [Daemon; 2],
    _hosts: [Host; 3],
    _server: Running,
    _dir: TempDir,
}

impl Scene {
    fn new() -> Option<Self> {
        if Command::new("python3").arg("--version").output().is_err() {
            eprintln!("skipped: there is no python3");
            return None;
        }
        let lab = lab(NETWORK)?;
        let settings = format!("[measure]\nenabled = false\n{}", in_lab::RELAY);
        let (fra, fra_runs) = in_lab::founder(&lab, &settings);
        let (nyc, nyc_runs) = in_lab::relay(&lab, &fra, "nyc", &settings);
        let (ber, ber_runs) = in_lab::relay(&lab, &fra, "ber", &settings);
        let relays = [("fra", &fra), ("nyc", &nyc), ("ber", &ber)];
        let client = in_lab::client(&lab, &fra, &relays, &["--no-daemon"]);
        let (dir, bytes) =
            (TempDir::new().unwrap(), (0..LENGTH).map(|i| (i * i / 251) as u8).collect());
        fs::write(dir.path().join("big.bin"), &bytes).unwrap();
        let _server = whole_files(&lab, dir.path(), "HTTP/1.0");
        let (_others, _hosts) = ([fra_runs, ber_runs], [fra, nyc, ber]);
        let nyc = Some(nyc_runs);
        Some(Self { lab, client, nyc, bytes, _others, _hosts, _server, _dir: dir })
    }

    fn get(&self) -> Command {
        let url = "http://server:8080/big.bin";
        self.client.command(&["get", url, "-o", "file", "--path", PATH, "--json"])
    }

    fn assert_complete(&self) {
        assert!(fs::read(self.client.path("file")).unwrap() == self.bytes, "other bytes");
        fs::remove_file(self.client.path("file")).unwrap();
    }

    fn since(&self, before: [u64; 3]) -> [u64; 3] {
        let now = came(&self.lab);
        std::array::from_fn(|n| now[n] - before[n])
    }
}

#[test]
fn one_stream_uses_both_relays_and_survives_the_loss_of_either() {
    let Some(mut scene) = Scene::new() else { return };
    let before = came(&scene.lab);
    let output = ok(&scene.lab, "client", &scene.get());
    scene.assert_complete();
    let each = scene.since(before);
    println!("{each:?} bytes of {LENGTH} by nyc, by ber, and directly");
    let said = text(&output.stdout);
    assert!(said.contains(PATH), "{said}");
    assert!(each[..2].iter().all(|bytes| *bytes > LENGTH / 3), "{each:?}");
    assert!(each[2] < LENGTH / 20, "nothing goes by what was not named: {each:?}");

    // First a relay that runs but is silent, then one that is gone.
    for is_killed in [false, true] {
        let before = came(&scene.lab);
        let running = within(&scene.lab, "client", &scene.get()).spawn().unwrap();
        let both = || scene.since(before)[..2].iter().all(|bytes| *bytes > 400_000);
        until("both carry it", both);
        if is_killed {
            drop(scene.nyc.take());
        } else {
            scene.lab.set("nyc", &LinkChange::parse(&["loss=100%"]).unwrap()).unwrap();
        }
        let output = running.wait_with_output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        scene.assert_complete();
        let each = scene.since(before);
        println!("{each:?} bytes by nyc, by ber, and directly, with nyc lost half way");
        assert!(each[1] > each[0], "{each:?}");
        scene.lab.set("nyc", &LinkChange::parse(&["loss=0%"]).unwrap()).unwrap();
    }
}
