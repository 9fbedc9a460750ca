//! `thalweg drop-box`: what the operator of a box sees and does.

mod collect;
mod status;

use super::here::{self, Place};
use anyhow::{Context as _, bail};
use clap::Subcommand;
use std::{path::PathBuf, process::ExitCode};
use thalweg_node::{
    config::{Config, DropBoxSection},
    drop_box::BoxFiles,
    mesh::State,
};
use thalweg_units::likeness;
use thalweg_wire::mesh::Name;

/// Arguments of `thalweg drop-box`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The boxes in this node's settings, and what others submit to them with
    List(Common),
    /// Who has committed to what, and where the data is
    Status(status::Args),
    /// Collect the data from the nodes that have it
    Collect(collect::Args),
}

/// Where the boxes are.
#[derive(clap::Args)]
struct Common {
    /// The settings [default: $XDG_CONFIG_HOME/thalweg/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// One box of this node.
struct Here {
    state: State,
    settings: DropBoxSection,
    name: Name,
    files: BoxFiles,
}

/// Runs the command.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::List(args) => status::list(&args),
        What::Status(args) => status::run(&args),
        What::Collect(args) => collect::run(args),
    }
}

impl Common {
    fn settings(&self) -> anyhow::Result<Config> {
        here::settings(self.config.as_deref())
    }

    /// The box of this name.
    fn open(&self, name: &str) -> anyhow::Result<Here> {
        let (state, config) = (self.place.open()?, self.settings()?);
        let names: Vec<&str> =
            config.drop_box.iter().filter_map(|b| Some(b.name.as_ref()?.as_str())).collect();
        let is_it = |b: &&DropBoxSection| b.name.as_ref().is_some_and(|n| n.as_str() == name);
        let Some(settings) = config.drop_box.iter().find(is_it).cloned() else {
            match likeness::nearest(name, names.iter().copied()) {
                Some(near) => bail!("no drop box is named `{name}`; did you mean `{near}`?"),
                None => bail!(
                    "no drop box is named `{name}` in this node's settings: `thalweg drop-box list`"
                ),
            }
        };
        let name: Name = name.parse().context("the box's name")?;
        let files = BoxFiles::new(state.dir(), &name, settings.directory.as_deref());
        Ok(Here { state, settings, name, files })
    }
}
