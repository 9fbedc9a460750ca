//! `thalweg mesh restore`: makes this host the oracle's host again.

use super::{
    backup::{Backup, MESH_FILE, ROSTER},
    host::StateDir,
    text::{counted, next_steps, say},
};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{
    fs::{self, DirBuilder},
    io::{self, Read as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use thalweg_base::durable;
use thalweg_console::note;
use thalweg_mesh::{Membership, State};
use thalweg_wire::mesh::{Role, Roster};

const HELP: &str = "\
Run it on the new host, with the same address as the lost one. The file `roster` of any member's
state directory is signed, and newer than the backup: it knows who joined and who was revoked since.

  scp nyc:.local/state/thalweg/roster member-roster
  thalweg mesh restore mesh.backup --roster member-roster
  gpg --decrypt mesh.backup.gpg | thalweg mesh restore - --roster member-roster
  thalweg node

Members go on with their keys. Open join tokens are void. The lost host must not run again: erase
its keys, or replace them afterwards if it was stolen (docs/mesh.md).

Exit codes: 0 restored; 1 failed, and nothing was changed; 2 wrong usage.";

/// Arguments of `thalweg mesh restore`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[command(group(clap::ArgGroup::new("members").required(true)))]
pub struct Args {
    /// The backup; `-`: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file `roster` of a member
    #[arg(long, value_name = "FILE", group = "members")]
    roster: Option<PathBuf>,
    /// Take the list of members from the backup: who joined since is no member, and who was revoked
    /// since is one again
    #[arg(long, group = "members")]
    old_roster: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// The largest backup and the largest roster, bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Runs the command.
///
/// # Errors
/// If it fails; then nothing was changed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let text = match args.file.as_os_str() == "-" {
        true => read_all(io::stdin()).context("cannot read standard input")?,
        false => read_file(&args.file)?,
    };
    let backup = Backup::parse(&text)?;
    let state = State::create(&args.state_dir.directory()?)?;
    let _lock = state.lock()?;
    check_empty(&state)?;
    let (roster, signed) = newest_roster(&backup, args.roster.as_deref())?;
    if !roster.by_name(&backup.name).is_some_and(|member| member.is(Role::Oracle)) {
        bail!("the roster does not list {} as an oracle", backup.name);
    }
    write_all(&state, &backup, &signed)
        .with_context(|| format!("cannot restore into {}", state.dir().display()))?;
    print(&backup, &roster, &args)?;
    Ok(ExitCode::SUCCESS)
}

fn read_file(file: &Path) -> anyhow::Result<Vec<u8>> {
    let read = fs::File::open(file).and_then(read_all);
    read.with_context(|| format!("cannot read {}", file.display()))
}

fn read_all(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Refuses a directory that is in use: its keys would be lost.
fn check_empty(state: &State) -> anyhow::Result<()> {
    let used = [MESH_FILE, "node.key", "client.key", "oracle"];
    if let Some(used) = used.iter().find(|name| state.dir().join(name).exists()) {
        bail!(
            "{} has {used} already; move the directory away, or give another --state DIR",
            state.dir().display()
        );
    }
    Ok(())
}

/// The newer of the backup's roster and the member's, both verified with the mesh's key.
fn newest_roster(
    backup: &Backup,
    of_member: Option<&Path>,
) -> anyhow::Result<(Arc<Roster>, Arc<[u8]>)> {
    let membership = Membership::new(backup.mesh, None);
    if let Some(file) = of_member {
        let signed = read_file(file)?;
        let taken = membership.offer(&signed).map(drop);
        taken.with_context(|| format!("{} is not used", file.display()))?;
    }
    match (membership.offer(&backup.file(ROSTER)?), of_member) {
        (Err(why), None) => return Err(why).context("the backup's roster is not used"),
        // The member's is newer, as it should be.
        (Err(_), Some(_)) | (Ok(_), _) => {}
    }
    let newest = membership.current().zip(membership.signed());
    newest.context("there is no roster")
}

/// Writes the files; the one that makes this host a member last, so that an interrupted restoration can be repeated
/// after the directory was removed.
fn write_all(state: &State, backup: &Backup, roster: &[u8]) -> anyhow::Result<()> {
    DirBuilder::new().mode(0o700).create(state.oracle_dir())?;
    for name in backup.other_files() {
        durable::replace(&state.dir().join(name), &backup.file(name)?)?;
    }
    durable::replace(&state.oracle_dir().join(ROSTER), roster)?;
    durable::replace(&state.roster_file(), roster)?;
    durable::replace(&state.dir().join(MESH_FILE), &backup.file(MESH_FILE)?)?;
    Ok(())
}

fn print(backup: &Backup, roster: &Roster, args: &Args) -> anyhow::Result<()> {
    let (name, version, members) = (&backup.name, roster.version, roster.members.len());
    if args.json {
        let line = json!({
            "name": name, "mesh": backup.mesh, "version": version, "members": members,
        });
        return say(&format!("{line}\n"));
    }
    let members = counted(members as u64, "member");
    say(&format!("restored {name}, with {members} of roster version {version}\n"))?;
    if args.old_roster {
        note!("Revoke the members again that were revoked since the backup was made.");
    }
    let state = args.state_dir.argument();
    next_steps([
        (format!("thalweg node{state}"), "serve the mesh, with a new database"),
        (format!("thalweg mesh members{state}"), "compare with a list that you trust"),
    ]);
    Ok(())
}
