//! A copy's two nodes: a mesh of its own, with carriers.

use super::{
    Args, Riders,
    network::{NODE, Names},
    program::Program,
};
use crate::program;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;

/// What does not come about by then does not.
const COMES: Duration = Duration::from_secs(20);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(50);

/// Two nodes, which end with this value.
pub struct Pair {
    /// m5's address in the carrier's network.
    pub overlay: String,
    dir: PathBuf,
    names: Names,
    _nodes: [Program; 2],
}

/// The nodes' settings: none measures by itself, both carry.
fn settings(args: &Args) -> String {
    let mut text =
        "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n[oracle.measure]\nenabled = false\n\
                    [carrier]\nenabled = true\ncongestion = \"cubic\"\n"
            .to_owned();
    match args.riders {
        // Of the source no packet may: its ports are others.
        Riders::Off | Riders::Plain => text.push_str("ports = [1]\n"),
        Riders::On => {}
        Riders::Always => text.push_str("always_hold = true\n"),
    }
    for line in &args.carrier {
        _ = writeln!(text, "{line}");
    }
    text
}

impl Pair {
    /// Founds the mesh and starts its nodes.
    ///
    /// # Errors
    /// When a command fails, or a carrier does not come up.
    pub fn found(lab: &Lab, dir: &Path, args: &Args, copy: u8) -> anyhow::Result<Self> {
        let (names, dir) = (Names::of(copy), dir.join(copy.to_string()));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("node.toml"), settings(args))?;
        let place = Place { lab, dir: &dir };
        let at = |host: &str| format!("{host}:{NODE}");
        let Names { m3, m5, .. } = &names;
        place.said(m3, &["mesh", "init", "--name", m3, "--address", &at(m3)])?;
        let first = place.node(m3)?;
        let token = place.said(m3, &["mesh", "token", "--role", "relay"])?;
        place.said(m5, &["mesh", "join", &token, "--name", m5, "--address", &at(m5)])?;
        let second = place.node(m5)?;
        let overlay = soon("m3 knows m5", || place.said(m3, &["carrier", "address", m5]).ok())?;
        for host in [m3, m5] {
            soon("the carriers are up", || place.is_up(host).then_some(()))?;
        }
        Ok(Self { overlay, dir, names, _nodes: [first, second] })
    }

    /// The socket of m3's probe service, and m5's.
    pub fn sockets(&self) -> [PathBuf; 2] {
        [&self.names.m3, &self.names.m5].map(|host| self.dir.join(host).join("probe.sock"))
    }

    /// What the hosts are called.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// What a host's carrier counted.
    ///
    /// # Errors
    /// When its node does not answer.
    pub fn counts(&self, lab: &Lab, host: &str) -> anyhow::Result<Value> {
        let said = Place { lab, dir: &self.dir }.said(host, &["carrier", "status", "--json"])?;
        Ok(serde_json::from_str::<Value>(&said)?["counts"].take())
    }
}

/// Where a pair is.
struct Place<'a> {
    lab: &'a Lab,
    dir: &'a Path,
}

impl Place<'_> {
    fn command(&self, host: &str) -> anyhow::Result<Command> {
        let mut command = self.lab.command(host, program::product()?);
        command.env("THALWEG_STATE", self.dir.join(host)).stdin(Stdio::null());
        Ok(command)
    }

    /// What a command prints that must succeed.
    fn said(&self, host: &str, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(host)?.args(args).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{host}: thalweg {}: {}", args[0], told.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn node(&self, host: &str) -> anyhow::Result<Program> {
        let mut command = self.command(host)?;
        command.args(["node", "--json", "--listen", &format!("0.0.0.0:{NODE}"), "--config"]);
        command.arg(self.dir.join("node.toml"));
        command.stderr(fs::File::create(self.dir.join(format!("{host}.log")))?);
        let mut node = Program::start(command, format!("the node of {host}"))?;
        node.ready()?;
        Ok(node)
    }

    fn is_up(&self, host: &str) -> bool {
        let said = self.said(host, &["carrier", "status", "--json"]);
        let status = said.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        status.is_some_and(|status| status["is_up"] == true)
    }
}

/// What comes about at last.
fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(since.elapsed() < COMES, "in vain it was waited that {what}");
        thread::sleep(LOOK);
    }
}

/// A new directory for pairs.
///
/// # Errors
/// The kernel's.
pub fn directory() -> anyhow::Result<tempfile::TempDir> {
    tempfile::TempDir::new().context("cannot make a directory")
}
