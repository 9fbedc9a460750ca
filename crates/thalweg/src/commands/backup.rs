//! `thalweg mesh backup`: one file from which a lost oracle's host is restored.

use super::{host::StateDir, text::say};
use anyhow::{Context as _, bail};
use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_base::durable;
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;

const HELP: &str = "\
Run it on the oracle's host; its node may run. The file has the keys of this host and the key that
signs the list of members, and the present list: whoever reads it can make anybody a member. Keep
it secret and off this host, and make it again after `thalweg mesh rekey`. The root key is not in it:
keep that elsewhere, so that nobody gets both at once.

  thalweg mesh backup /media/stick/mesh.backup
  thalweg mesh backup - | gpg --symmetric -o mesh.backup.gpg

`thalweg mesh restore` restores it.";

/// Arguments of `thalweg mesh backup`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file to write; an older one is replaced. `-`: standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// The format's version.
const VERSION: u32 = 1;

/// Files that the oracle's host cannot work without, relative to the state directory.
pub const REQUIRED: [&str; 4] = ["node.key", "client.key", "oracle/mesh.key", MESH_FILE];
/// Says that this host is in a mesh; restored last.
pub const MESH_FILE: &str = "mesh.json";
/// The newest roster; a member's may be newer.
pub const ROSTER: &str = "roster";
/// Says which server's database has the state, if one does.
const DATABASE: &str = "oracle/database";

/// The largest file in a backup, bytes: a roster of the most members.
const MAX_BYTES: usize = 16 << 20;

/// A backup of an oracle's host, as it is in the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Backup {
    thalweg_backup: u32,
    /// The mesh's root key.
    pub mesh: NodeId,
    /// The host's name.
    pub name: Name,
    /// The contents in Base64, by path.
    files: BTreeMap<String, String>,
    /// The hash of the files, which detects a damaged backup.
    check: String,
}

impl Backup {
    /// Reads the files of an oracle's host.
    ///
    /// # Errors
    /// If a file is missing or cannot be read.
    pub fn of(state: &State) -> anyhow::Result<Self> {
        if !state.oracle_dir().join("mesh.key").exists() {
            bail!(
                "{} holds no oracle; make the backup on the oracle's host: `thalweg mesh members` \
                 shows it",
                state.dir().display()
            );
        }
        let mesh = state.mesh()?;
        let mut files = BTreeMap::new();
        for name in REQUIRED {
            files.insert(
                name.to_owned(),
                read(state.dir(), name)?
                    .with_context(|| format!("{} is missing", state.dir().join(name).display()))?,
            );
        }
        for name in [ROSTER, DATABASE] {
            files.extend(read(state.dir(), name)?.map(|text| (name.to_owned(), text)));
        }
        let check = check(&files);
        Ok(Self { thalweg_backup: VERSION, mesh: mesh.mesh, name: mesh.name, files, check })
    }

    /// Reads a backup.
    ///
    /// # Errors
    /// If it is damaged, or of a later version.
    pub fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let backup: Self = serde_json::from_slice(text).context("this is not a whole backup")?;
        if backup.thalweg_backup != VERSION {
            bail!("the backup is of version {}; use a newer program", backup.thalweg_backup);
        }
        if backup.check != check(&backup.files) {
            bail!("the backup is damaged: its hash is another one; use another copy");
        }
        Ok(backup)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// If it is not in the backup.
    pub fn file(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let text = self.files.get(name).with_context(|| format!("the backup lacks {name}"))?;
        BASE64.decode(text.as_bytes()).with_context(|| format!("{name} in the backup is damaged"))
    }

    /// The files besides the roster and [`MESH_FILE`].
    pub fn other_files(&self) -> impl Iterator<Item = &str> {
        let known = REQUIRED.into_iter().chain([DATABASE]).filter(|name| *name != MESH_FILE);
        known.filter(|name| self.files.contains_key(*name))
    }
}

/// A file in Base64; `None` if there is none.
fn read(dir: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let file = dir.join(name);
    let bytes = durable::read(&file, MAX_BYTES);
    let bytes = bytes.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(bytes.map(|bytes| BASE64.encode(&bytes)))
}

fn check(files: &BTreeMap<String, String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, text) in files {
        for part in [name, text] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// Runs the command.
///
/// # Errors
/// If it fails; an older file stays as it is.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let backup = Backup::of(&state)?;
    let text = serde_json::to_string_pretty(&backup)? + "\n";
    if args.file.as_os_str() == "-" {
        say(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&args.file, text.as_bytes())
        .with_context(|| format!("cannot write {}", args.file.display()))?;
    if args.json {
        let line = json!({ "name": backup.name, "mesh": backup.mesh, "file": args.file });
        say(&format!("{line}\n"))?;
    } else {
        say(&format!("{} has the backup of {}\n", args.file.display(), backup.name))?;
        note!("Keep it secret and off this host: it can make anybody a member.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces the file; only its owner may read it.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a file"));
    }
    durable::replace(file, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_backup_is_detected() {
        let files = BTreeMap::from([("node.key".to_owned(), BASE64.encode(b"secret"))]);
        let backup = Backup {
            thalweg_backup: VERSION,
            mesh: NodeId::from_bytes([1; 32]),
            name: "fra".parse().unwrap(),
            check: check(&files),
            files,
        };
        let text = serde_json::to_string(&backup).unwrap();
        assert_eq!(Backup::parse(text.as_bytes()).unwrap().file("node.key").unwrap(), b"secret");
        let why = |text: &str| format!("{:#}", Backup::parse(text.as_bytes()).unwrap_err());
        assert!(why(&text[..text.len() - 3]).contains("not a whole backup"));
        assert!(
            why(&text.replace(&BASE64.encode(b"secret"), &BASE64.encode(b"secreT")))
                .contains("damaged")
        );
        assert!(
            why(&text.replace("\"thalweg_backup\":1", "\"thalweg_backup\":2"))
                .contains("version 2")
        );
    }
}
