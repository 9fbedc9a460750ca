//! Runs `thalweg get` as a process and records its events.

use crate::program;
use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The arguments of a download, apart from its faults.
#[derive(Clone, Debug)]
pub struct Order {
    /// The URL of the file.
    pub url: String,
    /// The path of the downloaded file.
    pub file: PathBuf,
    /// The file of path history.
    pub history: PathBuf,
    /// Further arguments of `thalweg get`.
    pub args: Vec<String>,
}

/// A download in progress.
pub struct Download {
    child: Child,
    started: Instant,
    recorded: Arc<Mutex<Vec<Value>>>,
    readers: [JoinHandle<String>; 2],
}

/// A download that has ended.
#[derive(Debug)]
pub struct EndedDownload {
    pub status: ExitStatus,
    /// Time from its start to its end.
    pub took: Duration,
    /// Its events except those of progress.
    pub recorded: Vec<Value>,
    /// Its output on standard error.
    pub stderr: String,
}

impl Order {
    /// The command, prefixed by `before` (for instance a tracer) unless that is empty.
    ///
    /// # Errors
    /// When the program is not found.
    pub fn command(&self, before: &[String]) -> anyhow::Result<Command> {
        let program = program::product()?;
        let mut command = match before {
            [] => Command::new(program),
            [tracer, args @ ..] => {
                let mut command = Command::new(tracer);
                command.args(args).arg(program);
                command
            }
        };
        command.args(["get", &self.url, "--json", "-o"]).arg(&self.file);
        command.arg("--history").arg(&self.history).args(&self.args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Starts the download.
    ///
    /// # Errors
    /// When the program, or the one of `before`, cannot be started.
    pub fn start(&self, before: &[String]) -> anyhow::Result<Download> {
        let mut command = self.command(before)?;
        let started = Instant::now();
        let name = before.first().map_or("thalweg", String::as_str);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, mut stderr) =
            stdout.zip(stderr).context("cannot open pipes to the program")?;
        let events = Arc::clone(&recorded);
        let lines = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                take(&events, &line);
            }
            String::new()
        });
        let words = thread::spawn(move || {
            let mut text = String::new();
            _ = stderr.read_to_string(&mut text);
            text
        });
        Ok(Download { child, started, recorded, readers: [lines, words] })
    }

    /// Runs the download to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self) -> anyhow::Result<EndedDownload> {
        self.start(&[])?.end()
    }
}

/// Stores an event unless it is one of progress.
fn take(events: &Mutex<Vec<Value>>, line: &str) {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return };
    if event["event"] != "progress" {
        events.lock().push(event);
    }
}

impl Download {
    /// The id of its process, or of its tracer.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still running.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When the system call fails.
    pub fn kill(mut self) -> anyhow::Result<EndedDownload> {
        self.child.kill()?;
        self.end()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn end(mut self) -> anyhow::Result<EndedDownload> {
        let status = self.child.wait()?;
        let took = self.started.elapsed();
        let [lines, words] = self.readers;
        _ = lines.join();
        let stderr = words.join().unwrap_or_default();
        let mut recorded = self.recorded.lock();
        Ok(EndedDownload { status, took, recorded: std::mem::take(&mut recorded), stderr })
    }
}

impl EndedDownload {
    /// The exit code, or 128 plus the signal that killed it, as in shells.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        self.status.code().or(self.status.signal().map(|s| 128 + s)).unwrap_or(-1)
    }

    /// The events with this name.
    pub fn events(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.recorded.iter().filter(move |e| e["event"] == name)
    }

    /// A number of the last event with this name.
    pub fn number(&self, event: &str, field: &str) -> Option<u64> {
        self.events(event).last().and_then(|e| e[field].as_u64())
    }

    /// Its last error, for messages about failed trials.
    pub fn last_error(&self) -> String {
        let failed = self.events("failed").last().map(|e| e["why"].to_string());
        format!("{} {}", failed.unwrap_or_default(), self.stderr.trim()).trim().to_owned()
    }
}
