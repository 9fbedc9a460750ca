//! A program in a host of the lab: ended with its value, its lines read as they come.

use super::scratch::Scratch;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use thalweg_experiment::run::stop::Stop;

/// Lines that wait for their reader. `get` prints some tens in a second and is read every
/// [`TICK`]; what nobody reads (a node's later lines) is thrown away beyond this.
const LINES: usize = 1024;

/// How often a waiting step looks for Ctrl-C.
pub const TICK: Duration = Duration::from_millis(50);

/// A started program.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    log: String,
}

impl Running {
    /// Starts a command; its standard error goes to a log in the scratch directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, scratch: &Scratch, name: &str) -> anyhow::Result<Self> {
        let log = format!("{name}.log");
        let errors = File::create(scratch.path(&log))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let (sender, lines) = sync_channel(LINES);
        let output = child.stdout.take().context("no standard output")?;
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
    /// When it ends or stays silent for ten seconds; its log says why. On Ctrl-C.
    pub fn first_line(&self, scratch: &Scratch, stop: &Stop) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            stop.check()?;
            match self.lines.recv_timeout(TICK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        bail!("it did not come up: {}", scratch.log_tail(&self.log))
    }

    /// Waits for the program's end; what it printed, at most 1,024 lines, without the last
    /// line's end.
    ///
    /// # Errors
    /// When it fails, or takes more than half a minute; its log says why. On Ctrl-C.
    pub fn finish(mut self, scratch: &Scratch, stop: &Stop) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.ended()?.is_none() {
            stop.check()?;
            if Instant::now() > deadline {
                bail!("it does not end: {}", scratch.log_tail(&self.log));
            }
            std::thread::sleep(TICK);
        }
        match self.child.wait()?.code() {
            Some(0) => {}
            code => bail!("it failed ({}): {}", code.unwrap_or(-1), scratch.log_tail(&self.log)),
        }
        let lines: Vec<String> = self.lines.iter().collect();
        Ok(lines.join("\n"))
    }

    /// The next line, if one has come.
    pub fn line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The program's exit, if it has ended.
    ///
    /// # Errors
    /// When the system cannot say.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends it and all that it started, at once (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// The name of its log in the scratch directory.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
