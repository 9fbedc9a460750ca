//! What a user allows of interfaces holds for a bond's links. A client with three in an emulated Internet,
//! whose programs go by one bond:
//!
//! ```text
//! client ══ wan0, wan1, wan2: 8 Mbit/s each ══ fra ── server, which knows no ranges
//! ```

use crate::{
    host::{Daemon, Host, text, until},
    in_lab::{self, Running, lab, within},
    two_links::whole_files,
};
use serde_json::Value;
use std::{
    fs,
    process::{Child, Command},
    time::Instant,
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const LINKS: [&str; 3] = ["wan0", "wan1", "wan2"];

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    interfaces = 3
    [host.fra]
    [host.server]
    [link.near]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [default]
    links = ["near"]
"#;

/// The bytes allowed besides streams: control messages of the daemon, and of links that come and go.
const CONTROL_BYTES: u64 = 60_000;

/// A mesh, a file, and a client whose programs reach it by the bond only.
struct Scene {
    lab: Lab,
    client: Host,
    runs: Daemon,
    bytes: Vec<u8>,
    _server: Running,
    _dir: TempDir,
    _fra: (Host, Daemon),
}

impl Scene {
    /// Creates it with a file of `length` bytes, and these policies for wan0, wan1 and wan2.
    fn new(length: u64, policies: [&str; 3]) -> Option<Self> {
        for program in ["python3", "curl"] {
            if Command::new(program).arg("--version").output().is_err() {
                eprintln!("skipped: there is no {program}");
                return None;
            }
        }
        let mut network = NETWORK.to_owned();
        for (n, link) in LINKS.iter().enumerate() {
            network += &format!("[link.{link}]\nrate = \"8 Mbit/s\"\ndelay = \"10 ms\"\n");
            network += &format!("[[path]]\nfrom = \"client:{n}\"\nto = \"fra\"\n");
            network += &format!("links = [\"{link}\"]\n");
        }
        let lab = lab(&network)?;
        let (fra, fra_runs) = in_lab::founder(&lab, in_lab::RELAY);
        let client = in_lab::client(&lab, &fra, &[("fra", &fra)], &[]);
        let mut settings = "[measure]\nenabled = false\n[socks]\nlisten = \"127.0.0.1:0\"\n\
                            via = [\"fra%bond\"]\n[interfaces]\n"
            .to_owned();
        for (link, policy) in LINKS.iter().zip(policies).filter(|(_, policy)| !policy.is_empty()) {
            settings += &format!("[[interfaces.policy]]\nname = \"{link}\"\n{policy}\n");
        }
        let runs = in_lab::node(&lab, "client", &client, &settings);
        let dir = TempDir::new().unwrap();
        let bytes: Vec<u8> = (0..length).map(|i| (i * i / 251) as u8).collect();
        fs::write(dir.path().join("big.bin"), &bytes).unwrap();
        let _server = whole_files(&lab, dir.path(), "HTTP/1.0");
        Some(Self { lab, client, runs, bytes, _server, _dir: dir, _fra: (fra, fra_runs) })
    }

    /// Starts a program of the client that fetches the file.
    fn fetch(&self) -> Child {
        let (proxy, file) = (self.runs.socks().to_string(), self.client.path("file"));
        let mut curl = Command::new("curl");
        curl.args(["-q", "-sS", "--fail", "--socks5-hostname", &proxy, "-o"]).arg(&file);
        curl.arg("http://server:8080/big.bin");
        within(&self.lab, "client", &curl).spawn().unwrap()
    }

    /// Checks that the program succeeds and the file is complete.
    fn assert_complete(&self, curl: Child) {
        let output = curl.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(fs::read(self.client.path("file")).unwrap() == self.bytes, "other bytes");
    }

    /// The bytes that crossed each link, in both directions.
    fn crossed(&self) -> [u64; 3] {
        let stats = self.lab.stats(false).unwrap();
        LINKS.map(|link| {
            let halves = [format!("{link}.fwd"), format!("{link}.rev")];
            let halves = stats.links.iter().filter(|l| halves.contains(&l.name));
            halves.map(|l| l.bytes).sum()
        })
    }

    fn since(&self, before: [u64; 3]) -> [u64; 3] {
        let now = self.crossed();
        std::array::from_fn(|n| now[n] - before[n])
    }

    fn set(&self, link: &str, change: &str) {
        self.lab.set(link, &LinkChange::parse(&[change]).unwrap()).unwrap();
    }
}

#[test]
fn a_backup_takes_over_and_stops_once_the_primary_is_back() {
    let policies = ["", "tier = \"backup\"", "tier = \"never\""];
    // Over one link it takes 16 s.
    let Some(scene) = Scene::new(16_000_000, policies) else { return };
    let before = scene.crossed();
    let curl = scene.fetch();
    until("the primary one carries it", || scene.since(before)[0] > 800_000);
    let each = scene.since(before);
    assert!(each[1] < CONTROL_BYTES, "the backup rests: {each:?}");
    // Nothing reports the loss.
    scene.set("wan0", "loss=100%");
    until("the backup carries it", || scene.since(before)[1] > 800_000);
    scene.set("wan0", "loss=0%");
    // For this many bytes, only the primary link carries data.
    let mut mark = scene.since(before);
    until("the backup rests again", || {
        let now = scene.since(before);
        if now[1] > mark[1] + 10_000 {
            mark = now;
        }
        now[0] > mark[0] + 1_000_000
    });
    scene.assert_complete(curl);
    let each = scene.since(before);
    println!("{each:?} bytes by the interfaces");
    assert!(each[2] < CONTROL_BYTES, "what is never used carries nothing: {each:?}");
}

#[test]
fn the_links_of_a_bond_respect_limits_and_caps() {
    let policies = ["", "rate_limit = \"1 Mbit/s\"", "cap = \"1500 kB\""];
    let length = 8_000_000;
    let Some(scene) = Scene::new(length, policies) else { return };
    let (before, begun) = (scene.crossed(), Instant::now());
    let curl = scene.fetch();
    scene.assert_complete(curl);
    let (each, took) = (scene.since(before), begun.elapsed());
    println!("{each:?} bytes of {length} by the interfaces in {took:?}");
    // Including headers, and what the far end sent ahead of the reader.
    let limit = 125_000.0 * took.as_secs_f64() * 1.1 + 300_000.0;
    assert!(each[1] > 100_000 && (each[1] as f64) < limit, "limited: {each:?}");
    assert!((400_000..=1_500_000).contains(&each[2]), "capped: {each:?}");
    assert!(each[0] > length / 2, "{each:?}");
    // The daemon lists the links of its bond, and accepts changes.
    let status = || {
        let said =
            in_lab::said(&scene.lab, "client", &scene.client, &["interfaces", "status", "--json"]);
        let said: Value = serde_json::from_str(&said).unwrap();
        said["processes"][0].clone()
    };
    let links = || {
        let bond = status()["bonds"][0].clone();
        assert_eq!(bond["name"], "fra", "{bond}");
        let links = bond["links"].as_array().unwrap().clone();
        links.iter().map(|link| link["interface"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(["wan0", "wan1"].iter().all(|link| links().iter().any(|found| found == link)));
    let allow = ["interfaces", "allow", "wan1", "--tier", "never"];
    in_lab::said(&scene.lab, "client", &scene.client, &allow);
    until("its link is gone", || !links().iter().any(|link| link == "wan1"));
    let shown = &status()["interfaces"];
    assert!(shown[0]["down_bps"].as_u64() > Some(1_000_000), "what bonds bring is known: {shown}");
}
