//! `thalweg drop-box`: shows and collects the submissions of a box, for its operator.

mod clear;
mod collect;
mod failures;
mod status;
mod strike;

use super::host::{self, StateDir};
use anyhow::{Context as _, bail};
use clap::Subcommand;
use std::{path::PathBuf, process::ExitCode};
use thalweg_dropbox::BoxFiles;
use thalweg_mesh::State;
use thalweg_node::config::DropBoxSection;
use thalweg_units::likeness;
use thalweg_wire::mesh::Name;

/// Arguments of `thalweg drop-box`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: DropBoxCommand,
}

#[derive(Subcommand)]
enum DropBoxCommand {
    /// List this node's boxes and the --to argument for submissions to each
    List(BoxArgs),
    /// Show the commitments, and which nodes hold their data
    Status(status::Args),
    /// Collect the data from the nodes that have it
    Collect(collect::Args),
    /// Remove submissions or keys from a box, with their data
    Strike(strike::Args),
}

/// Where the boxes are.
#[derive(clap::Args)]
struct BoxArgs {
    /// The settings file [default: the running node's settings; if no node runs,
    /// $XDG_CONFIG_HOME/thalweg/config.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// A box of this node, opened.
struct OpenBox {
    state: State,
    settings: DropBoxSection,
    name: Name,
    files: BoxFiles,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        DropBoxCommand::List(args) => status::list(&args),
        DropBoxCommand::Status(args) => status::run(&args),
        DropBoxCommand::Collect(args) => collect::run(args),
        DropBoxCommand::Strike(args) => strike::run(&args),
    }
}

impl BoxArgs {
    /// The settings of all boxes of this node.
    fn settings(&self, state: &State) -> anyhow::Result<Vec<DropBoxSection>> {
        if self.config.is_none()
            && let Some(running) = running(state)?
        {
            return Ok(running);
        }
        Ok(host::settings(self.config.as_deref())?.drop_box)
    }

    /// Opens the box with this name.
    fn open(&self, name: &str) -> anyhow::Result<OpenBox> {
        let state = self.state_dir.open()?;
        let boxes = self.settings(&state)?;
        let names: Vec<&str> =
            boxes.iter().filter_map(|b| Some(b.name.as_ref()?.as_str())).collect();
        let is_it = |b: &&DropBoxSection| b.name.as_ref().is_some_and(|n| n.as_str() == name);
        let Some(settings) = boxes.iter().find(is_it).cloned() else {
            match likeness::nearest(name, names.iter().copied()) {
                Some(near) => bail!("no drop box is named `{name}`; did you mean `{near}`?"),
                None if boxes.is_empty() => bail!(
                    "this host has no drop box: neither a running node nor the settings file has \
                     one; give the settings with --config FILE"
                ),
                None => bail!(
                    "no drop box is named `{name}` in this node's settings: `thalweg drop-box list`"
                ),
            }
        };
        let name: Name = name.parse().context("the box's name")?;
        let files = BoxFiles::new(state.dir(), &name, settings.directory.as_deref());
        Ok(OpenBox { state, settings, name, files })
    }
}

/// The boxes of the running node; `None` if no node runs or it has none.
fn running(state: &State) -> anyhow::Result<Option<Vec<DropBoxSection>>> {
    let mut report = host::block_on(async {
        match host::daemon(state).await? {
            Some(daemon) => Ok(daemon.drop_boxes().await?),
            None => Ok(serde_json::Value::Null),
        }
    })?;
    match report.get_mut("settings").map(serde_json::Value::take) {
        Some(settings) => Ok(Some(serde_json::from_value(settings).context(
            "the running node has another version than this command: restart it, or give the \
             settings with --config FILE",
        )?)),
        None => Ok(None),
    }
}
