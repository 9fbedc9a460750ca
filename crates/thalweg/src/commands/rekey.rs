//! `thalweg mesh rekey`: replaces the key that signs the mesh's rosters.

use super::{
    host::StateDir,
    text::{next_steps, say},
};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};
use thalweg_base::clock::WallClock;
use thalweg_console::note;
use thalweg_oracle::Rekeyed;

const HELP: &str = "\
Run it on the oracle's host, with the node stopped, when oracle/mesh.key is lost or may have been
copied. Members keep their keys and do not join again: each refuses rosters of the old key as soon
as it has one of the new key. Afterwards revoke members that you do not know: `thalweg mesh
members` lists them.

The root key endorses the new key. `thalweg mesh init` writes it to oracle/root.key; keep it on
another host. A mesh that was founded without one makes its present mesh.key the root key.

The command also voids all join tokens, and needs the rights of the user that the node runs as. The
file with the root key must be readable only by that user (mode 0600).

  systemctl stop thalweg-node
  sudo -u thalweg thalweg mesh rekey --state /var/lib/thalweg --root FILE
  systemctl start thalweg-node";

/// Arguments of `thalweg mesh rekey`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file with the mesh's root key [default: oracle/root.key in the state directory]
    #[arg(long, value_name = "FILE")]
    root: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; then `mesh.key` is as before.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let _lock = state.lock()?;
    let known = state.membership()?.current().map_or(0, |roster| roster.rank().endorsement);
    let (mesh, dir, now) = (state.mesh()?.mesh, state.oracle_dir(), WallClock::default().now());
    let Rekeyed { mesh, key, number } =
        thalweg_oracle::rekey(&dir, mesh, args.root.as_deref(), known, now)?;
    let root = state.root_key_file();
    if args.json {
        let line = json!({ "mesh": mesh, "key": key, "number": number });
        say(&format!("{line}\n"))?;
    } else {
        say(&format!("mesh {mesh}\nsigning key {number}: {key}\n"))?;
    }
    if root.exists() {
        note!(
            "Move {} to a safe place off this host: it can replace the key again.",
            root.display()
        );
    }
    note!("Every other oracle of this mesh needs the new {}.", dir.join("mesh.key").display());
    let state_arg = args.state_dir.argument();
    next_steps([
        (format!("thalweg node{state_arg}"), "publish a roster of the new key"),
        (format!("thalweg mesh members{state_arg}"), "look for members that you do not know"),
    ]);
    Ok(ExitCode::SUCCESS)
}
