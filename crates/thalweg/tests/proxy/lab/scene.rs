//! An emulated Internet with a mesh of real nodes, and a server outside of it:
//!
//! ```text
//!          ┌ 40 Mbit/s ─ fra ┐
//! client ──┼ 30 Mbit/s ─ nyc ┼── server: www.example, git.example, deb.example
//!          └ 4 Mbit/s, direct ┘
//! ```
//!
//! The direct path also has a high latency, so that no race depends on how busy the machine is: a known detour starts
//! at once; the direct path starts half a second later, and needs 0.8 s more.

use crate::{
    files::bytes,
    host::{Daemon, Host, text},
    in_lab::{self, Running, lab, within},
    running_proxy::{RunningProxy, program, without_proxies},
};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const NETWORK: &str = r#"
    congestion = "cubic"
    [host.client]
    [host.fra]
    [host.nyc]
    [host.server]
    names = ["www.example", "git.example", "deb.example"]
    [link.direct]
    rate = "4 Mbit/s"
    delay = "400 ms"
    [link.fra]
    rate = "40 Mbit/s"
    delay = "5 ms"
    [link.nyc]
    rate = "30 Mbit/s"
    delay = "5 ms"
    [link.far]
    rate = "200 Mbit/s"
    delay = "5 ms"
    [[path]]
    from = "client"
    to = "server"
    links = ["direct"]
    [[path]]
    from = "client"
    to = "fra"
    links = ["fra"]
    [link.oracle-nyc]
    rate = "200 Mbit/s"
    delay = "5 ms"
    [[path]]
    from = "client"
    to = "nyc"
    links = ["nyc"]
    [[path]]
    from = "fra"
    to = "nyc"
    links = ["oracle-nyc"]
    [default]
    links = ["far"]
"#;

/// The ports of nginx without and with TLS, and of lighttpd with git.
const PLAIN: u16 = 8080;
const TLS: u16 = 8443;
pub const GIT: u16 = 8090;

/// Seven seconds over the direct path.
const LENGTH: u32 = 3_000_000;

/// The lab with all hosts and servers; ended when dropped.
pub struct Scene {
    pub dir: TempDir,
    pub content: Vec<u8>,
    fra: Host,
    lab: Lab,
    client: Host,
    _nyc: Host,
    _nodes: [Daemon; 2],
    servers: Vec<Running>,
}

/// Runs a command that must succeed.
pub fn succeeds(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?}: {said}", output.status);
    output
}

impl Scene {
    /// A mesh of two relays, with the client as a member without a daemon, and a file server.
    pub fn new() -> Option<Self> {
        Self::joined_with(&["--no-daemon"])
    }

    /// As [`Self::new`], but the client is a node; see [`Scene::daemon`].
    pub fn of_nodes() -> Option<Self> {
        Self::joined_with(&[])
    }

    fn joined_with(options: &[&str]) -> Option<Self> {
        let lab = lab(NETWORK)?;
        let (fra, fra_runs) = in_lab::founder(&lab, in_lab::RELAY);
        let (nyc, nyc_runs) = in_lab::relay(&lab, &fra, "nyc", in_lab::RELAY);
        let client = in_lab::client(&lab, &fra, &[("fra", &fra), ("nyc", &nyc)], options);
        let (dir, content) = (TempDir::new().unwrap(), bytes(LENGTH));
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www/big.bin"), &content).unwrap();
        let _nodes = [fra_runs, nyc_runs];
        let servers = Vec::new();
        let mut scene = Self { dir, content, fra, lab, client, _nyc: nyc, _nodes, servers };
        scene.serve_files();
        Some(scene)
    }

    /// Starts the distribution's nginx on both ports.
    fn serve_files(&mut self) {
        let at = self.dir.path().display();
        let mut certify = program("openssl", self.dir.path());
        certify.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        certify.args(["-nodes", "-days", "2", "-subj", "/CN=www.example"]);
        certify.args(["-addext", "subjectAltName=DNS:www.example"]);
        certify.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        certify.args(["-keyout", "key.pem", "-out", "cert.pem"]);
        succeeds(certify);
        let http = format!(
            "sendfile on;\ntypes {{ text/html html; image/svg+xml svg; }}\n\
             server {{ listen [::]:{PLAIN} ipv6only=off; listen [::]:{TLS} ssl ipv6only=off;\n\
             ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem; root {at}/www; }}"
        );
        self.servers.push(in_lab::nginx(&self.lab, self.dir.path(), &http, PLAIN));
    }

    /// Starts a server in the server's host, and waits until it listens there.
    pub fn serve(&mut self, command: &Command, port: u16) {
        self.servers.push(in_lab::serve(&self.lab, command, port));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://www.example:{PLAIN}/{name}")
    }

    pub fn tls_url(&self, name: &str) -> String {
        format!("https://www.example:{TLS}/{name}")
    }

    /// A program of the distribution on the client, in the scratch directory.
    pub fn on_client(&self, command: &Command) -> Command {
        within(&self.lab, "client", command)
    }

    pub fn program(&self, name: &str) -> Command {
        program(name, self.dir.path())
    }

    /// `thalweg ARGS…` on the client, with the client's state.
    fn thalweg(&self, args: &[&str]) -> Command {
        let mut command = self.client.command(args);
        without_proxies(&mut command);
        command.current_dir(self.dir.path());
        command
    }

    /// Downloads with `thalweg get`, so that the client learns the paths to that origin.
    pub fn learn_paths_to(&self, url: &str) {
        self.download(url, &[]);
    }

    /// `thalweg proxy` on the client.
    pub fn proxy(&self) -> RunningProxy {
        let args = ["proxy", "--listen", "127.0.0.1:3128", "--json"];
        RunningProxy::spawn(self.on_client(&self.thalweg(&args)))
    }

    /// Runs a command with `thalweg run` on the client. Returns the messages of the proxy.
    pub fn run_by_proxy(&self, command: &Command) -> String {
        let mut run = self.thalweg(&["run", "--verbose", "--"]);
        run.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => run.env(name, value),
                None => run.env_remove(name),
            };
        }
        text(&succeeds(self.on_client(&run)).stderr)
    }

    /// Runs `thalweg ARGS…` on the oracle's host.
    pub fn on_oracle(&self, args: &[&str]) {
        succeeds(within(&self.lab, "fra", &self.fra.command(args)));
    }

    /// Lets the client learn that this relay is fast, and nothing about other paths, so that its next tunnel uses the
    /// relay.
    pub fn learn_only(&self, relay: &str) {
        self.download(&self.tls_url("big.bin"), &["--path", relay]);
    }

    fn download(&self, url: &str, further: &[&str]) {
        let mut args = vec!["get", url, "-o", "learnt"];
        if url.starts_with("https:") {
            args.extend(["--cacert", "cert.pem"]);
        }
        args.extend(further);
        succeeds(self.on_client(&self.thalweg(&args)));
        self.assert_complete("learnt");
        fs::remove_file(self.path("learnt")).unwrap();
    }

    /// Starts the client's own daemon, which learns of each new roster at once.
    pub fn daemon(&self) -> Daemon {
        Daemon::spawn(&mut self.on_client(&self.client.command(&["node", "--json"])))
    }

    /// Cuts the connection between this relay and the oracle.
    pub fn cut_off(&self, relay: &str) {
        let down = LinkChange { up: Some(false), ..LinkChange::default() };
        self.lab.set(&format!("oracle-{relay}"), &down).unwrap();
    }

    /// Checks that the file in the scratch directory equals the server's.
    pub fn assert_complete(&self, name: &str) {
        assert!(fs::read(self.path(name)).unwrap() == self.content, "{name}: other bytes");
    }
}

/// The events of this kind whose path is a relay.
pub fn by_relays<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let is_relay = |path: &Value| ["fra", "nyc"].iter().any(|r| path.as_str() == Some(r));
    events.iter().filter(|e| e["event"] == kind && is_relay(&e["path"])).collect()
}
