//! The lab's commands, one file each.

pub mod down;
pub mod exec;
pub mod list;
pub mod pcap;
pub mod run;
pub mod serve;
pub mod set;
pub mod show;
pub mod stats;
pub mod up;

use anyhow::{Context, Result};
use std::{
    fs,
    io::{self, Read},
    path::Path,
};

/// Reads a topology file, or standard input for `-`.
fn read_topology(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| format!("cannot read the topology {}", path.display()))
}

/// Which lab is meant.
#[derive(clap::Args)]
pub struct LabSelection {
    /// The lab's name or socket (default: $THALWEG_LAB, or the only lab started by `lab up`)
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

impl LabSelection {
    fn socket(&self) -> Result<std::path::PathBuf> {
        Ok(thalweg_lab::discover::find(self.lab.as_deref())?)
    }

    fn attach(&self) -> Result<thalweg_lab::client::Lab> {
        let socket = self.socket()?;
        thalweg_lab::client::Lab::attach(&socket)
            .with_context(|| format!("cannot reach the lab at {}", socket.display()))
    }
}
