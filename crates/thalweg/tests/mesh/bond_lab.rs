//! A client with two interfaces in an emulated Internet:
//!
//! ```text
//! client ══ wan0, wan1: 8 Mbit/s each ══ fra ── server, which knows no ranges
//! ```

use crate::{
    host::{Daemon, Host, text, until},
    in_lab::{lab, within},
};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    interfaces = 2
    [host.fra]
    [host.server]
    [link.wan0]
    rate = "8 Mbit/s"
    delay = "10 ms"
    [link.wan1]
    rate = "8 Mbit/s"
    delay = "10 ms"
    [link.far]
    rate = "200 Mbit/s"
    delay = "2 ms"
    [[path]]
    from = "client:0"
    to = "fra"
    links = ["wan0"]
    [[path]]
    from = "client:1"
    to = "fra"
    links = ["wan1"]
    [[path]]
    from = "client:0"
    to = "server"
    links = ["wan0", "far"]
    [[path]]
    from = "client:1"
    to = "server"
    links = ["wan1", "far"]
    [default]
    links = ["far"]
"#;

const SETTINGS: &str =
    "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\nports = [\"1-65535\"]\n";

const LENGTH: usize = 4_000_000;

/// A server of the kind that answers each request with all of it.
const SERVER: &str = "
import http.server, socketserver, sys
class Whole(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(('0.0.0.0', 8080), Whole).serve_forever()
";

fn ok(lab: &Lab, place: &str, command: &Command) -> Output {
    let output = within(lab, place, command).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The file's server, once it listens.
fn serve(lab: &Lab, dir: &Path) -> Running {
    let mut python = Command::new("python3");
    python.args(["-c", SERVER]).current_dir(dir);
    let mut python = within(lab, "server", &python);
    let running = Running(python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let listens = || {
        let mut cat = Command::new("cat");
        let table = text(&ok(lab, "server", cat.arg("/proc/net/tcp")).stdout);
        table.lines().any(|line| line.contains(":1F90 ") && line.contains(" 0A "))
    };
    until("the server listens", listens);
    running
}

/// Bytes that came down the link so far.
fn came(lab: &Lab, link: &str) -> u64 {
    let stats = lab.stats(false).unwrap();
    stats.links.iter().find(|l| l.name == format!("{link}.rev")).unwrap().bytes
}

/// A mesh, a file, and the client's way to them.
struct Scene {
    lab: Lab,
    client: Host,
    bytes: Vec<u8>,
    _server: Running,
    _dir: TempDir,
    _fra: (Host, Daemon),
}

const URL: &str = "http://server:8080/big.bin";

fn scene() -> Option<Scene> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return None;
    }
    let lab = lab(NETWORK)?;
    let [fra, client] = [Host::new(), Host::new()];
    let args = ["init", "--name", "fra", "--address", "fra:7373"];
    ok(&lab, "fra", &fra.command(&args));
    let file = fra.path("node.toml");
    fs::write(&file, SETTINGS).unwrap();
    let file = file.display().to_string();
    let args = ["node", "--json", "--listen", "0.0.0.0:7373", "--config", &file];
    let fra_runs = Daemon::spawn(&mut within(&lab, "fra", &fra.command(&args)));
    let token = text(&ok(&lab, "fra", &fra.command(&["token"])).stdout);
    let join = ["join", token.trim(), "--name", "client", "--no-daemon"];
    ok(&lab, "client", &client.command(&join));
    let knows = || text(&ok(&lab, "fra", &fra.command(&["roster"])).stdout).contains("client");
    until("the relay knows the client", knows);

    let dir = TempDir::new().unwrap();
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * i / 251) as u8).collect();
    fs::write(dir.path().join("big.bin"), &bytes).unwrap();
    let _server = serve(&lab, dir.path());
    Some(Scene { lab, client, bytes, _server, _dir: dir, _fra: (fra, fra_runs) })
}

#[test]
fn one_connection_to_an_old_server_uses_both_interfaces() {
    let Some(Scene { lab, client, bytes, .. }) = &scene() else { return };
    for path in [["--via", "fra"], ["--path", "fra%bond"]] {
        let before = ["wan0", "wan1"].map(|link| came(lab, link));
        let args = [&["get", URL, "-o", "file", "--json"][..], &path].concat();
        let output = ok(lab, "client", &client.command(&args));
        assert!(fs::read(client.path("file")).unwrap() == *bytes, "{path:?}: other bytes");
        fs::remove_file(client.path("file")).unwrap();
        let said = text(&output.stdout);
        let chosen = said.lines().find(|line| line.contains("\"chosen\"")).unwrap_or_default();
        assert!(chosen.contains("fra%bond"), "{path:?}: {said}{}", text(&output.stderr));
        let after = ["wan0", "wan1"].map(|link| came(lab, link));
        let each = [after[0] - before[0], after[1] - before[1]];
        println!("{path:?}: {each:?} bytes of {LENGTH} by the interfaces");
        // With equal links half of it goes by each, but for the beginning and the end.
        assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 3), "{path:?}: {each:?}");
    }
}

/// A link that loses all, or leads nowhere, in the middle of a download from a server where nothing
/// can be asked for again; and is back before the end.
#[test]
fn an_old_servers_stream_outlives_either_interface() {
    let Some(Scene { lab, client, bytes, .. }) = &scene() else { return };
    let lost = LinkChange::parse(&["loss=100%"]).unwrap();
    let down = LinkChange::up(false);
    let whole = LinkChange::parse(&["loss=0%", "up"]).unwrap();
    let mut args = vec!["get", URL, "-o", "file", "--json"];
    args.extend(["--path", "fra%bond"]);
    for (broken, link) in [(&lost, "wan0"), (&down, "wan1")] {
        let before = ["wan0", "wan1"].map(|link| came(lab, link));
        let mut running = within(lab, "client", &client.command(&args)).spawn().unwrap();
        let each = || {
            let now = ["wan0", "wan1"].map(|link| came(lab, link));
            [now[0] - before[0], now[1] - before[1]]
        };
        until("both carry it", || each().iter().all(|bytes| *bytes > 400_000));
        lab.set(link, broken).unwrap();
        let other = if link == "wan0" { 1 } else { 0 };
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
