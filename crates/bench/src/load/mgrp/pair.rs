//! A copy's two nodes, which form a mesh with carriers.

use super::{
    super::carrier_hosts::CarrierHosts,
    Args, RiderUse,
    network::{CopyNames, NODE},
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

/// Two nodes; dropping the pair ends them.
pub struct Pair {
    /// The address of m5 in the overlay network.
    pub overlay: String,
    dir: PathBuf,
    names: CopyNames,
    _nodes: [Program; 2],
}

/// The nodes' settings: both have a carrier, and neither measures by itself.
fn settings(args: &Args) -> String {
    let mut text =
        "[relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n[oracle.measure]\nenabled = false\n\
                    [carrier]\nenabled = true\ncongestion = \"cubic\"\nopen = [\"1-65535\"]\n"
            .to_owned();
    match args.riders {
        // No packet of the source rides, because it uses other ports.
        RiderUse::Off | RiderUse::Plain => text.push_str("ports = [1]\n"),
        RiderUse::On => {}
        RiderUse::Always => text.push_str("always_hold = true\n"),
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
    /// When a command fails or a carrier does not start.
    pub fn create(lab: &Lab, dir: &Path, args: &Args, copy: u8) -> anyhow::Result<Self> {
        let (names, dir) = (CopyNames::for_copy(copy), dir.join(copy.to_string()));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("node.toml"), settings(args))?;
        let hosts = CarrierHosts { lab, dir: &dir, port: NODE };
        let CopyNames { m3, m5, .. } = &names;
        hosts.create_mesh(m3)?;
        let first = hosts.start_node(m3, "node.toml")?;
        hosts.join(m5, m3)?;
        let second = hosts.start_node(m5, "node.toml")?;
        let overlay = hosts.overlay_address(m3, m5)?;
        for host in [m3, m5] {
            hosts.wait_for_carrier(host)?;
        }
        Ok(Self { overlay, dir, names, _nodes: [first, second] })
    }

    /// The sockets of the probe services of m3 and m5.
    pub fn sockets(&self) -> [PathBuf; 2] {
        [&self.names.m3, &self.names.m5].map(|host| self.dir.join(host).join("probe.sock"))
    }

    /// The names of the hosts.
    pub fn names(&self) -> &CopyNames {
        &self.names
    }

    /// The counters of a host's carrier.
    ///
    /// # Errors
    /// When its node does not answer.
    pub fn counts(&self, lab: &Lab, host: &str) -> anyhow::Result<Value> {
        CarrierHosts { lab, dir: &self.dir, port: NODE }.carrier_counts(host)
    }
}

/// A new temporary directory for pairs.
///
/// # Errors
/// When it cannot be created.
pub fn directory() -> anyhow::Result<tempfile::TempDir> {
    tempfile::TempDir::new().context("cannot create a directory")
}
