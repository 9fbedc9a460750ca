//! The mesh: m3 and m5 with streams and carriers, the oracle at gs.

use super::{super::mgrp::program::Program, Adapt, Args, Measure, Riders, Tool, network::NODE};
use crate::program;
use anyhow::ensure;
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

/// The nodes, which end with this value.
pub struct Nodes {
    dir: PathBuf,
    _nodes: Vec<Program>,
}

/// Settings of m3 and m5. The streams go by the carriers in all arms, so that the bytes of its headers are the same.
fn settings(args: &Args) -> String {
    let measure = match (args.tool, args.measure) {
        (Tool::None, _) => "off",
        (_, Measure::Always) => "always",
        (_, Measure::Degraded) => "degraded",
    };
    let pace = if args.tool == Tool::Pslow { "slow" } else { "fast" };
    let adapt = if args.adapt == Adapt::Queue { "queue" } else { "levels" };
    let mut text = format!(
        "[log]\nformat = \"json\"\n[measure]\nmax_bytes_per_day = \"1 TB\"\n[oracle.measure]\nenabled = false\n\
         [relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
         [stream]\nsubscribe = [\"*\"]\nride = true\nmeasure = \"{measure}\"\npace = \"{pace}\"\nadapt = \"{adapt}\"\n\
         [carrier]\nenabled = true\ncongestion = \"cubic\"\n"
    );
    text.push_str(match args.riders {
        // Of the streams no packet may: their ports are others.
        Riders::Off => "ports = [1]\n",
        Riders::On => "",
        Riders::Free => "follow_tcp = false\n",
    });
    for line in &args.carrier {
        _ = writeln!(text, "{line}");
    }
    text
}

impl Nodes {
    /// Founds the mesh and starts its nodes.
    ///
    /// # Errors
    /// When a command fails, or a carrier does not come up.
    pub fn found(lab: &Lab, dir: &Path, args: &Args) -> anyhow::Result<Self> {
        fs::write(dir.join("node.toml"), settings(args))?;
        fs::write(dir.join("gs.toml"), "[oracle.measure]\nenabled = false\n")?;
        let place = Place { lab, dir };
        let at = |host: &str| format!("{host}:{NODE}");
        place.said("gs", &["mesh", "init", "--name", "gs", "--address", &at("gs")])?;
        let mut nodes = vec![place.node("gs", "gs.toml")?];
        for host in ["m3", "m5"] {
            let token = place.said("gs", &["mesh", "token", "--role", "relay"])?;
            place.said(host, &["mesh", "join", &token, "--name", host, "--address", &at(host)])?;
            nodes.push(place.node(host, "node.toml")?);
        }
        soon("m5 knows m3", || place.said("m5", &["carrier", "address", "m3"]).ok())?;
        soon("m3 knows m5", || place.said("m3", &["carrier", "address", "m5"]).ok())?;
        for host in ["m3", "m5"] {
            soon("the carriers are up", || place.is_up(host).then_some(()))?;
        }
        Ok(Self { dir: dir.to_owned(), _nodes: nodes })
    }

    /// The socket for streams of a host.
    pub fn socket(&self, host: &str) -> PathBuf {
        self.dir.join(host).join("stream.sock")
    }

    /// A host's log.
    pub fn log(&self, host: &str) -> PathBuf {
        self.dir.join(format!("{host}.log"))
    }

    /// What a host's carrier counted.
    ///
    /// # Errors
    /// When its node does not answer.
    pub fn counts(&self, lab: &Lab, host: &str) -> anyhow::Result<serde_json::Value> {
        let said = Place { lab, dir: &self.dir }.said(host, &["carrier", "status", "--json"])?;
        Ok(serde_json::from_str::<serde_json::Value>(&said)?["counts"].take())
    }
}

/// Where the nodes are.
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

    fn node(&self, host: &str, settings: &str) -> anyhow::Result<Program> {
        let mut command = self.command(host)?;
        command.args(["node", "--json", "--listen", &format!("0.0.0.0:{NODE}"), "--config"]);
        command.arg(self.dir.join(settings));
        command.stderr(fs::File::create(self.dir.join(format!("{host}.log")))?);
        let mut node = Program::start(command, format!("the node of {host}"))?;
        node.ready()?;
        Ok(node)
    }

    fn is_up(&self, host: &str) -> bool {
        let said = self.said(host, &["carrier", "status", "--json"]);
        let status =
            said.ok().and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
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
