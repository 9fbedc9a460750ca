//! A client with two interfaces in an emulated Internet:
//!
//! ```text
//! client ══ wan0, wan1: 8 Mbit/s each ══ fra ── server, which knows no ranges
//! ```
//!
//! The server is far from the client, so that no race depends on how busy the machine is: where the
//! direct path has answered, a bond is waited for twice as long as that took.

use crate::{
    host::{Daemon, Host, text, until},
    in_lab::{self, Running, lab, ok, within},
    two_links::{LINKS, came, came_since, network, whole_files},
};
use std::{fs, process::Command};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const FURTHER: &str = r#"
    [host.fra]
    [host.server]
    [link.near]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [link.far]
    rate = "200 Mbit/s"
    delay = "400 ms"
    [default]
    links = ["near"]
"#;

pub const LENGTH: usize = 4_000_000;

/// A mesh, a file, and a client of both.
pub struct Scene {
    pub lab: Lab,
    pub client: Host,
    pub bytes: Vec<u8>,
    /// The relay.
    pub fra: Option<(Host, Daemon)>,
    _server: Running,
    _dir: TempDir,
}

pub const URL: &str = "http://server:8080/big.bin";

pub fn scene() -> Option<Scene> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let lab = lab(&network(&[("fra", &[]), ("server", &["far"])], FURTHER))?;
    let (fra, fra_runs) = in_lab::founder(&lab, in_lab::RELAY);
    let client = in_lab::client(&lab, &fra, &[("fra", &fra)], &["--no-daemon"]);
    let dir = TempDir::new().unwrap();
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * i / 251) as u8).collect();
    fs::write(dir.path().join("big.bin"), &bytes).unwrap();
    let _server = whole_files(&lab, dir.path(), "HTTP/1.0");
    Some(Scene { lab, client, bytes, fra: Some((fra, fra_runs)), _server, _dir: dir })
}

#[test]
fn one_connection_to_an_old_server_uses_both_interfaces() {
    let Some(Scene { lab, client, bytes, .. }) = &scene() else { return };
    for path in [["--via", "fra"], ["--path", "fra%bond"]] {
        let before = came(lab);
        let args = [&["get", URL, "-o", "file", "--json"][..], &path].concat();
        let output = ok(lab, "client", &client.command(&args));
        assert!(fs::read(client.path("file")).unwrap() == *bytes, "{path:?}: other bytes");
        fs::remove_file(client.path("file")).unwrap();
        let said = text(&output.stdout);
        let chosen = said.lines().find(|line| line.contains("\"chosen\"")).unwrap_or_default();
        assert!(chosen.contains("fra%bond"), "{path:?}: {said}{}", text(&output.stderr));
        let each = came_since(lab, before);
        println!("{path:?}: {each:?} bytes of {LENGTH} by the interfaces");
        // With equal links, each carries half, except at the beginning and the end.
        assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 3), "{path:?}: {each:?}");
    }
}

/// One link loses everything, or goes down, during a download from a server that does not support ranges, so that
/// nothing can be requested again. The link recovers before the end.
#[test]
fn a_stream_of_an_old_server_survives_the_loss_of_either_interface() {
    let Some(Scene { lab, client, bytes, .. }) = &scene() else { return };
    let lost = LinkChange::parse(&["loss=100%"]).unwrap();
    let down = LinkChange::up(false);
    let whole = LinkChange::parse(&["loss=0%", "up"]).unwrap();
    let mut args = vec!["get", URL, "-o", "file", "--json"];
    args.extend(["--path", "fra%bond"]);
    for (broken, n) in [(&lost, 0), (&down, 1)] {
        let link = LINKS[n];
        let before = came(lab);
        let mut running = within(lab, "client", &client.command(&args)).spawn().unwrap();
        let each = || came_since(lab, before);
        until("both carry it", || each().iter().all(|bytes| *bytes > 400_000));
        lab.set(link, broken).unwrap();
        let other = 1 - n;
        let then = each()[other];
        until("the other carries on", || each()[other] > then + 600_000);
        lab.set(link, &whole).unwrap();
        let ended = running.wait().unwrap();
        assert!(ended.success(), "{link}");
        assert!(fs::read(client.path("file")).unwrap() == *bytes, "{link}: other bytes");
        fs::remove_file(client.path("file")).unwrap();
        println!("{link} broken: {:?} bytes by the interfaces", each());
    }
}
