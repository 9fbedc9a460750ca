//! Hosts of a lab that run nodes with carriers; each has its state below one directory.

use super::mgrp::program::Program;
use crate::program;
use anyhow::{bail, ensure};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;

/// How long [`wait_for`] waits.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How many hosts join and start at a time.
const AT_ONCE: usize = 8;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The hosts of a lab; a host's state is in the directory of its name below `dir`.
#[derive(Clone, Copy)]
pub struct CarrierHosts<'a> {
    pub lab: &'a Lab,
    pub dir: &'a Path,
    /// The nodes' port.
    pub port: u16,
}

impl CarrierHosts<'_> {
    /// The command `thalweg` on a host, with the host's state and without input.
    ///
    /// # Errors
    /// When the program is not beside this one.
    pub fn command(&self, host: &str) -> anyhow::Result<Command> {
        let mut command = self.lab.command(host, program::product()?);
        command.env("THALWEG_STATE", self.dir.join(host)).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs `thalweg` on a host and returns its standard output.
    ///
    /// # Errors
    /// When it cannot start or fails; the error contains its standard error.
    pub fn run(&self, host: &str, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(host)?.args(args).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{host}: thalweg {}: {}", args[0], error.trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a host's node with the settings file of this name in `dir`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_node(&self, host: &str, settings: &str) -> anyhow::Result<Program> {
        let mut command = self.command(host)?;
        command.args(["node", "--json", "--listen", &format!("0.0.0.0:{}", self.port), "--config"]);
        command.arg(self.dir.join(settings));
        command.stderr(fs::File::create(self.dir.join(format!("{host}.log")))?);
        let mut node = Program::start(command, format!("the node of {host}"))?;
        node.ready()?;
        Ok(node)
    }

    /// Founds the mesh on a host.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn create_mesh(&self, host: &str) -> anyhow::Result<()> {
        self.run(host, &["mesh", "init", "--name", host, "--address", &self.address(host)])?;
        Ok(())
    }

    /// Lets a host join the mesh that `founder` founded.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn join(&self, host: &str, founder: &str) -> anyhow::Result<()> {
        let token = self.run(founder, &["mesh", "token", "--role", "relay"])?;
        self.join_with(host, &token)
    }

    fn join_with(&self, host: &str, token: &str) -> anyhow::Result<()> {
        let address = self.address(host);
        self.run(host, &["mesh", "join", token, "--name", host, "--address", &address])?;
        Ok(())
    }

    /// Lets hosts join the mesh of `founder` and starts their nodes, several at a time. Each host comes with the name
    /// of its settings file.
    ///
    /// # Errors
    /// As [`Self::run`] and [`Self::start_node`].
    pub fn join_and_start(
        self,
        founder: &str,
        hosts: &[(String, &str)],
    ) -> anyhow::Result<Vec<Program>> {
        let mut nodes = Vec::with_capacity(hosts.len());
        for part in hosts.chunks(AT_ONCE) {
            let tokens =
                part.iter().map(|_| self.run(founder, &["mesh", "token", "--role", "relay"]));
            let tokens = tokens.collect::<anyhow::Result<Vec<String>>>()?;
            let started = thread::scope(|scope| {
                let start = |((host, settings), token): (&(String, &str), String)| {
                    self.join_with(host, &token)?;
                    self.start_node(host, settings)
                };
                let begun: Vec<_> =
                    part.iter().zip(tokens).map(|one| scope.spawn(move || start(one))).collect();
                let ended =
                    begun.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("panic")));
                ended.collect::<anyhow::Result<Vec<Program>>>()
            })?;
            nodes.extend(started);
        }
        Ok(nodes)
    }

    fn address(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    /// The overlay address of `member`, once `host` knows it.
    ///
    /// # Errors
    /// When the host does not know it in time.
    pub fn overlay_address(&self, host: &str, member: &str) -> anyhow::Result<String> {
        wait_for(&format!("{host} to know {member}"), || {
            self.run(host, &["carrier", "address", member]).ok()
        })
    }

    /// Waits until a host's carrier is up.
    ///
    /// # Errors
    /// When it is not up in time.
    pub fn wait_for_carrier(&self, host: &str) -> anyhow::Result<()> {
        wait_for(&format!("the carrier of {host}"), || {
            let status = self.carrier_status(host).ok()?;
            (status["is_up"] == true).then_some(())
        })
    }

    /// The counters of a host's carrier.
    ///
    /// # Errors
    /// When the host's node does not answer.
    pub fn carrier_counts(&self, host: &str) -> anyhow::Result<Value> {
        Ok(self.carrier_status(host)?["counts"].take())
    }

    fn carrier_status(&self, host: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.run(host, &["carrier", "status", "--json"])?)?)
    }
}

fn wait_for<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = poll() {
            return Ok(found);
        }
        ensure!(since.elapsed() < TIMEOUT, "timed out after {TIMEOUT:?} waiting for {what}");
        thread::sleep(POLL_INTERVAL);
    }
}
