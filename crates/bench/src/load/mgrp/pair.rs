//! A copy's two nodes: a mesh of its own, with carriers.

use super::{
    super::carrier_hosts::CarrierHosts,
    Args, Riders,
    network::{NODE, Names},
    program::Program,
};
use anyhow::Context as _;
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};
use thalweg_lab::client::Lab;

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
                    [carrier]\nenabled = true\ncongestion = \"cubic\"\nopen = [\"1-65535\"]\n"
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
        let hosts = CarrierHosts { lab, dir: &dir, port: NODE };
        let Names { m3, m5, .. } = &names;
        hosts.found(m3)?;
        let first = hosts.start_node(m3, "node.toml")?;
        hosts.join(m5, m3)?;
        let second = hosts.start_node(m5, "node.toml")?;
        let overlay = hosts.overlay_address(m3, m5)?;
        for host in [m3, m5] {
            hosts.wait_for_carrier(host)?;
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
        CarrierHosts { lab, dir: &self.dir, port: NODE }.carrier_counts(host)
    }
}

/// A new directory for pairs.
///
/// # Errors
/// The kernel's.
pub fn directory() -> anyhow::Result<tempfile::TempDir> {
    tempfile::TempDir::new().context("cannot make a directory")
}
