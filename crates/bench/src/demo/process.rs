//! Runs a program in a host of the lab: reads its lines as they arrive and kills it on drop.

use super::scratch::Scratch;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use thalweg_experiment::run::stop::StopFlag;

/// The most lines that wait for their reader. `get` prints some tens per second and is read every [`TICK`]; lines that
/// are never read, such as a node's later ones, are dropped beyond this number.
const LINES: usize = 1024;

/// How often a waiting step checks for Ctrl-C.
pub const TICK: Duration = Duration::from_millis(50);

/// A started program.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    log: String,
}

impl Running {
    /// Starts a command, with its standard error in a log in the scratch directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, scratch: &Scratch, name: &str) -> anyhow::Result<Self> {
        let log = format!("{name}.log");
        let errors = File::create(scratch.path(&log))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (sender, lines) = sync_channel(LINES);
        let output = child.stdout.take().context("cannot read the program's standard output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _full_or_unread = sender.try_send(line);
            }
        });
        Ok(Self { child, lines, log })
    }

    /// Waits for the program's first line.
    ///
    /// # Errors
    /// When it ends or stays silent for ten seconds; the message contains the end of its log. On Ctrl-C.
    pub fn first_line(&self, scratch: &Scratch, stop: &StopFlag) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            stop.check()?;
            match self.lines.recv_timeout(TICK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        bail!("the program did not start: {}", scratch.log_tail(&self.log))
    }

    /// Waits for the program's end and returns its output: at most 1,024 lines, without the last line feed.
    ///
    /// # Errors
    /// When it fails or takes more than half a minute; the message contains the end of its log. On Ctrl-C.
    pub fn finish(mut self, scratch: &Scratch, stop: &StopFlag) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.ended()?.is_none() {
            stop.check()?;
            if Instant::now() > deadline {
                bail!("the program did not end in time: {}", scratch.log_tail(&self.log));
            }
            std::thread::sleep(TICK);
        }
        match self.child.wait()?.code() {
            Some(0) => {}
            code => bail!(
                "the program failed ({}): {}",
                code.unwrap_or(-1),
                scratch.log_tail(&self.log)
            ),
        }
        let lines: Vec<String> = self.lines.iter().collect();
        Ok(lines.join("\n"))
    }

    /// The next line, if one has arrived.
    pub fn line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The program's exit status, if it has ended.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the program and all processes that it started (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// The name of the program's log in the scratch directory.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
