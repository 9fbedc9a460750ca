//! `gather` and `send` on a client with two interfaces, as its settings allow:
//!
//! ```text
//! client ══ wan0, wan1: 8 Mbit/s each ══ fra
//! ```

use crate::{
    host::{Daemon, Host, text},
    in_lab::{self, lab, within},
    two_links::{LINKS, network},
};
use std::{fs, process::Output};
use thalweg_lab::client::Lab;

/// The bytes allowed beyond a cap: the longest chunk.
const CHUNK: u64 = 256 << 10;

/// The bytes of requests to the oracle, which leave by the kernel's choice of interface.
const ORACLE_BYTES: u64 = 10_000;

/// The bytes allowed besides content.
const CONTROL_BYTES: u64 = 100_000;

/// A file at `fra` that the client may fetch, and a directory to which it may send.
struct Scene {
    lab: Lab,
    client: Host,
    bytes: Vec<u8>,
    fra: (Host, Daemon),
}

impl Scene {
    fn new(length: u64) -> Option<Self> {
        let further = "[host.fra]\n[link.near]\nrate = \"200 Mbit/s\"\ndelay = \"2 ms\"\n\
                       [default]\nlinks = [\"near\"]\n";
        let lab = lab(&network(&[("fra", &[])], further))?;
        let dir = tempfile::TempDir::new().unwrap().keep();
        let at = dir.display();
        let settings = format!(
            "[measure]\nenabled = false\n[files]\noffer = [{{ path = \"{at}\", to = [\"*\"] }}]\n\
             accept = [{{ path = \"{at}\", from = [\"*\"] }}]\n"
        );
        let fra = in_lab::founder(&lab, &settings);
        let client = in_lab::client(&lab, &fra.0, &[("fra", &fra.0)], &["--no-daemon"]);
        let bytes: Vec<u8> = (0..length).map(|i| (i * i / 251) as u8).collect();
        fs::write(dir.join("big.bin"), &bytes).unwrap();
        std::os::unix::fs::symlink(&dir, client.path("there")).unwrap();
        Some(Self { lab, client, bytes, fra })
    }

    /// Writes the policies of wan0 and wan1.
    fn allow(&self, policies: [&str; 2]) {
        let mut text = "[interfaces]\n".to_owned();
        for (link, policy) in LINKS.iter().zip(policies).filter(|(_, policy)| !policy.is_empty()) {
            text += &format!("[[interfaces.policy]]\nname = \"{link}\"\n{policy}\n");
        }
        fs::create_dir_all(self.client.path("config/thalweg")).unwrap();
        fs::write(self.client.path("config/thalweg/config.toml"), text).unwrap();
    }

    /// The path of the directory at `fra`.
    fn there(&self) -> String {
        fs::read_link(self.client.path("there")).unwrap().display().to_string()
    }

    /// Runs a command. Returns its output, and the bytes that crossed each link in both directions.
    fn during(&self, args: &[&str]) -> (Output, [u64; 2]) {
        let crossed = || {
            let stats = self.lab.stats(false).unwrap();
            LINKS.map(|link| {
                let halves = [format!("{link}.fwd"), format!("{link}.rev")];
                let halves = stats.links.iter().filter(|l| halves.contains(&l.name));
                halves.map(|l| l.bytes).sum::<u64>()
            })
        };
        let before = crossed();
        let output = within(&self.lab, "client", &self.client.command(args)).output().unwrap();
        let now = crossed();
        let each = [now[0] - before[0], now[1] - before[1]];
        println!("{args:?}: {each:?} bytes by the interfaces: {}", text(&output.stderr));
        (output, each)
    }

    fn gather(&self, into: &str, more: &[&str]) -> (Output, [u64; 2]) {
        let from = format!("fra:{}/big.bin", self.there());
        let got =
            self.during(&[&["gather", &from, "--into", into, "--via", "none"], more].concat());
        if got.0.status.success() {
            let file = self.client.path(into).join("big.bin");
            assert!(fs::read(file).unwrap() == self.bytes, "other bytes");
        }
        got
    }

    fn send(&self, more: &[&str]) -> (Output, [u64; 2]) {
        fs::write(self.client.path("sent.bin"), &self.bytes).unwrap();
        let to = format!("fra:{}", self.there());
        let sent = self.during(&[&["send", "sent.bin", &to, "--via", "none"], more].concat());
        let file = self.client.path("there/sent.bin");
        if sent.0.status.success() {
            assert!(fs::read(&file).unwrap() == self.bytes, "other bytes");
            fs::remove_file(file).unwrap();
        }
        sent
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The founder may still read it; the directory belongs to the test.
        _ = fs::remove_dir_all(self.there());
        _ = &self.fra;
    }
}

#[test]
fn a_forbidden_interface_is_unused_and_a_cap_ends_a_transfer_without_another_one() {
    let length = 4_000_000;
    let Some(scene) = Scene::new(length) else { return };
    for policies in [["tier = \"never\"", ""], ["cap = \"1 MB\"", ""]] {
        scene.allow(policies);
        for (output, each) in [scene.gather(&policies[0][..3], &[]), scene.send(&[])] {
            assert!(output.status.success(), "{}", text(&output.stderr));
            let most = if policies[0].contains("never") { ORACLE_BYTES } else { 1_000_000 };
            assert!(each[0] < most && each[1] > length / 2, "{policies:?}: {each:?}");
        }
    }

    // All usable interfaces have a cap.
    let cap = 2_000_000;
    for work in ["gather", "send"] {
        // This file records what was used of the cap.
        _ = fs::remove_file(scene.client.state().join("interfaces.json"));
        scene.allow(["tier = \"never\"", "cap = \"2 MB\""]);
        let work = || if work == "gather" { scene.gather("capped", &[]) } else { scene.send(&[]) };
        let (output, each) = work();
        assert!(!output.status.success(), "{}", text(&output.stdout));
        assert!(each[0] < ORACLE_BYTES && each[1] > cap / 3 && each[1] < cap + CHUNK, "{each:?}");
        let (output, each) = work();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("interfaces status"), "{said}");
        assert!(each[0] < ORACLE_BYTES && each[1] < CONTROL_BYTES, "{each:?}");
    }
}

#[test]
fn a_priced_interface_is_used_only_as_far_as_the_deadline_needs_it() {
    let length = 12_000_000;
    let Some(scene) = Scene::new(length) else { return };
    scene.allow(["price = \"5 / GB\"", ""]);
    for within in ["10min", "9s"] {
        let within = ["--within", within];
        for (output, each) in [scene.gather(within[1], &within), scene.send(&within)] {
            assert!(output.status.success(), "{}", text(&output.stderr));
            match within[1] {
                "10min" => assert!(each[0] < CONTROL_BYTES, "nothing need be paid: {each:?}"),
                // The free interface alone takes 13 s.
                _ => assert!(each[0] > length / 12 && each[1] > each[0], "{each:?}"),
            }
        }
    }
}
