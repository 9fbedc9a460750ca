//! A lab of two hosts with a node in each.

use super::super::carrier::testbed::{ChildGuard, run_command, wait_until};
use crate::program;
use anyhow::Context as _;
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, emu::LinkTruth, topology::Topology};
use thalweg_probe::client::ProbeServiceClient;

/// The nodes' port.
const NODE: u16 = 7373;

/// The half of the link that is measured.
const HALF: &str = "way.fwd";

/// The nodes' settings; neither measures by itself.
const SETTINGS: &str = "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n[oracle.measure]\nenabled = false\n\
    [measure]\nmax_bytes_per_day = \"100 GB\"\n[carrier]\nenabled = true\ncongestion = \"cubic\"\nopen = [\"1-65535\"]\n";

/// The lab; dropping it ends its programs.
pub struct ProbeLab {
    // Declared before the lab, so that they end first.
    nodes: Vec<ChildGuard>,
    lab: Lab,
    /// The start of the lab.
    zero: Instant,
    dir: TempDir,
}

impl ProbeLab {
    /// Starts the hosts `a` and `b` with the link `way` between them, but no node.
    ///
    /// # Errors
    /// When the topology is invalid or the network cannot be set up.
    pub fn new(topology: &str) -> anyhow::Result<Self> {
        let lab = Lab::start(&Topology::from_toml(topology)?)?;
        let elapsed = Duration::from_secs_f64(lab.stats(false)?.elapsed_s);
        let now = Instant::now();
        let zero = now.checked_sub(elapsed).unwrap_or(now);
        let dir = TempDir::new().context("cannot create a directory")?;
        Ok(Self { nodes: Vec::new(), lab, zero, dir })
    }

    /// The present lab time, s.
    pub fn now(&self) -> f64 {
        self.zero.elapsed().as_secs_f64()
    }

    /// The temporary directory of the lab.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// A program in a host.
    pub fn command(&self, host: &str, program: &str) -> Command {
        let mut command = self.lab.command(host, program);
        command.stdin(Stdio::null());
        command
    }

    /// A tool of the lab in a host.
    pub fn tool(&self, host: &str, args: &[&str]) -> Command {
        let mut command = self.lab.tool(host, args);
        command.stdin(Stdio::null());
        command
    }

    /// A host's address.
    pub fn address(&self, host: &str) -> String {
        self.lab.address(host).to_string()
    }

    fn thalweg(&self, host: &str) -> anyhow::Result<Command> {
        let mut command = self.lab.command(host, program::product()?);
        command.env("THALWEG_STATE", self.dir.path().join(host)).stdin(Stdio::null());
        Ok(command)
    }

    fn node(&self, host: &str) -> anyhow::Result<ChildGuard> {
        let mut command = self.thalweg(host)?;
        command.args(["node", "--json", "--listen", &format!("0.0.0.0:{NODE}"), "--config"]);
        command.arg(self.dir.path().join("node.toml")).stderr(Stdio::null());
        ChildGuard::start_ready(&mut command)
    }

    /// Founds a mesh of both hosts with carriers; returns the overlay address of `b`.
    ///
    /// # Errors
    /// When a command fails.
    pub fn mesh(&mut self) -> anyhow::Result<String> {
        fs::write(self.dir.path().join("node.toml"), SETTINGS)?;
        let at = |host: &str| format!("{host}:{NODE}");
        run_command(self.thalweg("a")?.args([
            "mesh",
            "init",
            "--name",
            "a",
            "--address",
            &at("a"),
        ]))?;
        self.nodes.push(self.node("a")?);
        let token = run_command(self.thalweg("a")?.args(["mesh", "token", "--role", "relay"]))?;
        let join = ["mesh", "join", token.trim(), "--name", "b", "--address", &at("b")];
        run_command(self.thalweg("b")?.args(join))?;
        self.nodes.push(self.node("b")?);
        for host in ["a", "b"] {
            wait_until("the carriers are up", || Ok(self.is_up(host).then_some(())))?;
        }
        let overlay = wait_until("a knows b", || {
            Ok(run_command(self.thalweg("a")?.args(["carrier", "address", "b"])).ok())
        })?;
        Ok(overlay.trim().to_owned())
    }

    fn is_up(&self, host: &str) -> bool {
        let status = self
            .thalweg(host)
            .and_then(|mut command| run_command(command.args(["carrier", "status", "--json"])));
        let status = status.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        status.is_some_and(|status| status["is_up"] == true)
    }

    /// The probe service of `a`, for trains to `b`.
    ///
    /// # Errors
    /// When it is not available.
    pub fn service(&self) -> anyhow::Result<ProbeServiceClient> {
        ProbeServiceClient::at(&self.dir.path().join("a").join("probe.sock"), "b")
    }

    /// The record of the link from `a` to `b`, and the 99th percentile of the emulator's lateness, µs.
    ///
    /// # Errors
    /// When the lab does not answer.
    pub fn truth(&self, with_series: bool) -> anyhow::Result<(LinkTruth, f64)> {
        let stats = self.lab.stats(with_series)?;
        let link = stats.link(HALF).context("the lab has no such link")?.clone();
        Ok((link, stats.lateness.p99_us as f64))
    }
}
