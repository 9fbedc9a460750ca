//! The lab that a probe starts, and the tools in its hosts.

use super::metrics::Metrics;
use crate::shell::sys;
use anyhow::{Context, bail};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use thalweg_lab::{client::Lab, stats::Stats, topology::Topology};

/// The maximum lifetime of server tools. They are ended with the scene; this is the fallback.
const SERVER_LIFE: &str = "15min";

/// Real-time priority of tools that must not be late themselves: below the emulator's, above everything else on the
/// machine.
const PRIORITY: i32 = 5;

/// A running lab.
pub struct Scene {
    pub lab: Lab,
}

impl Scene {
    /// Starts the network described by `topology` (TOML).
    ///
    /// # Errors
    /// If the topology is invalid or the lab does not start.
    pub fn start(topology: &str) -> anyhow::Result<Self> {
        let topology =
            Topology::from_toml(topology).context("the probe's own topology is invalid")?;
        Ok(Self { lab: Lab::start(&topology)? })
    }

    /// Starts a server tool in `host` and waits until it listens.
    ///
    /// # Errors
    /// If the tool ends before it listens.
    pub fn serve(&self, host: &str, tool: &str) -> anyhow::Result<ToolServer> {
        let args = [tool, "--listen", "0.0.0.0:0", "--max", SERVER_LIFE];
        self.wait_ready(host, RunningTool::start(self.lab.tool(host, &args), tool)?)
    }

    /// Like [`Self::serve`], at real-time priority if that is allowed.
    ///
    /// # Errors
    /// As for [`Self::serve`].
    pub fn serve_promptly(&self, host: &str, tool: &str) -> anyhow::Result<ToolServer> {
        let args = [tool, "--listen", "0.0.0.0:0", "--max", SERVER_LIFE];
        self.wait_ready(host, RunningTool::start_promptly(self.lab.tool(host, &args), tool)?)
    }

    /// Waits until a server tool listens.
    fn wait_ready(&self, host: &str, mut running: RunningTool) -> anyhow::Result<ToolServer> {
        let ready = running.read_line()?;
        let port = ready
            .pointer("/ready/address")
            .and_then(Value::as_str)
            .and_then(|a| a.rsplit_once(':'))
            .with_context(|| {
                format!("{} in {host} did not report the address it listens on", running.name)
            })?
            .1;
        Ok(ToolServer { address: format!("{}:{port}", self.lab.address(host)), _running: running })
    }

    /// Starts a tool in `host`.
    ///
    /// # Errors
    /// If the lab's program cannot be started.
    pub fn spawn(&self, host: &str, args: &[&str]) -> anyhow::Result<RunningTool> {
        RunningTool::start(self.lab.tool(host, args), args.first().unwrap_or(&"tool"))
    }

    /// Runs a tool in `host` to its end. Returns its report.
    ///
    /// # Errors
    /// If the tool fails.
    pub fn run(&self, host: &str, args: &[&str]) -> anyhow::Result<Value> {
        self.spawn(host, args)?.report()
    }

    /// Like [`Self::run`], at real-time priority if that is allowed, so that the probe measures the emulator and not
    /// the other load of the machine.
    ///
    /// # Errors
    /// If the tool fails.
    pub fn run_promptly(&self, host: &str, args: &[&str]) -> anyhow::Result<Value> {
        let name = args.first().unwrap_or(&"tool");
        RunningTool::start_promptly(self.lab.tool(host, args), name)?.report()
    }

    /// Adds the accuracy of the emulator since the last reset of its statistics.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn add_truth(&self, metrics: &mut Metrics) -> anyhow::Result<()> {
        add_truth(metrics, &self.lab.stats(false)?);
        Ok(())
    }

    /// Waits for `warmup` and resets the statistics, while the tools keep running.
    ///
    /// # Errors
    /// If the lab does not answer.
    pub fn warm_up(&self, warmup: Duration) -> anyhow::Result<()> {
        thread::sleep(warmup);
        Ok(self.lab.reset_stats()?)
    }
}

/// Adds lateness, CPU pressure and real-time state from `stats`.
pub fn add_truth(metrics: &mut Metrics, stats: &Stats) {
    let late = stats.lateness;
    metrics.add("lateness_p50", "us", late.p50_us as f64);
    metrics.add("lateness_p99", "us", late.p99_us as f64);
    metrics.add("lateness_p999", "us", late.p999_us as f64);
    metrics.add("lateness_max", "us", late.max_us as f64);
    if let Some(percent) = stats.cpu_pressure_percent {
        metrics.add("cpu_pressure", "%", percent);
    }
    metrics.add("realtime", "1", f64::from(u8::from(stats.realtime)));
}

/// A server tool in a host; killed when dropped.
pub struct ToolServer {
    /// Its address and port, for the other hosts.
    pub address: String,
    _running: RunningTool,
}

/// A running tool in a host; killed when dropped.
pub struct RunningTool {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    name: String,
}

impl RunningTool {
    fn start(mut command: Command, name: &str) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("cannot read a tool's output")?;
        Ok(Self { child, stdout: BufReader::new(stdout), name: name.to_owned() })
    }

    /// Starts the tool from a thread with real-time priority, which it inherits (sched(7)). If that is not allowed, the
    /// thread is an ordinary one.
    fn start_promptly(command: Command, name: &str) -> anyhow::Result<Self> {
        let name = name.to_owned();
        let start = move || {
            let _as_ordinary_thread = sys::realtime(PRIORITY);
            Self::start(command, &name)
        };
        thread::spawn(start)
            .join()
            .map_err(|_| anyhow::anyhow!("a thread of the probe panicked"))?
    }

    /// Reads the next line that the tool prints.
    fn read_line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() {
            bail!("{} in the lab ended without a result; its error is printed above", self.name);
        }
        serde_json::from_str(&line)
            .with_context(|| format!("the output of {} is not valid JSON", self.name))
    }

    /// Waits for the tool's report and its end.
    ///
    /// # Errors
    /// If the tool fails.
    pub fn report(mut self) -> anyhow::Result<Value> {
        let report = self.read_line()?;
        if !self.child.wait()?.success() {
            bail!("{} in the lab failed; its error is printed above", self.name);
        }
        Ok(report)
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
