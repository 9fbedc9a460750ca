//! Hosts of a mesh on loopback: state directories, commands, daemons.

use crate::program;
use anyhow::{Context as _, bail, ensure};
use std::{
    cell::Cell,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, port::Port};
use thalweg_units::NodeId;

/// The relay's settings: it may connect to public addresses only.
const STRICT: &str = "[relay]\n";

/// A temporary directory for all hosts of one mesh.
pub struct TestMesh {
    dir: TempDir,
    program: PathBuf,
    hosts: Cell<u32>,
}

/// One host.
pub struct TestNode {
    state: PathBuf,
    settings: PathBuf,
    log: PathBuf,
    program: PathBuf,
    port: Port,
}

/// A running daemon, killed on drop.
pub struct Daemon(Child);

impl TestMesh {
    /// Creates an empty directory.
    ///
    /// # Errors
    /// When it cannot be created or the program is not found.
    pub fn new() -> anyhow::Result<Self> {
        Self::of_program(program::product()?)
    }

    /// Creates an empty directory for hosts of this program.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn of_program(program: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { dir: tempfile::tempdir()?, program, hosts: Cell::new(0) })
    }

    fn host(&self, settings: &str) -> anyhow::Result<TestNode> {
        let number = self.hosts.replace(self.hosts.get() + 1);
        let dir = self.dir.path().join(number.to_string());
        fs::create_dir(&dir)?;
        let (state, file, log) = (dir.join("state"), dir.join("node.toml"), dir.join("log"));
        fs::write(&file, format!("{STRICT}{settings}"))?;
        let port = Port::reserve(Ipv4Addr::LOCALHOST)?;
        Ok(TestNode { state, settings: file, log, program: self.program.clone(), port })
    }

    /// Founds a mesh with a host of these additional settings.
    ///
    /// # Errors
    /// When the command fails.
    pub fn create_mesh(&self, name: &str, settings: &str) -> anyhow::Result<TestNode> {
        let host = self.host(settings)?;
        host.thalweg(&["mesh", "init", "--name", name, "--address", &host.address().to_string()])?;
        Ok(host)
    }

    /// Lets a host join the mesh of `founder`, whose daemon is running.
    ///
    /// # Errors
    /// When a command fails.
    pub fn join(&self, founder: &TestNode, name: &str, token: &[&str]) -> anyhow::Result<TestNode> {
        self.join_with(founder, name, token, "")
    }

    /// As [`Self::join`], with these settings.
    ///
    /// # Errors
    /// When a command fails.
    pub fn join_with(
        &self,
        founder: &TestNode,
        name: &str,
        token: &[&str],
        settings: &str,
    ) -> anyhow::Result<TestNode> {
        let token = founder.thalweg(&[&["mesh", "token"], token].concat())?;
        let host = self.host(settings)?;
        ensure!(host.try_join(&token, name)?.status.success(), "{name} could not join");
        Ok(host)
    }

    /// Creates a host outside of any mesh.
    ///
    /// # Errors
    /// When its directory cannot be created.
    pub fn stranger(&self) -> anyhow::Result<TestNode> {
        self.host("")
    }

    /// Creates a host outside of any mesh, with these settings.
    ///
    /// # Errors
    /// When its directory cannot be created.
    pub fn host_with(&self, settings: &str) -> anyhow::Result<TestNode> {
        self.host(settings)
    }
}

impl TestNode {
    /// The address and port of its daemon.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// Its state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The log of its daemon's last start.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// The seed of the key of its command line.
    ///
    /// # Errors
    /// When there is no readable key.
    pub fn client_seed(&self) -> anyhow::Result<[u8; 32]> {
        let text = fs::read_to_string(self.state.join("client.key"))?;
        let id: NodeId = text
            .trim()
            .parse()
            .map_err(|_| anyhow::anyhow!("client.key does not contain a valid key"))?;
        Ok(*id.as_bytes())
    }

    /// Lets later commands and starts use another program.
    pub fn set_program(&mut self, program: PathBuf) {
        self.program = program;
    }

    /// A command on this host.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("THALWEG_STATE", &self.state).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.state.with_file_name("none"));
        command
    }

    /// Runs a command that must succeed and returns its standard output.
    ///
    /// # Errors
    /// When the command fails; the error contains its standard error.
    pub fn thalweg(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(args).output()?;
        if !output.status.success() {
            bail!("thalweg {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts a command that joins a mesh; the caller waits for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_join(&self, token: &str, name: &str) -> anyhow::Result<Child> {
        let at = self.address().to_string();
        let mut command = self.command(&["mesh", "join", token, "--name", name, "--address", &at]);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Joins a mesh with an address in a lab.
    ///
    /// # Errors
    /// When the command fails.
    pub fn join_at(&self, token: &str, name: &str, address: SocketAddr) -> anyhow::Result<()> {
        let at = address.to_string();
        self.thalweg(&["mesh", "join", token, "--name", name, "--address", &at]).map(drop)
    }

    /// A command of this host's user at a host of a lab, with the settings in this directory.
    pub fn command_at(&self, lab: &Lab, host: &str, config: &Path, args: &[&str]) -> Command {
        let mut command = lab.command(host, &self.program);
        command.args(args).env("THALWEG_STATE", &self.state).env("XDG_CONFIG_HOME", config);
        command.stdin(Stdio::null());
        command
    }

    /// Starts its daemon at a host of a lab and waits until it serves.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn start_at(&self, lab: &Lab, host: &str, listen: SocketAddr) -> anyhow::Result<Daemon> {
        let (settings, listen) = (self.settings.display().to_string(), listen.to_string());
        let args = ["node", "--listen", &listen, "--config", &settings];
        self.run(self.command_at(lab, host, &self.state.with_file_name("none"), &args))
    }

    /// Runs a command that tries to join a mesh.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn try_join(&self, token: &str, name: &str) -> anyhow::Result<Output> {
        Ok(self.start_join(token, name)?.wait_with_output()?)
    }

    /// Starts its daemon and waits until it serves.
    ///
    /// # Errors
    /// When it does not serve.
    pub fn start(&self) -> anyhow::Result<Daemon> {
        let settings = self.settings.display().to_string();
        let listen = self.address().to_string();
        self.run(self.command(&["node", "--listen", &listen, "--config", &settings]))
    }

    /// As [`Self::start`], but only on this core.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_on(&self, core: Option<u32>) -> anyhow::Result<Daemon> {
        let Some(core) = core else { return self.start() };
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(&self.program);
        command
            .args(["node", "--listen", &self.address().to_string(), "--config"])
            .arg(&self.settings);
        command.env("THALWEG_STATE", &self.state).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", self.state.with_file_name("none"));
        self.run(command)
    }

    /// Starts its daemon with another file mounted over `/etc/hosts`.
    ///
    /// # Errors
    /// When it does not serve; this requires root.
    pub fn start_with_hosts(&self, hosts: &Path) -> anyhow::Result<Daemon> {
        let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(hosts).arg(&self.program);
        command
            .args(["node", "--listen", &self.address().to_string(), "--config"])
            .arg(&self.settings);
        command.env("THALWEG_STATE", &self.state).stdin(Stdio::null());
        self.run(command)
    }

    fn run(&self, mut command: Command) -> anyhow::Result<Daemon> {
        let log = File::create(&self.log)?;
        let mut daemon = Daemon(command.stdout(Stdio::piped()).stderr(log).spawn()?);
        let stdout = daemon.0.stdout.take().context("cannot read the daemon's standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "the daemon did not start: {}", self.log()?);
        Ok(daemon)
    }
}

impl Daemon {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it is still running.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn is_alive(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn end(mut self) -> anyhow::Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "a daemon ended unexpectedly");
        Ok(())
    }
}

impl Daemon {
    /// Ends it in order, and waits until it has ended.
    ///
    /// # Errors
    /// When it has not ended after this time.
    pub fn terminate(mut self, within: Duration) -> anyhow::Result<()> {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.context("the daemon has no process id")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let began = Instant::now();
        while self.is_alive()? {
            ensure!(began.elapsed() < within, "the daemon did not end within {within:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
