//! Legs of Thalweg's own transfers over the carrier, in an emulated Internet.

use crate::{
    carrier_lab::{CARRIES, Scene},
    host::{text, until},
    in_lab::{self, Running, within},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output},
};

const LENGTH: usize = 3_000_000;

/// Makes the node send streams of probes to nyc, 5.3 Mbit/s each, and prints a line after each.
const STREAMS: &str = "
import json, socket, sys
service = socket.socket(socket.AF_UNIX)
service.connect(sys.argv[1])
lines = service.makefile('rw')
probes = [{'size': 632, 'gap_us': 1000, 'may_carry': True, 'count': 100}]
while True:
    train = {'to': 'nyc', 'accept_busy': True, 'after_us': 20000, 'probes': probes}
    print(json.dumps({'send': train}), file=lines, flush=True)
    said = json.loads(lines.readline())
    print('sent' if 'report' in said else said, flush=True)
";

impl Scene {
    /// Runs a command on fra.
    fn run(&self, args: &[&str]) -> Output {
        within(&self.lab, "fra", &self.fra.command(args)).output().unwrap()
    }

    /// Sends streams of probes from fra to nyc until dropped; returns after the first one.
    fn streams(&self) -> Running {
        let mut python = Command::new("python3");
        python.args(["-u", "-c", STREAMS]).arg(self.fra.state().join("probe.sock"));
        let mut streams = Running(within(&self.lab, "fra", &python).spawn().unwrap());
        let mut said = BufReader::new(streams.0.stdout.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert_eq!(first.trim(), "sent");
        // The rest of the output is discarded.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        streams
    }

    /// A counter of the carrier at `place`.
    fn count(&self, place: &str, name: &str) -> u64 {
        self.status(place)["counts"][name].as_u64().unwrap()
    }

    /// A server of fra's own files, at a port that the relay nyc can reach.
    fn serve_files(&self) -> Running {
        let mut python = Command::new("python3");
        let dir = self.fra.path("web");
        python.args(["-m", "http.server", "8000", "-d"]).arg(dir);
        let server = Running(within(&self.lab, "fra", &python).spawn().unwrap());
        let mut curl = Command::new("curl");
        curl.args(["-q", "-sf", "-o", "/dev/null", "http://fra:8000/"]);
        until("the server listens", || {
            within(&self.lab, "fra", &curl).output().unwrap().status.success()
        });
        server
    }
}

/// Settings of a node that accepts files into this directory.
fn inbox_at(dir: &Path) -> String {
    format!("[files]\naccept = [{{ path = \"{}\", from = [\"*\"] }}]\n", dir.display())
}

fn bytes() -> Vec<u8> {
    (0..LENGTH as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn transfers_with_explicit_ride_use_the_carrier() {
    let inbox = tempfile::TempDir::new().unwrap();
    let accept = inbox_at(inbox.path());
    let Some(scene) = Scene::new(&format!("{CARRIES}{accept}")) else { return };
    scene.wait_until_up();
    let bytes = bytes();
    fs::create_dir(scene.fra.path("web")).unwrap();
    for name in ["sent.bin", "web/served.bin"] {
        fs::write(scene.fra.path(name), &bytes).unwrap();
    }

    let streams = scene.streams();
    let to = format!("nyc:{}", inbox.path().display());
    let sent = scene.run(&["send", "sent.bin", &to, "--via", "none", "--ride"]);
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    assert!(fs::read(inbox.path().join("sent.bin")).unwrap() == bytes);
    let counts = scene.status("fra")["counts"].clone();
    println!("{counts}");
    assert!(scene.count("fra", "sent_bytes") > LENGTH as u64, "all of it went by the device");
    assert!(scene.count("fra", "ridden_bytes") > 10_000, "some of it rode in trains");
    drop(streams);

    // nyc relays what fra itself serves, so the answer goes through nyc's device.
    let _server = scene.serve_files();
    let url = "http://fra:8000/served.bin";
    let got = scene.run(&["get", url, "-o", "got.bin", "--path", "nyc%ride"]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert!(fs::read(scene.fra.path("got.bin")).unwrap() == bytes);
    assert!(scene.count("nyc", "sent_bytes") > LENGTH as u64);
}

#[test]
fn legs_use_the_carrier_automatically_only_to_measured_members() {
    let socks = "legs = \"measured\"\n[socks]\nlisten = \"127.0.0.1:1080\"\nvia = [\"nyc\"]\n";
    let Some(scene) = Scene::new(&format!("{CARRIES}{socks}")) else { return };
    scene.wait_until_up();
    let bytes = bytes();
    fs::create_dir(scene.fra.path("web")).unwrap();
    fs::write(scene.fra.path("web/served.bin"), &bytes).unwrap();
    let _server = scene.serve_files();
    let file = scene.fra.path("got.bin");
    let fetch = || {
        let mut curl = Command::new("curl");
        curl.args(["-q", "-sS", "--fail", "--socks5-hostname", "127.0.0.1:1080", "-o"]).arg(&file);
        curl.arg("http://fra:8000/served.bin");
        in_lab::ok(&scene.lab, "fra", &curl);
        assert!(fs::read(&file).unwrap() == bytes);
        scene.count("fra", "received_bytes")
    };
    assert_eq!(fetch(), 0, "nobody measures");
    let _streams = scene.streams();
    let came = fetch();
    assert!(came > LENGTH as u64, "{came} bytes came by the device");
}

#[test]
fn without_a_carrier_ride_is_refused_with_an_explanation() {
    let Some(scene) = Scene::new("") else { return };
    fs::write(scene.fra.path("sent.bin"), "x").unwrap();
    for args in [
        &["send", "sent.bin", "nyc:/inbox", "--ride"][..],
        &["gather", "nyc:/outbox", "--into", "in", "--ride"],
        &["get", "http://fra:8000/x", "--path", "nyc%ride"],
    ] {
        let said = text(&scene.run(args).stderr);
        assert!(
            said.contains("[carrier] enabled = true") && said.contains("CAP_NET_ADMIN"),
            "{said}"
        );
    }
    let said = text(&scene.run(&["get", "http://fra:8000/x", "--path", "nyc%rides"]).stderr);
    assert!(said.contains("`%ride`") && said.contains("`%bond`"), "{said}");
}

#[test]
fn a_manual_measurement_carries_packets_of_transfers() {
    let inbox = tempfile::TempDir::new().unwrap();
    let accept = inbox_at(inbox.path());
    let Some(scene) = Scene::new(&format!("{CARRIES}{accept}")) else { return };
    scene.wait_until_up();
    let measure = |riders: &str| {
        let args = ["--method", "pk2", "--within", "4s", "--accept-busy", "--json"];
        let output = scene.run(&[&["measure", "nyc", "--riders", riders][..], &args].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        serde_json::from_str::<serde_json::Value>(said.lines().last().unwrap()).unwrap()
    };
    assert_eq!(measure("auto")["rode_bytes"], 0, "nothing goes there");
    assert_eq!(scene.count("fra", "empty_probes"), 0, "and the node was not asked");

    fs::write(scene.fra.path("sent.bin"), bytes()).unwrap();
    let to = format!("nyc:{}", inbox.path().display());
    let args = ["send", "sent.bin", &to, "--via", "none", "--ride", "--bwlimit", "500k"];
    let _sends = Running(within(&scene.lab, "fra", &scene.fra.command(&args)).spawn().unwrap());
    until("it goes by the carrier", || scene.count("fra", "sent_bytes") > 100_000);
    let found = measure("auto");
    println!("{found}");
    assert!(found["rode_bytes"].as_u64() > Some(10_000), "{found}");
    assert!(found["rode_bytes"].as_u64() < found["probe_bytes"].as_u64(), "{found}");
    assert_eq!(measure("off")["rode_bytes"], 0);
}
