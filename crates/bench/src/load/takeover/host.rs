//! Hosts on loopback: state directories, commands, daemons.

use crate::{load::port::Port, program};
use anyhow::{Context as _, bail, ensure};
use std::{
    cell::Cell,
    fs::{self, File, OpenOptions, Permissions},
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;
use thalweg_mesh::{Oracle, State};
use thalweg_wire::Signer as _;

/// A directory for all of them.
pub struct Place {
    dir: TempDir,
    program: PathBuf,
    hosts: Cell<u32>,
}

/// One host.
pub struct Host {
    state: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    program: PathBuf,
    port: Port,
}

/// Its daemon; killed when dropped.
pub struct Daemon(Child);

impl Place {
    /// An empty one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> anyhow::Result<Self> {
        let (dir, program) = (tempfile::tempdir()?, program::product()?);
        // The database's user goes through it.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711))?;
        Ok(Self { dir, program, hosts: Cell::new(0) })
    }

    /// Its path.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn host(&self, settings: &str) -> anyhow::Result<Host> {
        let number = self.hosts.replace(self.hosts.get() + 1);
        let dir = self.dir.path().join(number.to_string());
        fs::create_dir(&dir)?;
        let (state, file, log) = (dir.join("state"), dir.join("node.toml"), dir.join("log"));
        fs::write(&file, settings)?;
        let port = Port::at(Ipv4Addr::LOCALHOST)?;
        Ok(Host { state, settings: file, log, program: self.program.clone(), port })
    }

    /// A host whose oracle keeps its state at this URL. All constants are the built-in ones but
    /// for what keeps the schedule busy: all legs are measured, two at a time. The daemon
    /// itself does not measure.
    ///
    /// # Errors
    /// The system's.
    pub fn oracle(&self, url: &str) -> anyhow::Result<Host> {
        self.host(&format!(
            "[oracle]\ndatabase = \"{url}\"\n[oracle.measure]\np = \"100 %\"\nat_once = 2\n\
             [measure]\nenabled = false\n"
        ))
    }

    /// The state directory of a relay that `founder`, whose daemon runs, has let in.
    ///
    /// # Errors
    /// The commands'.
    pub fn relay(&self, founder: &Host, number: usize) -> anyhow::Result<State> {
        let token = founder.thalweg(&["mesh", "token", "--role", "relay"])?;
        let (host, name) = (self.host("")?, format!("relay-{number}"));
        host.thalweg(&["mesh", "join", &token, "--name", &name, "--address", &host.address()])?;
        Ok(State::open(&host.state)?)
    }
}

impl Host {
    /// Where its daemon listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Its log, of all starts.
    ///
    /// # Errors
    /// The system's.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// How clients reach its oracle.
    ///
    /// # Errors
    /// When it has no key.
    pub fn oracle(&self) -> anyhow::Result<Oracle> {
        let key = State::open(&self.state)?.node_key()?.id();
        Ok(Oracle { key, addresses: vec![self.address().parse()?] })
    }

    /// Gets the mesh's key from another oracle's host, as `docs/oracle.md` says.
    ///
    /// # Errors
    /// The system's.
    pub fn take_key(&self, from: &Self) -> anyhow::Result<()> {
        let (own, other) = (self.state.join("oracle"), from.state.join("oracle"));
        fs::create_dir(&own)?;
        fs::set_permissions(&own, Permissions::from_mode(0o700))?;
        fs::copy(other.join("mesh.key"), own.join("mesh.key"))?;
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null()).env("THALWEG_STATE", &self.state);
        command
    }

    /// Standard output of a command that must succeed; it has this host's settings.
    ///
    /// # Errors
    /// Its own words.
    pub fn thalweg(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(args);
        // Where the settings are looked for without --config.
        let home = self.state.with_file_name("home");
        fs::create_dir_all(home.join("thalweg"))?;
        fs::copy(&self.settings, home.join("thalweg/config.toml"))?;
        let output = command.env("XDG_CONFIG_HOME", home).output()?;
        if !output.status.success() {
            bail!("thalweg {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts its daemon and waits until it serves.
    ///
    /// # Errors
    /// When it does not.
    pub fn start(&self) -> anyhow::Result<Daemon> {
        let settings = self.settings.display().to_string();
        let address = self.address();
        let mut command = self.command(&["node", "--listen", &address, "--config", &settings]);
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut daemon = Daemon(command.stdout(Stdio::piped()).stderr(log).spawn()?);
        let stdout = daemon.0.stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "no daemon: {}", self.log()?);
        Ok(daemon)
    }
}

impl Daemon {
    /// Kills it (SIGKILL), and waits until it is gone.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "a daemon has ended by itself");
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
