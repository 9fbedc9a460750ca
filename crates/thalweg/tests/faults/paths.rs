//! Cases 28, 36 and 37: a download in an emulated Internet loses the path it uses.
//!
//! ```text
//!          ┌ 30 Mbit/s ─ fra ┐
//! client ──┼ 15 Mbit/s ─ nyc ┼── server
//!          └ 6 Mbit/s, direct ┘
//! ```

use crate::{
    host::{Daemon, Host, text},
    in_lab::{self, Running, lab, said, within},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Stdio},
};
use thalweg_lab::{
    client::Lab,
    topology::{LinkChange, Queue},
};
use thalweg_units::ByteSize;

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    [host.fra]
    [host.nyc]
    [host.server]
    [link.direct]
    rate = "6 Mbit/s"
    delay = "10 ms"
    [link.fra]
    rate = "30 Mbit/s"
    delay = "10 ms"
    [link.nyc]
    rate = "15 Mbit/s"
    delay = "10 ms"
    [link.fra-server]
    delay = "5 ms"
    rate = "200 Mbit/s"
    [link.nyc-server]
    delay = "5 ms"
    rate = "200 Mbit/s"
    [link.between]
    delay = "5 ms"
    rate = "200 Mbit/s"
    [[path]]
    from = "client"
    to = "server"
    links = ["direct"]
    [[path]]
    from = "client"
    to = "fra"
    links = ["fra"]
    [[path]]
    from = "client"
    to = "nyc"
    links = ["nyc"]
    [[path]]
    from = "fra"
    to = "server"
    links = ["fra-server"]
    [[path]]
    from = "nyc"
    to = "server"
    links = ["nyc-server"]
    [[path]]
    from = "fra"
    to = "nyc"
    links = ["between"]
"#;

const LENGTH: u32 = 10_000_000;

/// The attempts of a download that does not proceed as the test needs it.
const TRIES: usize = 4;

/// The mesh and the server in the lab; dropped together.
struct Scene {
    lab: Lab,
    fra: Host,
    client: Host,
    fra_runs: Daemon,
    _nyc: (Host, Daemon),
    _server: Running,
    content: Vec<u8>,
}

impl Scene {
    /// `None` if no lab is possible here; the reason is printed.
    fn new() -> Option<Self> {
        let lab = lab(NETWORK)?;
        let settings = format!("{}black_hole = \"3 s\"\n", in_lab::RELAY);
        let (fra, fra_runs) = in_lab::founder(&lab, &settings);
        let (nyc, nyc_runs) = in_lab::relay(&lab, &fra, "nyc", &settings);
        let client = in_lab::client(&lab, &fra, &[("nyc", &nyc)], &["--no-daemon"]);
        let content: Vec<u8> =
            (0..LENGTH).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let www = fra.path("www");
        fs::create_dir(&www).unwrap();
        fs::write(www.join("file.bin"), &content).unwrap();
        let www = www.display().to_string();
        let mut server = lab.tool("server", &["http", &www, "--listen", "0.0.0.0:8000"]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        // Its first line says that it listens.
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let _server = Running(server);
        Some(Self { lab, fra, client, fra_runs, _nyc: (nyc, nyc_runs), _server, content })
    }

    /// Downloads, and runs `then` while the rest is coming over `fra`. Returns the events after that.
    ///
    /// On a busy machine the emulator's rates are not those of the links, and another path may be chosen: then the
    /// download is repeated, because other tests cover the choice.
    fn get(&self, then: impl FnOnce(&Self)) -> String {
        let begun = (1..=TRIES).find_map(|number| self.over_fra(&format!("file-{number}")));
        let (file, get, lines) = begun.expect("downloads that did not choose fra");
        then(self);
        let rest: Vec<_> = lines.collect();
        let output = get.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{rest:?}", text(&output.stderr));
        assert!(fs::read(self.client.path(&file)).unwrap() == self.content, "other bytes");
        fs::remove_file(self.client.path(&file)).unwrap();
        rest.join("\n")
    }

    /// As [`Self::get`], while the link to `fra` has this `fault`. On a busy machine the fault may come so late that
    /// all bytes of `fra` have arrived; then the link is mended and the download repeated. A path that is not given up
    /// is no such case: then the download does not end.
    fn get_during(&self, fault: &LinkChange, mended: &LinkChange) -> String {
        let mut events = String::new();
        for _ in 0..TRIES {
            events = self.get(|scene| scene.lab.set("fra", fault).unwrap());
            if events.lines().any(|line| has_failed(line, "fra")) {
                return events;
            }
            self.lab.set("fra", mended).unwrap();
        }
        events
    }

    /// Starts a download. Returns its later events if it has chosen `fra` and made progress since.
    fn over_fra(
        &self,
        file: &str,
    ) -> Option<(String, Child, impl Iterator<Item = String> + use<>)> {
        let args = ["get", "http://server:8000/file.bin", "-o", file, "--via", "fra,nyc", "--json"];
        let mut get = within(&self.lab, "client", &self.client.command(&args)).spawn().unwrap();
        let mut lines = BufReader::new(get.stdout.take().unwrap()).lines().map(Result::unwrap);
        let chosen = lines.find(|line| line.contains("\"chosen\"")).unwrap_or_default();
        // On a busy machine the rest may arrive before progress is reported.
        let goes_on = chosen.contains("\"fra") && lines.any(|line| line.contains("\"progress\""));
        if goes_on {
            return Some((file.to_owned(), get, lines));
        }
        println!("{file}: {chosen}");
        get.kill().unwrap();
        get.wait().unwrap();
        None
    }
}

/// Whether an event says that the path failed.
fn has_failed(event: &str, path: &str) -> bool {
    event.contains("path_failed") && event.contains(&format!("\"{path}"))
}

/// Checks that the path was given up: it failed, or its rest came by another path first (if the fault came so late that
/// only the end of the file was left).
fn assert_failed(events: &str, path: &str) {
    let failed = |line: &str| has_failed(line, path);
    let passed_by = |line: &str| line.contains("\"hedged\"");
    let given_up = events.lines().any(|line| failed(line) || passed_by(line));
    assert!(given_up, "{path} did not fail: {events}");
}

#[test]
fn a_client_revoked_during_a_download_is_cut_and_uses_the_direct_path() {
    let Some(mut scene) = Scene::new() else { return };
    let events = scene.get(|scene| {
        said(&scene.lab, "fra", &scene.fra, &["mesh", "revoke", "client", "--wait", "60s"]);
    });
    assert_failed(&events, "fra");
    scene.fra_runs.log_until("event=revoked");
}

#[test]
fn a_black_hole_is_given_up_by_the_client_and_by_the_relay() {
    let Some(mut scene) = Scene::new() else { return };
    let [down, up] = [false, true].map(|up| LinkChange { up: Some(up), ..LinkChange::default() });
    let events = scene.get_during(&down, &up);
    assert_failed(&events, "fra");
    scene.fra_runs.log_until("client no longer acknowledges");
}

#[test]
fn a_path_that_loses_large_packets_is_given_up() {
    let Some(scene) = Scene::new() else { return };
    // A queue into which no packet above 1200 bytes fits; acknowledgements pass.
    let [small, large] = [1200, 1 << 20].map(|bytes| {
        let queue = Some(Queue::Bytes(ByteSize::from_bytes(bytes)));
        LinkChange { queue, ..LinkChange::default() }
    });
    let events = scene.get_during(&small, &large);
    assert_failed(&events, "fra");
}
