//! The mesh: m3 and m5 with streams and carriers, the oracle at gs.

use super::{
    super::{carrier_hosts::CarrierHosts, mgrp::program::Program},
    Adapt, Args, Measure, Riders, Scheduler, StreamTool,
    network::NODE,
    process::StreamProcess,
};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ChildStdout,
    time::Duration,
};
use thalweg_lab::client::Lab;

/// The running nodes; stopped on drop.
pub struct StreamNodes {
    dir: PathBuf,
    _nodes: Vec<Program>,
}

/// The settings of m3 and m5. Streams use the carriers in all arms, so that all have the same header overhead.
fn settings(args: &Args) -> String {
    let measure = match (args.tool, args.measure) {
        (StreamTool::None | StreamTool::Padding, _) => "off",
        (_, Measure::Always) => "always",
        (_, Measure::Degraded) => "degraded",
    };
    let pace = if args.tool == StreamTool::Pslow { "slow" } else { "fast" };
    // With padding, viewers choose the levels.
    let by_queue = args.adapt == Adapt::Queue || args.tool == StreamTool::Padding;
    let adapt = if by_queue { "queue" } else { "levels" };
    let scheduler = if args.scheduler == Scheduler::Oracle { "oracle" } else { "local" };
    let mut text = format!(
        "[log]\nformat = \"json\"\n[measure]\nmax_bytes_per_day = \"1 TB\"\n[oracle.measure]\nenabled = false\n\
         [relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
         [stream]\nsubscribe = [\"*\"]\nscheduler = \"{scheduler}\"\nride = true\n\
         measure = \"{measure}\"\npace = \"{pace}\"\nadapt = \"{adapt}\"\n\
         [carrier]\nenabled = true\ncongestion = \"cubic\"\n"
    );
    text.push_str(match args.riders {
        // No packet of the streams uses this port, so no packet rides.
        Riders::Off => "ports = [1]\n",
        Riders::On => "",
        Riders::Free => "follow_tcp = false\n",
    });
    for line in &args.carrier {
        _ = writeln!(text, "{line}");
    }
    text
}

impl StreamNodes {
    /// Founds the mesh and starts its nodes.
    ///
    /// # Errors
    /// When a command fails or a carrier does not start.
    pub fn create(lab: &Lab, dir: &Path, args: &Args) -> anyhow::Result<Self> {
        fs::write(dir.join("node.toml"), settings(args))?;
        fs::write(dir.join("gs.toml"), "[oracle.measure]\nenabled = false\n")?;
        let hosts = CarrierHosts { lab, dir, port: NODE };
        hosts.create_mesh("gs")?;
        let mut nodes = vec![hosts.start_node("gs", "gs.toml")?];
        for host in ["m3", "m5"] {
            hosts.join(host, "gs")?;
            nodes.push(hosts.start_node(host, "node.toml")?);
        }
        hosts.overlay_address("m5", "m3")?;
        hosts.overlay_address("m3", "m5")?;
        for host in ["m3", "m5"] {
            hosts.wait_for_carrier(host)?;
        }
        Ok(Self { dir: dir.to_owned(), _nodes: nodes })
    }

    /// A host's socket for streams.
    pub fn socket(&self, host: &str) -> PathBuf {
        self.dir.join(host).join("stream.sock")
    }

    /// A host's log.
    pub fn log(&self, host: &str) -> PathBuf {
        self.dir.join(format!("{host}.log"))
    }

    /// Starts `thalweg stream subscribe` at m5; what it writes to standard output can be read.
    ///
    /// # Errors
    /// When it does not start.
    pub fn subscribe(
        &self,
        lab: &Lab,
        stream: &str,
        latency: Duration,
    ) -> anyhow::Result<(StreamProcess, ChildStdout)> {
        let hosts = CarrierHosts { lab, dir: &self.dir, port: NODE };
        let latency = format!("{}ms", latency.as_millis());
        let args = ["subscribe", stream, "--from", "m3", "--latency", &latency];
        let mut process = StreamProcess::start(&hosts, "m5", false, &args)?;
        let output = process.take_output()?;
        Ok((process, output))
    }

    /// The counters of a host's carrier.
    ///
    /// # Errors
    /// When its node does not answer.
    pub fn counts(&self, lab: &Lab, host: &str) -> anyhow::Result<serde_json::Value> {
        CarrierHosts { lab, dir: &self.dir, port: NODE }.carrier_counts(host)
    }
}
