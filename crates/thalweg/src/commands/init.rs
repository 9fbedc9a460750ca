//! `thalweg mesh init`: founds a mesh, with this host as its oracle and first node.

use super::{
    embedded_oracle::database,
    host::{self, StateDir},
    hostname,
    text::{next_steps, say},
};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_console::note;
use thalweg_mesh::{Membership, MeshFile, State};
use thalweg_oracle::{Config, Database, Oracle, OracleError};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{Member, Name, Role, Tag},
};

const HELP: &str = "\
Creates two keys for this host, and two for the mesh: mesh.key signs the list of its members, and
root.key can replace mesh.key if that is stolen. Both are in oracle/ below the state directory.
Move root.key to a safe place off this host. Then back up the whole state directory: oracle/ is
useless without node.key, client.key and mesh.json.

  thalweg mesh init --name fra --address fra.example.org:7373
  thalweg node
  thalweg mesh token --role relay";

/// Arguments of `thalweg mesh init`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// This host's name in the mesh [default: the host's own]
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,
    /// The addresses at which other hosts reach this one, the best first
    /// [default: the address of its default route, port 7373]
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',')]
    pub addresses: Vec<Destination>,
    /// A tag of this host, for rules and options such as --avoid
    #[arg(long = "tag", value_name = "TAG", value_delimiter = ',')]
    pub tags: Vec<Tag>,
    /// The settings file; only the oracle's database is read from it
    /// [default: $XDG_CONFIG_HOME/thalweg/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (state, mesh, founder) = found(&args)?;
    print(&mesh, &founder, &state, &args)?;
    Ok(ExitCode::SUCCESS)
}

/// Founds the mesh and prints nothing. Returns this host's state, the mesh's key, and the founder.
///
/// # Errors
/// If this host is in a mesh already, or its name, address, keys or settings cannot be used.
pub fn found(args: &Args) -> anyhow::Result<(State, NodeId, Member)> {
    let state = State::create(&args.state_dir.directory()?)?;
    let _lock = state.lock()?;
    if state.has_mesh() {
        let name = state.mesh()?.name;
        bail!(
            "{} belongs to a mesh already, as `{name}`; `thalweg status` shows it. Another mesh \
             on this host needs another --state DIR",
            state.dir().display()
        );
    }
    check_keys(&state)?;
    let founder = founder(args, &state)?;
    let database = database(&host::settings(args.config.as_deref())?.oracle)?;
    let mesh = host::block_on(found_mesh(&state, founder.clone(), database))?;
    Ok((state, mesh, founder))
}

/// Checks that the keys exist if an oracle does. Such an oracle was left by an interrupted start, which had created the
/// keys before it; or it was restored from a backup, and then the keys must be restored as well.
fn check_keys(state: &State) -> anyhow::Result<()> {
    let keys = state.node_key().and_then(|_| state.client_key());
    if let (true, Err(error)) = (state.oracle_dir().exists(), keys) {
        bail!(
            "{} holds a mesh's oracle already, but this host's keys are not there ({error}); \
             {RESTORE}, or move oracle/ away to found another mesh",
            state.dir().display()
        );
    }
    Ok(())
}

/// How to restore a state directory.
const RESTORE: &str = "restore node.key, client.key, mesh.json and oracle/ from one copy";

fn founder(args: &Args, state: &State) -> anyhow::Result<Member> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => hostname::name()?,
    };
    let addresses = match args.addresses.is_empty() {
        true => vec![hostname::address()?],
        false => args.addresses.clone(),
    };
    Ok(Member {
        name,
        node: Some(state.make_node_key()?.id()),
        client: state.make_client_key()?.id(),
        addresses,
        roles: BTreeSet::from([Role::Client, Role::Relay, Role::Oracle, Role::Admin]),
        tags: args.tags.iter().cloned().collect(),
    })
}

/// Creates the oracle, then makes the host its member. `mesh.json` is written last, so that an interrupted start is
/// repeated.
async fn found_mesh(state: &State, founder: Member, database: Database) -> anyhow::Result<NodeId> {
    let (dir, config) = (state.oracle_dir(), Config { database, ..Config::default() });
    let (name, client) = (founder.name.clone(), founder.client);
    let node = founder.node.context("the founder has no key")?;
    let oracle = match Oracle::create(&dir, founder, config.clone()).await {
        // Left by an interrupted start. If the host is not its member, it is refused below.
        Err(OracleError::Exists(_)) => Oracle::open(&dir, node, config).await?,
        made => made?,
    };
    let signed = oracle.roster().borrow().clone();
    let membership = Membership::load(oracle.mesh(), state.roster_file())?;
    membership.offer(&signed)?;
    let roster = membership.current();
    let listed = roster.as_ref().and_then(|roster| roster.by_name(&name));
    if !listed.is_some_and(|m| m.node == Some(node) && m.client == client) {
        bail!(
            "{} holds the oracle of a mesh without `{name}` and this host's keys; {RESTORE}, \
             or move it away",
            dir.display()
        );
    }
    let mesh = oracle.mesh();
    state.set_mesh(&MeshFile { mesh, name, oracles: Vec::new() })?;
    Ok(mesh)
}

/// The absolute path of a file, quoted for a shell.
fn absolute(file: &Path) -> anyhow::Result<String> {
    let whole = std::path::absolute(file)
        .with_context(|| format!("cannot determine the absolute path of {}", file.display()))?;
    Ok(host::quoted(&whole.display().to_string()))
}

fn print(mesh: &NodeId, founder: &Member, state: &State, args: &Args) -> anyhow::Result<()> {
    let Member { name, addresses, .. } = founder;
    let dir = state.dir().display().to_string();
    if args.json {
        let line = json!({ "mesh": mesh, "name": name, "addresses": addresses, "state": dir });
        return say(&format!("{line}\n"));
    }
    say(&format!("mesh {mesh}\n"))?;
    let reached: Vec<_> = addresses.iter().map(Destination::to_string).collect();
    note!("This host is `{name}`, the mesh's oracle and first relay, at {}.", reached.join(", "));
    let root = state.root_key_file();
    if root.exists() {
        note!("Move {} off this host: it can replace a stolen mesh.key.", root.display());
    }
    note!(
        "All keys and records are in {dir}; then keep a copy of the whole directory in a safe place."
    );
    let state_arg = args.state_dir.argument();
    // The settings name the oracle's database: the daemon must read the same ones.
    let config = args.config.as_ref().map(|file| absolute(file)).transpose()?;
    let config = config.map(|file| format!(" --config {file}")).unwrap_or_default();
    next_steps([
        (format!("thalweg node{state_arg}{config}"), "serve the mesh"),
        (format!("thalweg mesh token --role relay{state_arg}"), "let another host join"),
    ]);
    Ok(())
}
