//! The mesh, and a stream through it by the commands that users have.

use super::{Args, media::EncodedStream, media::Feed, viewer::ViewerProgram};
use crate::{
    load::{
        carrier_hosts::CarrierHosts,
        mgrp::program::Program,
        stream::{Adapt, Scheduler, network::NODE},
    },
    program,
};
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;
use thalweg_stream::local;

/// How long to wait for the publisher's node to have the stream.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The name of the stream.
const NAME: &str = "stage";

/// Settings over the bottleneck: trains measure the leg while a viewer gets less than it requests, and the stream rides.
pub fn bottleneck_settings(args: &Args) -> String {
    let adapt = if args.adapt == Adapt::Queue { "queue" } else { "levels" };
    let scheduler = if args.scheduler == Scheduler::Oracle { "oracle" } else { "local" };
    format!(
        "[log]\nformat = \"json\"\n[measure]\nmax_bytes_per_day = \"1 TB\"\n\
         [relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
         [stream]\nsubscribe = [\"*\"]\nride = true\nadapt = \"{adapt}\"\nscheduler = \"{scheduler}\"\n\
         [carrier]\nenabled = true\ncongestion = \"cubic\"\n"
    )
}

/// Settings on the lossy path: its arms name the parents, so the oracle does not choose them.
pub const LOSSY_SETTINGS: &str = "[log]\nformat = \"json\"\n[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
    [stream]\nsubscribe = [\"*\"]\nrelay = true\nscheduler = \"local\"\n";

/// The running nodes; stopped on drop.
pub struct PeersMesh<'a> {
    lab: &'a Lab,
    dir: PathBuf,
    _nodes: Vec<Program>,
}

impl<'a> PeersMesh<'a> {
    /// Founds a mesh of these hosts, with the oracle at gs.
    ///
    /// # Errors
    /// When a command fails or a carrier does not start.
    pub fn create(
        lab: &'a Lab,
        dir: &Path,
        hosts: &[&str],
        settings: &str,
    ) -> anyhow::Result<Self> {
        fs::write(dir.join("node.toml"), settings)?;
        fs::write(dir.join("gs.toml"), "[oracle.measure]\nenabled = false\n")?;
        let all = CarrierHosts { lab, dir, port: NODE };
        all.create_mesh("gs")?;
        let mut nodes = vec![all.start_node("gs", "gs.toml")?];
        for host in hosts {
            all.join(host, "gs")?;
            nodes.push(all.start_node(host, "node.toml")?);
        }
        if settings.contains("[carrier]") {
            for host in hosts {
                all.wait_for_carrier(host)?;
            }
        }
        Ok(Self { lab, dir: dir.to_owned(), _nodes: nodes })
    }

    /// `thalweg stream` at a host.
    fn command(&self, host: &str, args: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.lab.command(host, program::product()?);
        command.env("THALWEG_STATE", self.dir.join(host)).arg("stream").args(args);
        command.stderr(File::create(self.dir.join(format!("{host}-{}.log", args[0])))?);
        Ok(command)
    }

    /// Publishes at m3 and subscribes at m5. A relay gets the stream first.
    ///
    /// # Errors
    /// When a program does not start, or the stream does not appear.
    pub fn stream(
        &self,
        source: &Arc<EncodedStream>,
        window: (Instant, Instant),
        latency: Duration,
        from: &str,
    ) -> anyhow::Result<(Feed, ViewerProgram)> {
        let latency = format!("{} ms", latency.as_millis());
        let publish = self.command("m3", &["publish", NAME, "--latency", &latency])?;
        let feed = Feed::start(source, window, Sender::start(publish)?);
        super::pause_until(window.0);
        self.wait_for_stream("m3")?;
        let mut others = Vec::new();
        if from != "m3" {
            others.push(SilentProgram::start(self.subscribe(from, "m3", &latency)?)?);
            self.wait_for_stream(from)?;
        }
        let subscribe = self.subscribe("m5", from, &latency)?;
        Ok((
            feed,
            ViewerProgram::start(Program::start(subscribe, "the subscriber".to_owned())?, others)?,
        ))
    }

    fn subscribe(&self, host: &str, from: &str, latency: &str) -> anyhow::Result<Command> {
        self.command(host, &["subscribe", NAME, "--from", from, "--latency", latency])
    }

    /// Waits until a host has frames of the stream.
    fn wait_for_stream(&self, host: &str) -> anyhow::Result<()> {
        let runtime = crate::runtime()?;
        let socket = self.dir.join(host).join("stream.sock");
        let began = Instant::now();
        loop {
            let status = runtime.block_on(local::status(&socket))?;
            if status["streams"][0]["next"].as_u64() > Some(0) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < TIMEOUT,
                "the stream did not appear at {host} within {TIMEOUT:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A program whose output nobody reads; killed on drop.
pub struct SilentProgram(Child);

impl SilentProgram {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let name = command.get_program().display().to_string();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {name}"))?))
    }
}

impl Drop for SilentProgram {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A program that reads a stream from its standard input; killed on drop.
pub struct Sender {
    input: ChildStdin,
    _program: SilentProgram,
}

impl Sender {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(command: Command) -> anyhow::Result<Self> {
        let mut program = SilentProgram::start(command)?;
        let input = program.0.stdin.take().context("cannot write to the program's input")?;
        Ok(Self { input, _program: program })
    }
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.input.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.flush()
    }
}
