//! Runs programs inside the hosts of an emulated Internet.

use crate::host::{Daemon, Host, text, until};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use thalweg_lab::{client::Lab, topology::Topology};

/// Settings that let a relay connect to every host of a lab.
pub const RELAY: &str =
    "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\nports = [\"1-65535\"]\n";

/// Starts the lab. `None` if it is not possible; the reason is printed. In CI it must be possible, unless THALWEG_SKIP
/// is set.
pub fn lab(network: &str) -> Option<Lab> {
    let open = fs::File::options().read(true).write(true).open("/dev/net/tun");
    let started = match open {
        Ok(_) => Lab::start(&Topology::from_toml(network).unwrap()).map_err(|e| e.to_string()),
        Err(e) => Err(format!("/dev/net/tun: {e}")),
    };
    let told = started.inspect_err(|why| {
        let set = |name| std::env::var_os(name).is_some();
        assert!(!set("CI") || set("THALWEG_SKIP"), "no lab here: {why}");
        eprintln!("skipped: no lab here: {why}");
    });
    told.ok()
}

/// The same command inside a host of the lab.
pub fn within(lab: &Lab, place: &str, command: &Command) -> Command {
    let mut inside = lab.command(place, command.get_program());
    inside.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}

/// Runs a command inside a host; it must succeed.
pub fn ok(lab: &Lab, place: &str, command: &Command) -> Output {
    let output = within(lab, place, command).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// Runs a command of `host` in the lab's host `place`; it must succeed. Returns standard output.
pub fn said(lab: &Lab, place: &str, host: &Host, args: &[&str]) -> String {
    text(&ok(lab, place, &host.command(args)).stdout).trim().to_owned()
}

/// Founds a mesh at `fra`, and starts its daemon there with these settings.
pub fn founder(lab: &Lab, settings: &str) -> (Host, Daemon) {
    let fra = Host::new();
    said(lab, "fra", &fra, &["mesh", "init", "--name", "fra", "--address", "fra:7373"]);
    let runs = node(lab, "fra", &fra, settings);
    (fra, runs)
}

/// A relay of `fra`'s mesh at the lab's host of its name, and its daemon.
#[allow(dead_code, reason = "some labs have one relay")]
pub fn relay(lab: &Lab, fra: &Host, name: &str, settings: &str) -> (Host, Daemon) {
    let host = Host::new();
    let token = said(lab, "fra", fra, &["mesh", "token", "--role", "relay"]);
    let address = format!("{name}:7373");
    said(lab, name, &host, &["mesh", "join", &token, "--name", name, "--address", &address]);
    let runs = node(lab, name, &host, settings);
    (host, runs)
}

/// A member of `fra`'s mesh at the lab's host `client`, joined with these options; all `relays` know it.
pub fn client(lab: &Lab, fra: &Host, relays: &[(&str, &Host)], options: &[&str]) -> Host {
    let client = Host::new();
    let token = said(lab, "fra", fra, &["mesh", "token"]);
    let join = ["mesh", "join", &token, "--name", "client"];
    said(lab, "client", &client, &[&join, options].concat());
    for (place, host) in relays {
        until("the relays know the client", || {
            said(lab, place, host, &["mesh", "members"]).contains("client")
        });
    }
    client
}

/// Starts the daemon of `host` at the lab's `place`, with these settings.
pub fn node(lab: &Lab, place: &str, host: &Host, settings: &str) -> Daemon {
    let file = host.path("node.toml");
    fs::write(&file, settings).unwrap();
    let file = file.display().to_string();
    let args = ["node", "--json", "--listen", "0.0.0.0:7373", "--config", &file];
    Daemon::spawn(&mut within(lab, place, &host.command(&args)))
}

/// A process that is killed when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts a server in the lab's host `server`, and waits until it listens there.
#[allow(dead_code, reason = "the tests of faults have the lab's own server")]
pub fn serve(lab: &Lab, command: &Command, port: u16) -> Running {
    let mut command = within(lab, "server", command);
    let running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = Running(running);
    let mut cat = Command::new("cat");
    cat.args(["/proc/net/tcp", "/proc/net/tcp6"]);
    let local = format!(":{port:04X} ");
    let state = |line: &str| line.split_whitespace().nth(3) == Some("0A");
    until("the server listens", || {
        let tables = text(&ok(lab, "server", &cat).stdout);
        tables.lines().any(|line| line.contains(&local) && state(line))
    });
    running
}

/// The distribution's nginx with these settings of `http`, in the lab's host `server`; it writes only below `dir`.
#[allow(dead_code, reason = "the tests of the mesh have no use for it")]
pub fn nginx(lab: &Lab, dir: &Path, http: &str, port: u16) -> Running {
    let at = dir.display();
    let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let settings = format!(
        "user root;\ndaemon off;\nmaster_process off;\nerror_log stderr;\npid {at}/nginx.pid;\n\
         events {{ worker_connections 256; }}\nhttp {{ access_log off;\n{temps}{http}\n}}\n"
    );
    let file = dir.join("nginx.conf");
    fs::write(&file, settings).unwrap();
    let mut nginx = Command::new("/usr/sbin/nginx");
    nginx.args(["-e", "stderr", "-c"]).arg(file);
    serve(lab, &nginx, port)
}
