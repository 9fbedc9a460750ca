//! The measurement overlay, from a node to the ranking of relays, in an emulated Internet:
//!
//! ```text
//! sfo ── 10 Mbit/s, later 3 ── nyc
//!  └──── 6 ──── fra ──── 20 ────┘
//! ```
//!
//! TCP transfers show that the direct path from sfo to nyc is the best; later, trains show that other traffic has taken
//! it.
//!
//! Nodes send no trains from a busy host, and the machine of these tests is usually busy. So sfo's trains are sent by a
//! process of this test program inside the lab. It acts as the node, but takes its host for calm. Its results are
//! compared with what commands show, not with the link.

use crate::{
    calm::{Sends, calm, quick},
    host::{Daemon, Host, PATIENCE, until},
    in_lab::{self, Running, lab, said, within},
};
use serde_json::Value;
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{budget::Budget, clock::WallClock, log::Log};
use thalweg_lab::{client::Lab, topology::LinkChange};
use thalweg_measure::overlay::OverlaySettings;
use thalweg_mesh::{OracleClient, State, member_dialer::MemberDialer};
use thalweg_net::{DialOptions, channel::Connector};
use thalweg_probe::{
    overlay::{Overlay, OverlayRunSettings},
    prober::{ProbeBudget, Prober},
    trains::{Endpoint, Trains},
};
use thalweg_units::ByteSize;

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.sfo]
    [host.fra]
    [host.nyc]
    [link.direct]
    rate = "10 Mbit/s"
    delay = "5 ms"
    [link.first]
    rate = "6 Mbit/s"
    delay = "5 ms"
    [link.second]
    rate = "20 Mbit/s"
    delay = "5 ms"
    [[path]]
    from = "sfo"
    to = "nyc"
    links = ["direct"]
    [[path]]
    from = "sfo"
    to = "fra"
    links = ["first"]
    [[path]]
    from = "fra"
    to = "nyc"
    links = ["second"]
"#;

/// The variable with the state directory of the node that the other process acts as.
const STATE: &str = "THALWEG_TEST_OVERLAY";

/// All legs are measured; the daily budget suffices.
const ORACLE: &str = "[oracle.measure]\np = \"100 %\"\n";

struct Scene {
    lab: Lab,
    nyc: Host,
    sfo: Host,
    sfo_runs: Option<Daemon>,
    _others: (Host, [Daemon; 2]),
}

impl Scene {
    fn new() -> Option<Self> {
        let lab = lab(NETWORK)?;
        let (fra, fra_runs) = in_lab::founder(&lab, &format!("{}{ORACLE}", in_lab::RELAY));
        let (nyc, nyc_runs) = in_lab::relay(&lab, &fra, "nyc", in_lab::RELAY);
        let (sfo, sfo_runs) = in_lab::relay(&lab, &fra, "sfo", in_lab::RELAY);
        Some(Self { lab, nyc, sfo, sfo_runs: Some(sfo_runs), _others: (fra, [fra_runs, nyc_runs]) })
    }

    /// The output of `paths` on nyc.
    fn paths(&self) -> Value {
        let mut shown = within(&self.lab, "nyc", &self.nyc.command(&["paths", "--json"]));
        let output = shown.output().unwrap();
        // Fails before anything is measured.
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Replaces sfo's daemon by a process of this program that acts as the node.
    fn measures(&mut self) -> Running {
        self.sfo_runs.take().unwrap().end();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "overlay_lab::is_a_node_where_it_is_told_so", "--nocapture"]);
        command.env(STATE, self.sfo.state());
        let mut command = within(&self.lab, "sfo", &command);
        // Its output appears in that of a failed test.
        Running(command.stdout(Stdio::inherit()).stderr(Stdio::inherit()).spawn().unwrap())
    }
}

/// The leg between two nodes.
fn leg<'a>(paths: &'a Value, from: &str, to: &str) -> Option<&'a Value> {
    let nodes = paths["paths"]["nodes"].as_array()?;
    let at = |name: &str| nodes.iter().position(|node| node == name);
    let (from, to) = (at(from)?, at(to)?);
    let mut legs = paths["paths"]["legs"].as_array()?.iter();
    legs.find(|leg| leg["from"] == from && leg["to"] == to)
}

/// The rate of TCP on a leg, if both ends report it.
fn reached(paths: &Value, from: &str, to: &str) -> Option<f64> {
    let leg = leg(paths, from, to).filter(|leg| leg["method"] == "transfer")?;
    leg["bps"].as_f64().filter(|_| leg["at_least"] == false)
}

/// The score of a relay in the oracle's ranking.
fn score(paths: &Value, relay: &str) -> Option<f64> {
    let mut all = paths["candidates"].as_array()?.iter();
    all.find(|candidate| candidate["relay"] == relay)?["oracle_score"].as_f64()
}

#[test]
fn trains_of_a_node_change_the_scores_of_relays() {
    let Some(mut scene) = Scene::new() else { return };
    let mut before = Value::Null;
    // At most a minute each.
    for (from, to) in [("sfo", "nyc"), ("sfo", "fra"), ("fra", "nyc")] {
        until("TCP has told of the leg", || {
            before = scene.paths();
            reached(&before, from, to).is_some()
        });
    }
    until("fra is ranked", || {
        before = scene.paths();
        score(&before, "fra").is_some()
    });
    let tcp = reached(&before, "sfo", "nyc").unwrap();
    scene.lab.set("direct", &LinkChange::parse(&["rate=3Mbit/s"]).unwrap()).unwrap();
    let _measures = scene.measures();
    // If the machine is too busy for any result, a minute passes until the next measurement.
    let begun = Instant::now();
    let mut after = loop {
        let after = scene.paths();
        let found = leg(&after, "sfo", "nyc").map_or(&Value::Null, |leg| &leg["available"]);
        let is_less = found["bps"].as_f64().is_some_and(|bps| bps < 0.6 * tcp);
        if is_less && found["at_least"] == false {
            break after;
        }
        assert!(begun.elapsed() < 5 * PATIENCE, "trains have not told of less than {tcp}: {found}");
        std::thread::yield_now();
    };
    println!("{}", leg(&after, "sfo", "nyc").unwrap());
    let worth = score(&before, "fra").unwrap();
    until("fra is worth more", || {
        after = scene.paths();
        score(&after, "fra").is_some_and(|score| score > worth)
    });
    println!("fra: {worth} before, {:?} after", score(&after, "fra"));
    // The output for people.
    let table = said(&scene.lab, "nyc", &scene.nyc, &["paths"]);
    println!("{table}");
}

/// Sends trains to nyc and reports what they find, until it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn is_a_node_where_it_is_told_so() {
    let Some(dir) = env::var_os(STATE) else {
        println!("skipped: a part of another test, which runs it in a lab");
        return;
    };
    let state = State::open(Path::new(&dir)).unwrap();
    let (mesh, key) = (state.mesh().unwrap(), state.node_key().unwrap());
    let membership = state.membership().unwrap();
    let (log, told) = Log::to_queue();
    std::thread::spawn(move || told.into_iter().for_each(|event| println!("{event:?}")));
    let purse = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(1 << 34));
    let who = (mesh.name.clone(), &key);
    let prober = Prober::new(who, membership.clone(), purse, None, log.clone()).unwrap();
    let trains = Trains::new(prober.probe_budget(), log.clone());
    trains.set_calibration(calm());
    let endpoint = Arc::new(Endpoint::bind(([0, 0, 0, 0], 7373).into()).await.unwrap());
    trains.set_endpoints(vec![Arc::clone(&endpoint)]);
    trains.set_carrier(Arc::new(Sends::to("nyc".parse().unwrap())));
    let identity = Connector::new(&key).unwrap();
    let dialer = MemberDialer::new(mesh.name, membership, identity, DialOptions::default());
    // Only this link: others get no share of the budget.
    let used = Duration::from_millis(1);
    let core = OverlaySettings { used, share: 0.0, ..OverlaySettings::default() };
    let overlay =
        Overlay::new(OverlayRunSettings { core, ..quick() }, prober.clone(), trains, dialer, log);
    let client = OracleClient::new(&key, mesh.oracles, WallClock::default()).unwrap();
    tokio::join!(endpoint.run(), overlay.run(), prober.run(client, None));
}
