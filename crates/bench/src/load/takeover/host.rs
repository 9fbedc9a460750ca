//! Hosts on loopback: state directories, commands, daemons.

use crate::program;
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
use thalweg_lab::port::Port;
use thalweg_mesh::{Oracle, State};
use thalweg_wire::Signer as _;

/// A temporary directory for all hosts.
pub struct TestDir {
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

/// A running daemon, killed on drop.
pub struct HostDaemon(Child);

impl TestDir {
    /// Creates an empty directory.
    ///
    /// # Errors
    /// When it cannot be created or the program is not found.
    pub fn new() -> anyhow::Result<Self> {
        let (dir, program) = (tempfile::tempdir()?, program::product()?);
        // The user of the database must be able to traverse the directory.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711))?;
        Ok(Self { dir, program, hosts: Cell::new(0) })
    }

    /// The path of the directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn host(&self, settings: &str) -> anyhow::Result<Host> {
        let number = self.hosts.replace(self.hosts.get() + 1);
        let dir = self.dir.path().join(number.to_string());
        fs::create_dir(&dir)?;
        let (state, file, log) = (dir.join("state"), dir.join("node.toml"), dir.join("log"));
        fs::write(&file, settings)?;
        let port = Port::reserve(Ipv4Addr::LOCALHOST)?;
        Ok(Host { state, settings: file, log, program: self.program.clone(), port })
    }

    /// Creates a host whose oracle stores its state in the database at this URL. All settings are the defaults except
    /// those that keep the schedule busy: all legs are measured, two at a time. The daemon itself does not measure.
    ///
    /// # Errors
    /// When its files cannot be created.
    pub fn oracle(&self, url: &str) -> anyhow::Result<Host> {
        self.host(&format!(
            "[oracle]\ndatabase = \"{url}\"\n[oracle.measure]\np = \"100 %\"\nat_once = 2\n\
             [measure]\nenabled = false\n"
        ))
    }

    /// Lets a relay join the mesh of `founder`, whose daemon is running, and returns the relay's state directory.
    ///
    /// # Errors
    /// When a command fails.
    pub fn relay(&self, founder: &Host, number: usize) -> anyhow::Result<State> {
        let token = founder.thalweg(&["mesh", "token", "--role", "relay"])?;
        let (host, name) = (self.host("")?, format!("relay-{number}"));
        host.thalweg(&["mesh", "join", &token, "--name", &name, "--address", &host.address()])?;
        Ok(State::open(&host.state)?)
    }
}

impl Host {
    /// The address and port of its daemon.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The log of all starts of its daemon.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// The key and the address of its oracle, for clients.
    ///
    /// # Errors
    /// When it has no key.
    pub fn oracle(&self) -> anyhow::Result<Oracle> {
        let key = State::open(&self.state)?.node_key()?.id();
        Ok(Oracle { key, addresses: vec![self.address().parse()?] })
    }

    /// Copies the mesh's key from another oracle's host, as `docs/oracle.md` describes.
    ///
    /// # Errors
    /// When a file cannot be copied.
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

    /// Runs a command that must succeed, with this host's settings, and returns its standard output.
    ///
    /// # Errors
    /// When the command fails; the error contains its standard error.
    pub fn thalweg(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(args);
        // The directory in which the command looks for settings without --config.
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
    /// When it does not serve.
    pub fn start(&self) -> anyhow::Result<HostDaemon> {
        let settings = self.settings.display().to_string();
        let address = self.address();
        let mut command = self.command(&["node", "--listen", &address, "--config", &settings]);
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut daemon = HostDaemon(command.stdout(Stdio::piped()).stderr(log).spawn()?);
        let stdout = daemon.0.stdout.take().context("cannot read the daemon's standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "the daemon did not start: {}", self.log()?);
        Ok(daemon)
    }
}

impl HostDaemon {
    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "a daemon ended unexpectedly");
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for HostDaemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
