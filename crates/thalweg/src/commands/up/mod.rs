//! `thalweg up`: from nothing to a member whose node runs, in one command.
//!
//! ```text
//! settings file ─► found or join ─► node (here, or as a systemd service) ─► reached from another member? ─► next command
//! ```
//!
//! Each step that was done before is left out, so the command can be repeated after any failure.

mod reachability;
mod service;

use super::{
    host::{self, StateDir},
    hostname, init, join, node,
    text::say,
};
use anyhow::{Context as _, bail};
use reachability::Reachability;
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};
use thalweg_console::note;
use thalweg_mesh::{JoinOptions, State};
use thalweg_node::config::{Config, config_file};
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{Member, Name, Role, Roster, Token, TokenRequest},
};

const HELP: &str = "\
Without a token it founds a mesh, with this host as its oracle and first relay; with a token it
joins that mesh. It writes a settings file if there is none, runs the node here until Ctrl-C, and
prints whether another member reaches this host. On the founder's host it prints the command for
the next host. Two commands make a mesh of two hosts:

  thalweg up --name fra               # on the first host; prints `thalweg up TOKEN`
  thalweg up TOKEN --name nyc         # on the second host

If this host is a member already, its node is started and checked. --service needs root and
systemd: it creates the user thalweg, keeps the state in /var/lib/thalweg and the settings in
/etc/thalweg/config.toml, and installs and starts the unit thalweg-node.

Exit codes: 0 the node ran and was ended, or runs elsewhere and is reached, or nobody can check that
yet; 1 failed, or another member does not reach the running node; 2 wrong usage.";

/// Arguments of `thalweg up`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A token of the mesh to join, or `-` to read it from standard input [default: found a mesh]
    token: Option<String>,
    /// This host's name in the mesh [default: the host's own]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// The addresses at which other hosts reach this one, the best first
    /// [default: the address of its default route, port 7373]
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',')]
    addresses: Vec<Destination>,
    /// Listen on these addresses instead of those in the settings; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',', conflicts_with = "service")]
    listen: Vec<SocketAddr>,
    /// Install and start the node as a systemd service instead of running it here
    #[arg(long)]
    service: bool,
    /// The settings file; written if it does not exist [default: $XDG_CONFIG_HOME/thalweg/config.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "service")]
    config: Option<PathBuf>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// The directory of keys, roster and daemon socket
    /// [default: $THALWEG_STATE, $XDG_STATE_HOME/thalweg or ~/.local/state/thalweg]
    #[arg(long, value_name = "DIR", hide_default_value = true, conflicts_with = "service")]
    state: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let token = args.token.as_deref().map(join::read).transpose()?;
    if args.service {
        return service::install(token.as_ref(), args.name.as_ref(), &args.addresses, args.json);
    }
    let state_dir = StateDir::from(args.state.clone());
    write_settings(args.config.as_deref())?;
    let settings = host::settings(args.config.as_deref())?;
    let state = become_member(&args, token.as_ref(), &state_dir)?;
    let next = NextSteps { state, settings, state_dir: state_dir.clone(), json: args.json };
    if host::block_on(async { Ok(host::daemon(&next.state).await?.is_some()) })? {
        note!("The node of {} runs already.", next.state.dir().display());
        let is_well = host::block_on(next.show())?;
        return Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let Args { listen, config, json, .. } = args;
    let node = node::Args { listen, config, json, state_dir };
    node::run_with(node, || next.show_beside())
}

/// Writes a commented settings file if there is none.
fn write_settings(given: Option<&Path>) -> anyhow::Result<()> {
    let Some(file) = config_file(given) else { return Ok(()) };
    if write_template(&file)
        .with_context(|| format!("cannot write the settings {}", file.display()))?
    {
        note!("{} has all settings, commented out: the defaults apply.", file.display());
    }
    Ok(())
}

/// Writes [`Config::template`] unless the file exists. Returns whether it did.
fn write_template(file: &Path) -> io::Result<bool> {
    use std::io::Write as _;
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::File::options().write(true).create_new(true).open(file) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        opened => {
            let mut opened = opened?;
            opened.write_all(Config::template().as_bytes())?;
            opened.sync_all()?;
            Ok(true)
        }
    }
}

/// Founds or joins a mesh, unless this host is a member already; prints what was done.
fn become_member(
    args: &Args,
    token: Option<&Token>,
    state_dir: &StateDir,
) -> anyhow::Result<State> {
    let state = State::create(&state_dir.directory()?)?;
    match (state.has_mesh(), token) {
        (true, token) if token.is_none_or(|token| is_member_of(&state, token)) => {
            print_member(args.json, "member", &state.mesh()?.name, "continues as")?;
        }
        (_, Some(token)) => {
            let addresses = own_addresses(&args.addresses);
            let wish = JoinOptions { name: args.name.clone(), addresses, daemon: true };
            let joined = join::join_mesh(&state, token, &wish)?;
            joined.skew.iter().for_each(|skew| note!("thalweg: {skew}"));
            print_member(args.json, "joined", &joined.mesh.name, "joined as")?;
        }
        (_, None) => {
            let founder = init::Args {
                name: args.name.clone(),
                addresses: args.addresses.clone(),
                tags: Vec::new(),
                config: args.config.clone(),
                json: args.json,
                state_dir: state_dir.clone(),
            };
            let (state, _, founder) = init::found(&founder)?;
            print_member(args.json, "founded", &founder.name, "founded a mesh as")?;
            note!(
                "Back up {}, and move {} off this host.",
                state.dir().display(),
                state.root_key_file().display()
            );
        }
    }
    Ok(state)
}

/// The given addresses, else that of the default route; none if there is no such route, which only relays need.
fn own_addresses(given: &[Destination]) -> Vec<Destination> {
    match given {
        [] => hostname::address().into_iter().collect(),
        given => given.to_vec(),
    }
}

/// Whether this host is in the token's mesh, by its stored roster. If it was revoked, it joins with the token.
fn is_member_of(state: &State, token: &Token) -> bool {
    let Ok(mesh) = state.mesh() else { return false };
    let (Ok(membership), Ok(key)) = (state.membership(), state.client_key()) else { return false };
    let lists = |roster: &Roster| roster.by_key(&key.id()).is_some();
    mesh.mesh == token.mesh && membership.current().is_some_and(|roster| lists(&roster))
}

fn print_member(as_json: bool, event: &str, name: &Name, words: &str) -> anyhow::Result<()> {
    match as_json {
        true => say(&format!("{}\n", json!({ "event": event, "name": name }))),
        false => say(&format!("{words} {name}\n")),
    }
}

/// What is checked and printed once the node serves.
struct NextSteps {
    state: State,
    settings: Config,
    state_dir: StateDir,
    json: bool,
}

impl NextSteps {
    /// Shows it from another thread: the node runs on this one.
    fn show_beside(self) {
        let show = move || {
            if let Err(why) = host::block_on(self.show()) {
                note!("thalweg: the node runs, but its state cannot be shown: {why:#}");
            }
        };
        if let Err(why) = thread::Builder::new().name("up".to_owned()).spawn(show) {
            note!("thalweg: the node runs, but its reachability cannot be checked: {why}");
        }
    }

    /// Checks and prints. Returns whether nothing is known to be wrong.
    async fn show(&self) -> anyhow::Result<bool> {
        let (name, roster) = (self.state.mesh()?.name, self.roster().await?);
        let member = roster.by_name(&name).cloned();
        let member = member.with_context(|| format!("the roster does not list `{name}`"))?;
        let found = reachability::check(&self.state, &member, &roster).await?;
        self.print_reachability(&found)?;
        if member.is(Role::Admin) && roster.members.len() == 1 {
            self.print_invitation().await?;
        } else {
            self.print_usage(&roster);
        }
        Ok(found.is_well())
    }

    /// The running node's roster, which is newer than the stored one.
    async fn roster(&self) -> anyhow::Result<Roster> {
        let daemon = host::daemon(&self.state).await?;
        Ok(daemon.context("the node has ended")?.roster().await?)
    }

    fn print_reachability(&self, found: &Reachability) -> anyhow::Result<()> {
        match self.json {
            true => say(&format!("{}\n", found.json())),
            false => say(&format!("{found}\n")),
        }
    }

    /// Makes a token for another host, and prints the command to run there.
    async fn print_invitation(&self) -> anyhow::Result<()> {
        let valid = self.settings.oracle.token_validity;
        let roles = BTreeSet::from([Role::Client, Role::Relay]);
        let request = TokenRequest { roles, tags: BTreeSet::new(), name: None, valid };
        let control = host::control(&self.state).await?;
        let token = control.token(request).await.map_err(host::api_error)?.token;
        let command = format!("thalweg up {token}");
        match self.json {
            true => say(&format!("{}\n", json!({ "event": "next", "command": command })))?,
            false => {
                note!(
                    "On the other host, within {} (each host needs a token of its own, from \
                     `thalweg mesh token --role relay{}`):",
                    super::text::rough(valid),
                    self.state_dir.argument()
                );
                say(&format!("{command}\n"))?;
            }
        }
        Ok(())
    }

    fn print_usage(&self, roster: &Roster) {
        if self.json {
            return;
        }
        let state = self.state_dir.argument();
        let admins = |m: &&Member| m.is(Role::Admin);
        let admins: Vec<_> =
            roster.members.iter().filter(admins).map(|m| m.name.as_str()).collect();
        let hint = format!("for another host, on {}", admins.join(" or "));
        super::text::next_steps([
            (format!("thalweg status{state}"), "the state of this host and its mesh"),
            (format!("thalweg get URL{state}"), "download, also over the mesh's relays"),
            (format!("thalweg mesh token --role relay{state}"), hint.as_str()),
        ]);
    }
}

/// Refuses a program that the service's user cannot run: homes are hidden from the unit.
fn check_program(program: &Path) -> anyhow::Result<()> {
    let hidden = ["/home", "/root", "/tmp", "/run/user"];
    if hidden.iter().any(|dir| program.starts_with(dir)) {
        bail!(
            "the service cannot run {0}, because homes and temporary files are hidden from it; \
             install the program first: install -m 755 {0} /usr/local/bin/thalweg",
            program.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_file_is_written_once() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("a/b/config.toml");
        assert!(write_template(&file).unwrap());
        assert_eq!(Config::load(&file).unwrap(), Config::default());
        fs::write(&file, "[relay]\nenabled = false\n").unwrap();
        assert!(!write_template(&file).unwrap());
        assert!(!Config::load(&file).unwrap().relay.enabled);
    }

    #[test]
    fn a_service_runs_no_program_of_a_home() {
        assert!(check_program(Path::new("/usr/local/bin/thalweg")).is_ok());
        let hidden = Path::new("/root").join("bin/thalweg");
        let why = check_program(&hidden).unwrap_err().to_string();
        assert!(why.contains(&format!("install -m 755 {}", hidden.display())), "{why}");
    }
}
