//! `thalweg measure`, in an emulated Internet:
//!
//! ```text
//! client ── 10 Mbit/s there, 20 back, 20 ms ── fra
//! ```
//!
//! The machine of these tests may be too busy to time probes, and then the result must say so. So every measurement
//! uses `--accept-busy`; results that claim to be valid are compared with the link, and the others must give a reason.

use crate::{
    host::{Daemon, Host, PATIENCE, text},
    in_lab::{self, lab, within},
    second_interface,
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Output},
    time::Instant,
};
use thalweg_lab::{client::Lab, topology::LinkChange};

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    [host.fra]
    [link.way]
    rate = "10 Mbit/s"
    delay = "10 ms"
    queue = "50 kB"
    rev = { rate = "20 Mbit/s" }
    [[path]]
    from = "client"
    to = "fra"
    links = ["way"]
"#;

struct Scene {
    lab: Lab,
    client: Host,
    _fra: Host,
    fra_runs: Option<Daemon>,
}

fn scene() -> Option<Scene> {
    let lab = lab(NETWORK)?;
    let (fra, fra_runs) = in_lab::founder(&lab, in_lab::RELAY);
    let client = in_lab::client(&lab, &fra, &[("fra", &fra)], &["--no-daemon"]);
    Some(Scene { lab, client, _fra: fra, fra_runs: Some(fra_runs) })
}

impl Scene {
    fn command(&self, args: &[&str]) -> Command {
        let args = [&["measure", "fra", "--json", "--accept-busy"][..], args].concat();
        within(&self.lab, "client", &self.client.command(&args))
    }

    fn measure(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The result for this quantity.
    fn found(&self, args: &[&str], of: &str) -> Value {
        let output = self.measure(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {out}{err}");
        let results = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut results = results.filter(|line| line["event"] == "result");
        let found = results.find(|line| line["of"] == of);
        let found = found.unwrap_or_else(|| panic!("{args:?}: no {of}: {out}{err}"));
        println!("{args:?}: {found}");
        found
    }
}

/// Checks that the result is within a quarter of this many Mbit/s, or is marked as not valid with a reason.
fn check_result(found: &Value, mbps: f64) {
    let [low, value, high] = ["low", "value", "high"].map(|of| found[of].as_f64().unwrap());
    assert!(low <= value && value <= high, "{found}");
    assert!(found["probe_bytes"].as_u64().unwrap() > 10_000, "{found}");
    let doubts = found["doubts"].as_array().unwrap();
    assert_eq!(found["valid"], doubts.is_empty(), "{found}");
    let is_near = (value / 1e6 / mbps - 1.0).abs() < 0.25;
    assert!(is_near || !doubts.is_empty(), "{found}, and {mbps} Mbit/s is true");
}

#[test]
fn an_idle_path_is_measured_there_and_back() {
    let Some(scene) = scene() else { return };
    check_result(&scene.found(&["--method", "capacity"], "capacity"), 10.0);
    check_result(&scene.found(&["--method", "capacity", "--back"], "capacity"), 20.0);
    // A former name of the method.
    let found = scene.found(&["--method", "dispersion"], "dispersion_rate");
    assert!(found["value"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn all_methods_measure_the_available_bandwidth() {
    let Some(scene) = scene() else { return };
    // On a busy machine a tool may find that no train can be judged: then it says so and gives no result.
    for method in ["pathload-fast", "pathload-slow", "pathchirp"] {
        let output = scene.measure(&["--method", method]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        match output.status.code() {
            Some(0) => {
                let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
                assert_eq!(
                    (&last["of"], &last["method"]),
                    (&"available_bandwidth".into(), &method.into())
                );
                println!("{last}");
                // The light method is right to a factor of two at best (its own tests have its errors).
                match method {
                    "pathchirp" => assert!(last["value"].as_f64().unwrap() > 1e6, "{last}"),
                    _ => check_result(&last, 10.0),
                }
            }
            Some(1) => {
                println!("{method}: {err}");
                let why = [
                    "no train gave a usable result",
                    "changes faster",
                    "no result within",
                    "were lost",
                ];
                assert!(why.iter().any(|why| err.contains(why)), "{method}: {err}");
            }
            _ => panic!("{method}: {out}{err}"),
        }
        let trains = out.lines().filter(|line| line.contains(r#""event":"train""#)).count();
        assert!(trains > 3, "{method} shows how far it is: {out}{err}");
    }
}

#[test]
fn losses_and_loads_are_measured() {
    let Some(scene) = scene() else { return };
    let lost = scene.found(&["--method", "pk1", "--within", "2s"], "lost_probes");
    assert_eq!(lost["value"], 0.0, "{lost}");
    assert!(lost["trains"].as_u64().unwrap() > 10, "{lost}");
    let lossy = LinkChange::parse(&["loss=30%"]).unwrap();
    scene.lab.set("way.fwd", &lossy).unwrap();
    let lost = scene.found(&["--method", "pk2", "--within", "4s"], "lost_probes");
    assert!((0.15..0.45).contains(&lost["value"].as_f64().unwrap()), "{lost}");
    let time = scene.found(&["--method", "badabing", "--within", "6s"], "time_with_losses");
    // Of three packets of a slot, at least one is lost in two slots of three. As no queue separates these slots from
    // others, slots near a loss count as well (Badabing §6.1), which may be nearly all.
    assert!((0.4..=1.0).contains(&time["value"].as_f64().unwrap()), "{time}");
}

#[test]
fn without_routers_the_hops_method_reports_an_error() {
    let Some(scene) = scene() else { return };
    let output = scene.measure(&["--method", "hops"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the hops cannot be told apart"), "{said}");
}

#[test]
fn a_small_mtu_is_reported_and_smaller_probes_are_used() {
    let Some(scene) = scene() else { return };
    second_interface::change(&scene.lab, "client", "ip link set wan0 mtu 1400");
    let output = scene.measure(&["--method", "capacity", "--size", "1472"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no probe of 1472 bytes passes: the path's MTU is below 1500"), "{said}");
    let output = scene.measure(&["--method", "capacity"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("those of 1372 arrive"), "{said}");
}

#[test]
fn a_member_that_dies_ends_the_measurement_with_partial_results() {
    let Some(mut scene) = scene() else { return };
    let mut runs = scene.command(&["--method", "pk2"]).spawn().unwrap();
    let mut lines = BufReader::new(runs.stdout.take().unwrap()).lines();
    let is_train = |line: &String| line.contains(r#""event":"train""#);
    lines.by_ref().map(Result::unwrap).filter(is_train).nth(2).unwrap();
    let begun = Instant::now();
    scene.fra_runs = None;
    assert_eq!(lines.map(Result::unwrap).find(|line| line.contains("result")), None);
    let mut said = String::new();
    runs.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(runs.wait().unwrap().code(), Some(4), "{said}");
    assert!(begun.elapsed() < PATIENCE, "{said}");
    assert!(said.contains("fra") || said.contains("member"), "{said}");
    assert!(said.contains("(estimate after "), "{said}");
}

#[test]
fn a_measurement_without_a_result_reports_the_reason() {
    let Some(scene) = scene() else { return };
    let output = scene.measure(&["--within", "1ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no result within"), "{}", text(&output.stderr));
}
