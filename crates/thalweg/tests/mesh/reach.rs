//! Members that cannot be dialled: reached through relays by every command, also when a relay dies.

use crate::host::{Daemon, Host, text, until};
use std::fs;

const LENGTH: usize = 3_000_000;

/// A mesh of two relays and of `lap`, whose roster entry has no address, and a client without a daemon.
struct Scene {
    _fra: Host,
    fra_runs: Option<Daemon>,
    nyc_runs: Option<Daemon>,
    lap: Host,
    _nyc: Host,
    _lap_runs: Daemon,
    ber: Host,
}

/// Settings with which a node offers `data`, accepts files into `inbox`, and receives casts into `casts`.
pub fn settings(host: &Host) -> String {
    let [data, inbox, casts] = ["data", "inbox", "casts"].map(|name| {
        let path = host.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    });
    format!(
        "[files]\noffer = [{{ path = {data:?}, to = [\"*\"] }}]\n\
         accept = [{{ path = {inbox:?}, from = [\"*\"] }}]\n\
         [cast]\nkeep_free = \"0 B\"\ninbox = [{{ path = {casts:?}, from = [\"*\"] }}]\n"
    )
}

fn scene() -> Scene {
    let fra = Host::founder();
    let fra_runs = Some(fra.start());
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = Some(nyc.start());
    let lap = Host::joined(&fra, "lap", &[], &[]);
    let lap_runs = lap.start_under(&settings(&lap), None);
    let ber = Host::joined(&fra, "ber", &[], &["--no-daemon"]);
    let scene = Scene { _fra: fra, fra_runs, nyc_runs, lap, _nyc: nyc, _lap_runs: lap_runs, ber };
    scene.until_relays(&["fra", "nyc"]);
    scene
}

impl Scene {
    /// Waits until the client's roster says that lap is reached through these relays.
    fn until_relays(&self, relays: &[&str]) {
        until("the roster has the relays of lap", || self.relays() == relays);
    }

    /// The relays of lap, sorted by name.
    fn relays(&self) -> Vec<String> {
        let roster = self.ber.json(&["mesh", "members", "--json"]);
        let members = roster["members"].as_array().unwrap();
        let lap = members.iter().find(|member| member["name"] == "lap").unwrap();
        assert_eq!(lap["addresses"], serde_json::json!([]), "{lap}");
        let relays = lap["relays"].as_array().unwrap().iter();
        let mut relays: Vec<_> = relays.map(|name| name.as_str().unwrap().to_owned()).collect();
        relays.sort();
        relays
    }

    /// Collects the file from lap, and compares it.
    fn gather(&self, file: &str, into: &str) {
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        fs::write(self.lap.path("data").join(file), &bytes).unwrap();
        let source = format!("lap:{}/{file}", self.lap.path("data").display());
        self.ber.ok(&["gather", &source, "--into", into]);
        assert!(fs::read(self.ber.path(into).join(file)).unwrap() == bytes);
    }
}

#[test]
fn every_command_reaches_a_member_without_an_address() {
    let scene = scene();
    let Scene { lap, ber, .. } = &scene;
    let status = text(&lap.run(&["status"]).stdout);
    assert!(status.contains("reached  through "), "{status}");
    let members = ber.ok(&["mesh", "members"]);
    let line = members.lines().find(|line| line.starts_with("lap")).unwrap();
    assert!(line.contains("through ") && line.contains("fra"), "{members}");

    scene.gather("collected", "here");
    fs::write(ber.path("sent"), vec![7; LENGTH]).unwrap();
    let inbox = format!("lap:{}", lap.path("inbox").display());
    ber.ok(&["send", "sent", &inbox, "--via", "none"]);
    assert_eq!(fs::read(lap.path("inbox/sent")).unwrap(), vec![7; LENGTH]);
    fs::write(ber.path("image"), vec![9; LENGTH]).unwrap();
    ber.ok(&["cast", "image", "--to", "lap"]);
    assert_eq!(fs::read(lap.path("casts/image")).unwrap(), vec![9; LENGTH]);
    for back in [&[][..], &["--back"]] {
        let args = ["measure", "lap", "--within", "1s", "--json"];
        let found = ber.json(&[&args, back].concat());
        assert_eq!((&found["of"], found["value"].as_f64() > Some(1e6)), (&"tcp_rate".into(), true));
        assert!(["fra", "nyc"].contains(&found["through"].as_str().unwrap()), "{found}");
    }
    // Trains of datagrams do not pass; whoever asks for them is told so.
    let said = ber.fails(4, &["measure", "lap", "--method", "capacity"]);
    assert!(said.contains("reached through relays, which pass only TCP"), "{said}");
}

#[test]
fn another_relay_takes_over_when_one_dies_and_the_lost_one_is_used_again() {
    let mut scene = scene();
    // Killed: nobody is told.
    drop(scene.nyc_runs.take());
    scene.gather("at-once", "first");
    scene.until_relays(&["fra"]);
    scene.gather("later", "second");
    scene.nyc_runs = Some(scene._nyc.start());
    scene.until_relays(&["fra", "nyc"]);

    // Without any relay the client says which ones failed, and what to try.
    drop(scene.nyc_runs.take());
    drop(scene.fra_runs.take());
    let source = format!("lap:{}/later", scene.lap.path("data").display());
    let output = scene.ber.run(&["gather", &source, "--into", "third"]);
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("fra") && said.contains("nyc"), "{said}");
    assert!(said.contains("`thalweg status` on lap"), "{said}");
}

#[test]
fn a_relay_says_why_it_does_not_lead_to_a_member() {
    let fra = Host::founder();
    let quota =
        "[relay]\nallow_to = [\"127.0.0.0/8\"]\n[relay.quota]\nbytes_per_day = \"100 kB\"\n";
    let _fra_runs = fra.start_under(quota, None);
    let lap = Host::joined(&fra, "lap", &[], &[]);
    let _lap_runs = lap.start_under(&settings(&lap), None);
    until("the roster has lap's relay", || fra.ok(&["mesh", "members"]).contains("through fra"));
    fs::write(lap.path("data/file"), vec![1; 1_000_000]).unwrap();
    let source = format!("lap:{}/file", lap.path("data").display());
    // The relay's own host is led to lap as well, until lap's bytes are used up.
    let output = fra.run(&["gather", &source, "--into", "here"]);
    assert!(!output.status.success(), "{}", text(&output.stderr));
    let output = fra.run(&["gather", &source, "--into", "here"]);
    let said = text(&output.stderr);
    assert!(said.contains("relay fra does not allow it"), "{said}");
    // A node that is set to be dialled stands nowhere.
    let out = Host::joined(&fra, "out", &[], &[]);
    let _out_runs = out.start_under("reach = \"direct\"\n", None);
    let output = fra.run(&["gather", "out:/data", "--into", "here"]);
    let said = text(&output.stderr);
    assert!(said.contains("node `out` has no address in the roster"), "{said}");
}
