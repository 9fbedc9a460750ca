//! The carrier in an emulated Internet, with real TUN devices and programs that know nothing of it:
//!
//! ```text
//! fra ── 50 Mbit/s, 10 ms ── nyc
//! ```

use crate::{
    host::{Daemon, Host, text, until},
    in_lab::{self, Running, lab, said, within},
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::Command,
};
use thalweg_lab::client::Lab;

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.fra]
    [host.nyc]
    [link.way]
    rate = "50 Mbit/s"
    delay = "5 ms"
    queue = "100 kB"
    [[path]]
    from = "fra"
    to = "nyc"
    links = ["way"]
"#;

pub const CARRIES: &str =
    "[carrier]\nenabled = true\ncongestion = \"cubic\"\nopen = [\"1-65535\"]\n";

/// A server that returns what it gets: by TCP its hash, by UDP each datagram.
const SERVER: &str = "
import hashlib, socket, sys, threading
tcp = socket.create_server((sys.argv[1], 5000), family=socket.AF_INET6)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], 5001))
def echo():
    while True:
        data, at = udp.recvfrom(65536)
        udp.sendto(data, at)
threading.Thread(target=echo, daemon=True).start()
print('ready', flush=True)
while True:
    conn, _ = tcp.accept()
    digest = hashlib.sha256()
    while data := conn.recv(65536): digest.update(data)
    conn.sendall(digest.digest())
    conn.close()
";

/// A client that sends bytes by TCP and datagrams by UDP, and checks what comes back.
const CLIENT: &str = "
import hashlib, random, socket, sys
seed, size, datagrams = map(int, sys.argv[2:5])
random.seed(seed)
data = random.randbytes(size)
tcp = socket.create_connection((sys.argv[1], 5000), timeout=60)
tcp.sendall(data)
tcp.shutdown(socket.SHUT_WR)
came = b''
while more := tcp.recv(100): came += more
assert came == hashlib.sha256(data).digest(), 'TCP'
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.settimeout(2)
udp.connect((sys.argv[1], 5001))
for n in range(datagrams):
    # Some are longer than the device takes whole.
    data = random.randbytes(random.randrange(1, 4000))
    for attempt in range(20):
        udp.send(data)
        try:
            while udp.recv(65536) != data: pass
            break
        except TimeoutError: pass
    else: sys.exit('UDP')
print('well')
";

/// Makes the node send trains, and prints how many probes of each carried packets.
const TRAINS: &str = "
import json, socket, sys
service = socket.socket(socket.AF_UNIX)
service.connect(sys.argv[1])
lines = service.makefile('rw')
probes = [{'size': 500, 'gap_us': 1000, 'may_carry': True, 'count': 20}]
while True:
    train = {'to': 'nyc', 'accept_busy': True, 'after_us': 20000, 'probes': probes}
    print(json.dumps({'send': train}), file=lines, flush=True)
    said = json.loads(lines.readline())
    print(said['report']['carriers'] if 'report' in said else said, flush=True)
";

/// Two nodes in a lab.
pub struct Scene {
    pub lab: Lab,
    pub fra: Host,
    pub nyc: Host,
    run: [Daemon; 2],
    _server: Option<Running>,
}

impl Scene {
    /// Starts two nodes, the first of which founds the mesh.
    pub fn new(settings: &str) -> Option<Self> {
        let lab = lab(NETWORK)?;
        let settings = format!("{}{settings}", in_lab::RELAY);
        let (fra, fra_runs) = in_lab::founder(&lab, &settings);
        let (nyc, nyc_runs) = in_lab::relay(&lab, &fra, "nyc", &settings);
        until("both know each other", || {
            let knows =
                |place, host: &Host| said(&lab, place, host, &["mesh", "members"]).contains("nyc");
            knows("fra", &fra) && knows("nyc", &nyc)
        });
        Some(Self { lab, fra, nyc, run: [fra_runs, nyc_runs], _server: None })
    }

    fn address(&self, name: &str) -> String {
        said(&self.lab, "fra", &self.fra, &["carrier", "address", name])
    }

    /// The status of the carrier at `place`.
    pub fn status(&self, place: &str) -> Value {
        let host = if place == "fra" { &self.fra } else { &self.nyc };
        let args = host.command(&["carrier", "status", "--json"]);
        let output = within(&self.lab, place, &args).output().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    }

    pub fn wait_until_up(&self) {
        until("both carry", || {
            ["fra", "nyc"].iter().all(|place| self.status(place)["is_up"] == true)
        });
    }

    /// Starts the server at nyc's overlay address.
    fn serve(&mut self) {
        let mut python = Command::new("python3");
        python.args(["-u", "-c", SERVER, &self.address("nyc")]);
        let mut server = within(&self.lab, "nyc", &python).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready.trim(), "ready");
        self._server = Some(Running(server));
    }

    /// Runs a client at fra that sends to the server.
    fn talk(&self, seed: u64, bytes: usize, datagrams: usize) {
        let mut python = Command::new("python3");
        let (seed, bytes, datagrams) = (seed.to_string(), bytes.to_string(), datagrams.to_string());
        python.args(["-c", CLIENT, &self.address("nyc"), &seed, &bytes, &datagrams]);
        let output = within(&self.lab, "fra", &python).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), "well", "{}", text(&output.stderr));
    }
}

#[test]
fn ping_tcp_and_udp_work_without_waiting_for_trains() {
    let Some(mut scene) = Scene::new(CARRIES) else { return };
    scene.wait_until_up();
    let mut ping = Command::new("ping");
    ping.args(["-6", "-n", "-c", "5", "-i", "0.2", "-W", "30", &scene.address("nyc")]);
    let output = within(&scene.lab, "fra", &ping).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    println!("{}", text(&output.stdout));

    scene.serve();
    println!("seed 1");
    scene.talk(1, 3_000_000, 40);
    for place in ["fra", "nyc"] {
        let status = scene.status(place);
        let counts = &status["counts"];
        println!("{place}: {counts}");
        // Without trains no packet waits for one.
        for none in ["timed_out_packets", "ridden_packets", "strange_packets", "refused_fragments"]
        {
            assert_eq!(counts[none], 0, "{place}: {none}");
        }
        assert!(counts["received_packets"].as_u64().unwrap() > 500, "{place}");
    }
    let table = said(&scene.lab, "fra", &scene.fra, &["carrier", "status"]);
    assert!(table.contains("thalweg0") && table.contains("session open"), "{table}");
    // A node ends in order although its carrier has sessions.
    for runs in scene.run {
        runs.end();
    }
}

#[test]
fn packets_ride_in_trains_of_the_node_and_arrive_unaltered() {
    let Some(mut scene) = Scene::new(CARRIES) else { return };
    scene.wait_until_up();
    scene.serve();
    let mut python = Command::new("python3");
    let service = scene.fra.state().join("probe.sock");
    python.args(["-u", "-c", TRAINS]).arg(service);
    let mut trains = within(&scene.lab, "fra", &python).spawn().unwrap();
    let said = BufReader::new(trains.stdout.take().unwrap());
    let mut trains = Running(trains);
    let mut lines = said.lines();
    // The session for trains opens with the first train.
    let first = lines.next().unwrap().unwrap();
    assert_eq!(first, "0");
    println!("seed 2");
    scene.talk(2, 3_000_000, 40);
    _ = trains.0.kill();
    let carriers: Vec<u64> = lines.map_while(|line| line.ok()?.parse().ok()).collect();
    let status = scene.status("fra");
    println!("{carriers:?}\n{}", status["counts"]);
    let counted = |name: &str| status["counts"][name].as_u64().unwrap();
    let told: u64 = carriers.iter().sum();
    assert!(told > 0 && counted("carrying_probes") >= told, "{carriers:?}");
    assert!(counted("ridden_bytes") > 10 * told && counted("ridden_fragments") >= told);
    assert_eq!(scene.status("nyc")["counts"]["strange_packets"], 0);
}

#[test]
fn a_deleted_device_is_reported_and_the_node_continues() {
    let Some(scene) = Scene::new(CARRIES) else { return };
    scene.wait_until_up();
    let mut delete = Command::new("ip");
    delete.args(["link", "delete", "thalweg0"]);
    in_lab::ok(&scene.lab, "fra", &delete);
    until("the node says so", || scene.status("fra")["is_up"] == false);
    let why = scene.status("fra")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("`thalweg0` is gone") && why.contains("restart the node"), "{why}");
    // The node still answers, and still is a member.
    said(&scene.lab, "fra", &scene.fra, &["status"]);
}

#[test]
fn without_a_carrier_the_status_says_how_to_enable_it() {
    let Some(scene) = Scene::new("") else { return };
    let args = scene.fra.command(&["carrier", "status"]);
    let output = within(&scene.lab, "fra", &args).output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("enabled = true"), "{told}");
}
