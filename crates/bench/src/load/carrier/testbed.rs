//! The two network namespaces of a measurement and the programs in them.

use super::{
    super::veth::{FAR, FarNamespace, NEAR},
    wireguard,
};
use crate::program;
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The server's port; nothing else uses it in the namespaces.
const SERVER: u16 = 9000;

/// The interval between two checks of a condition.
const LOOK: Duration = Duration::from_millis(50);

/// The longest wait for a condition.
const COMES: Duration = Duration::from_secs(20);

/// Settings of the nodes: they measure nothing by themselves meanwhile.
const SETTINGS: &str = "[carrier]\nenabled = true\nopen = [\"1-65535\"]\n[oracle.measure]\nenabled = false\n[relay]\nallow_to = [\"10.9.0.0/16\"]\n";

/// The connection between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TunnelKind {
    /// A direct connection
    Direct,
    /// Two nodes with carriers
    Carrier,
    /// The program `boringtun-cli`, one thread at each end
    Wireguard,
}

/// The testbed of one measurement; dropping it ends all of it.
pub struct TunnelTestbed {
    at: SocketAddr,
    server: ChildGuard,
    programs: Option<[ChildGuard; 2]>,
    _state: TempDir,
    _far: FarNamespace,
}

/// A child process, killed on drop.
pub struct ChildGuard(Child);

impl TunnelTestbed {
    /// Creates two namespaces and starts the programs; returns when they are ready.
    ///
    /// # Errors
    /// When a program does not start.
    pub fn new(by: TunnelKind) -> anyhow::Result<Self> {
        let far = FarNamespace::join()?;
        let state = TempDir::new().context("cannot create a directory")?;
        let (to, programs): (IpAddr, _) = match by {
            TunnelKind::Direct => (FAR.into(), None),
            TunnelKind::Carrier => {
                let (to, programs) = carriers(&far, state.path())?;
                (to, Some(programs))
            }
            TunnelKind::Wireguard => (wireguard::FAR.into(), Some(wireguard::start(&far)?)),
        };
        let at = SocketAddr::new(to, SERVER);
        let mut serve = far.command(program::own()?);
        let server =
            ChildGuard::start_ready(serve.args(["load", "server", "--listen", &at.to_string()]))?;
        Ok(Self { at, server, programs, _state: state, _far: far })
    }

    /// The process id of the near end.
    pub fn near(&self) -> u32 {
        self.programs.as_ref().map_or_else(std::process::id, |[near, _]| near.id())
    }

    /// The process id of the far end.
    pub fn far(&self) -> u32 {
        self.programs.as_ref().map_or_else(|| self.server.id(), |[_, far]| far.id())
    }

    /// The ids of all processes, including this one and the server.
    pub fn all(&self) -> Vec<u32> {
        let programs = self.programs.iter().flatten().map(ChildGuard::id);
        programs.chain([std::process::id(), self.server.id()]).collect()
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// When there is no connection within `patience`.
    pub fn connect(&self, patience: Duration) -> anyhow::Result<TcpStream> {
        TcpStream::connect_timeout(&self.at, patience).context("cannot connect to the server")
    }
}

/// Starts two nodes of a new mesh; returns the far one's overlay address, too.
fn carriers(far: &FarNamespace, state: &Path) -> anyhow::Result<(IpAddr, [ChildGuard; 2])> {
    let settings = state.join("node.toml");
    fs::write(&settings, SETTINGS)?;
    let program = program::product()?;
    let [near_state, far_state] = ["near", "far"].map(|name| state.join(name));
    let here = || Command::new(&program);
    let there = || far.command(&program);
    let (near_at, far_at) = (format!("{NEAR}:7373"), format!("{FAR}:7373"));
    let node = |mut command: Command, state: &Path, at: &str| {
        command.args(["node", "--json", "--listen", at, "--config"]).arg(&settings);
        ChildGuard::start_ready(command.env("THALWEG_STATE", state).stderr(Stdio::null()))
    };
    let init = ["mesh", "init", "--name", "near", "--address", &near_at];
    run_command(here().args(init).env("THALWEG_STATE", &near_state))?;
    let near = node(here(), &near_state, &near_at)?;
    let token = run_command(
        here().args(["mesh", "token", "--role", "relay"]).env("THALWEG_STATE", &near_state),
    )?;
    let join = ["mesh", "join", token.trim(), "--name", "far", "--address", &far_at];
    run_command(there().args(join).env("THALWEG_STATE", &far_state))?;
    let far = node(there(), &far_state, &far_at)?;
    let address = ["carrier", "address", "far"];
    let address = wait_until("the near node knows the far one", || {
        Ok(run_command(here().args(address).env("THALWEG_STATE", &near_state)).ok())
    })?;
    for (end, state) in [(&here as &dyn Fn() -> Command, &near_state), (&there, &far_state)] {
        wait_until("the carriers are up", || {
            let status = run_command(
                end().args(["carrier", "status", "--json"]).env("THALWEG_STATE", state),
            );
            let is_up =
                |text: String| serde_json::from_str::<Value>(&text).ok()?["is_up"].as_bool();
            Ok(status.ok().and_then(is_up).filter(|is_up| *is_up))
        })?;
        // Calibration uses CPU time, which must not count as idle.
        wait_until("the nodes are calibrated", || {
            let status = run_command(end().args(["status", "--json"]).env("THALWEG_STATE", state));
            let is_calibrated = |text: String| {
                let status: Value = serde_json::from_str(&text).ok()?;
                status["calibration"].is_object().then_some(())
            };
            Ok(status.ok().and_then(is_calibrated))
        })?;
    }
    Ok((address.trim().parse()?, [near, far]))
}

/// Runs a command that must succeed and returns its output.
///
/// # Errors
/// When it fails, with its standard error.
pub fn run_command(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Waits until `look` returns a value.
///
/// # Errors
/// When it returns none in time, or fails.
pub fn wait_until<T>(
    what: &str,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(since.elapsed() < COMES, "timed out waiting until {what}");
        thread::sleep(LOOK);
    }
}

impl ChildGuard {
    /// Starts a program without waiting for it.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| format!("cannot start {command:?}"))?))
    }

    /// Guards a process that was started elsewhere.
    pub fn from_child(child: Child) -> Self {
        Self(child)
    }

    /// Starts a program of this project and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_ready(command: &mut Command) -> anyhow::Result<Self> {
        let mut part = Self::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        let output = part.0.stdout.take().context("cannot read the program's output")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.contains("ready"), "{command:?} did not start");
        Ok(part)
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
