//! A network and mount namespace of its own, in which commands run.

use anyhow::{Context as _, bail, ensure};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The longest wait for the namespace.
const COMES: Duration = Duration::from_secs(10);

/// The interval between two checks whether it exists.
const LOOK: Duration = Duration::from_millis(5);

/// The namespaces of an idle process; dropping it removes them, once their other processes have ended.
pub struct Namespace(Child);

/// A process in a namespace, killed on drop.
pub struct Running(Child);

impl Namespace {
    /// Creates the namespaces: no network, and the machine's mounts, of which changes stay inside.
    ///
    /// # Errors
    /// Without the privileges, or without `unshare`.
    pub fn new() -> anyhow::Result<Self> {
        let mut idle = Command::new("unshare");
        idle.args(["--net", "--mount", "--propagation", "private", "sleep", "infinity"]);
        let idle = idle.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let namespace = Self(idle.context("cannot run `unshare`")?);
        let since = Instant::now();
        // `unshare` becomes `sleep` after it has created both.
        while !namespace.is_ready() {
            ensure!(since.elapsed() < COMES, "cannot create namespaces; run as root");
            thread::sleep(LOOK);
        }
        Ok(namespace)
    }

    fn is_ready(&self) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.id())).unwrap_or_default();
        name.trim() == "sleep"
    }

    /// The id of the process whose namespaces these are.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// A command that runs inside; its process is `program` itself.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.id().to_string(), "--net", "--mount"]).arg(program);
        inside.stdin(Stdio::null());
        inside
    }

    /// Runs a script of `sh` inside, with these variables; it ends at its first failure.
    ///
    /// # Errors
    /// When it fails; the error has its standard error.
    pub fn script(&self, script: &str, variables: &[(&str, String)]) -> anyhow::Result<()> {
        let mut shell = self.command("sh");
        shell.args(["-ec", script]).envs(variables.iter().map(|(name, value)| (name, value)));
        let output = shell.output().context("cannot run `nsenter`")?;
        if !output.status.success() {
            bail!("{script}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Running {
    /// Starts a program, and waits for its first line, which begins with `ready`.
    ///
    /// # Errors
    /// When it ends before.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdout(Stdio::piped()).spawn();
        let mut running = Self(child.with_context(|| format!("cannot start {command:?}"))?);
        let stdout = running.0.stdout.take().context("it has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.contains("ready"), "{command:?} did not start: {line}");
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
