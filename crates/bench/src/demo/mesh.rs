//! A mesh of the lab's hosts, founded and joined with the commands that a user would type.

use super::network::{CLIENT, RELAYS};
use super::process::{Running, TICK};
use super::scratch::Scratch;
use super::web::WEB_PORT;
use anyhow::{Context, bail};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use thalweg_console::note;
use thalweg_experiment::run::stop::StopFlag;
use thalweg_lab::client::Lab;

/// The host that founds the mesh: the oracle, and a relay like the others.
pub const ORACLE: &str = RELAYS[0];
/// The nodes' port.
const PORT: u16 = 7373;
/// The lab's addresses are private; relays connect to them only if the settings allow it.
const LAB_ADDRESSES: &str = r#"["10.0.0.0/8", "fd54::/16"]"#;
/// Nodes have a new roster after one round trip; the rest is a margin for a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// The hosts of the demonstration, on which it runs commands as a user would.
#[derive(Clone, Copy)]
pub struct Hosts<'a> {
    /// The program `thalweg`.
    pub product: &'a Path,
    /// The running lab.
    pub lab: &'a Lab,
    /// Holds the state directory of each host and the settings of all hosts.
    pub scratch: &'a Scratch,
    /// Set by Ctrl-C.
    pub stop: &'a StopFlag,
}

impl Hosts<'_> {
    /// The command `thalweg ARGS…` on a host, with that host's own state directory.
    pub fn thalweg(&self, host: &str, args: &[&str]) -> Command {
        let mut command = self.lab.command(host, self.product);
        command.args(args);
        command.env("THALWEG_STATE", self.scratch.path(&format!("state-{host}")));
        // The settings of the user who runs the demonstration must not apply.
        command.env("XDG_CONFIG_HOME", self.scratch.path("settings"));
        command
    }

    /// Runs the command to its end and returns its output.
    fn ask(&self, host: &str, args: &[&str]) -> anyhow::Result<String> {
        let running = Running::start(self.thalweg(host, args), self.scratch, "command")?;
        let what = || format!("`thalweg {}` on {host}", args[..args.len().min(2)].join(" "));
        running.finish(self.scratch, self.stop).with_context(what)
    }

    fn write_settings(&self) -> anyhow::Result<()> {
        let directory = self.scratch.path("settings/thalweg");
        fs::create_dir_all(&directory)?;
        let text = format!("[relay]\nallow_to = {LAB_ADDRESSES}\nports = [\"{WEB_PORT}\"]\n");
        Ok(fs::write(directory.join("config.toml"), text)?)
    }
}

/// A running `thalweg node`.
pub struct RelayNode {
    running: Running,
    name: &'static str,
}

impl RelayNode {
    /// Starts the daemon on a host that is a member.
    fn start(hosts: &Hosts<'_>, name: &'static str) -> anyhow::Result<Self> {
        let command = hosts.thalweg(name, &["node", "--json"]);
        let running = Running::start(command, hosts.scratch, name)?;
        let ready = running.first_line(hosts.scratch, hosts.stop);
        ready.with_context(|| format!("`thalweg node` on {name}"))?;
        Ok(Self { running, name })
    }

    /// The name of its host, which is also its name in the mesh.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Kills the daemon and leaves its state directory.
    pub fn kill(&mut self) {
        self.running.kill();
    }
}

/// The mesh: all relays with their daemons, and the client without one.
pub struct DemoMesh<'a> {
    hosts: Hosts<'a>,
    /// The daemons; the oracle's is the first.
    pub nodes: Vec<RelayNode>,
    /// The newest roster version that all nodes had.
    pub version: u64,
    /// Time from the first command until all nodes had the roster.
    pub took: Duration,
}

impl<'a> DemoMesh<'a> {
    /// Founds the mesh on [`ORACLE`], lets the others join, and waits until all nodes have the roster.
    ///
    /// # Errors
    /// When a command fails or a daemon does not come up; on Ctrl-C.
    pub fn create(hosts: Hosts<'a>) -> anyhow::Result<Self> {
        let begun = Instant::now();
        hosts.write_settings()?;
        let address = format!("{ORACLE}:{PORT}");
        say(ORACLE, &format!("mesh init --address {address}"));
        hosts.ask(ORACLE, &["mesh", "init", "--address", &address])?;
        say(ORACLE, "node");
        let nodes = vec![RelayNode::start(&hosts, ORACLE)?];
        let mut mesh = Self { hosts, nodes, version: 0, took: Duration::ZERO };
        for (index, relay) in RELAYS.into_iter().enumerate().skip(1) {
            mesh.add_relay(relay, index == 1)?;
        }
        note!("  … {} likewise", RELAYS[2..].join(", "));
        say(ORACLE, "mesh token");
        let token = mesh.hosts.ask(ORACLE, &["mesh", "token"])?;
        say(CLIENT, "mesh join TOKEN --no-daemon");
        mesh.hosts.ask(CLIENT, &["mesh", "join", &token, "--no-daemon"])?;
        mesh.wait_for_roster()?;
        mesh.took = begun.elapsed();
        Ok(mesh)
    }

    fn add_relay(&mut self, relay: &'static str, aloud: bool) -> anyhow::Result<()> {
        let say = |host, words: &str| {
            if aloud {
                say(host, words)
            }
        };
        let address = format!("{relay}:{PORT}");
        say(ORACLE, "mesh token --role relay");
        let token = self.hosts.ask(ORACLE, &["mesh", "token", "--role", "relay"])?;
        say(relay, &format!("mesh join TOKEN --address {address}"));
        self.hosts.ask(relay, &["mesh", "join", &token, "--address", &address])?;
        say(relay, "node");
        self.nodes.push(RelayNode::start(&self.hosts, relay)?);
        Ok(())
    }

    /// Restarts the daemon of a host with the state that it had.
    ///
    /// # Errors
    /// When it does not start or does not reach the oracle; on Ctrl-C.
    pub fn restart(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(node) = self.nodes.iter_mut().find(|node| node.name == name) else {
            return Ok(());
        };
        node.kill();
        *node = RelayNode::start(&self.hosts, node.name)?;
        self.wait_for_roster()
    }

    /// Waits until every node has confirmed to the oracle that it has the newest roster.
    fn wait_for_roster(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.hosts.ask(ORACLE, &["status", "--json"])?;
            let status: Value =
                serde_json::from_str(&status).context("cannot parse `thalweg status`")?;
            let newest =
                status["roster"]["version"].as_u64().context("`thalweg status` shows no roster")?;
            let members = status["oracle"]["members"].as_array();
            let versions = members.into_iter().flatten().map(|m| m["version"].as_u64());
            let have = versions.filter(|version| *version == Some(newest)).count();
            self.version = newest;
            if have >= self.nodes.len() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("only {have} of {} nodes have roster version {newest}", self.nodes.len());
            }
            std::thread::sleep(TICK);
        }
    }

    /// Starts `thalweg mesh revoke` on the oracle's host. The command ends when all nodes have confirmed.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn revoke(&self, member: &str) -> anyhow::Result<Running> {
        let command =
            self.hosts.thalweg(ORACLE, &["mesh", "revoke", member, "--wait", "10s", "--json"]);
        Running::start(command, self.hosts.scratch, "revoke")
    }
}

/// Prints a command as it would appear in a terminal of that host.
pub fn say(host: &str, words: &str) {
    note!("  {host}$ thalweg {words}");
}
