//! External commands that read a transport stream on standard input and write one on standard output.

use crate::local::StreamError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use thalweg_media::{Frame, FrameClass, Output, TimestampMismatch, TsJoiner};
use thalweg_wire::stream::leg::Lost;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, timeout},
};

/// The pause after a command has failed; doubled by each further failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, and how long a command must run for the next pause to be short again.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How long a command may write after the end of its input.
pub const DRAIN: Duration = Duration::from_secs(5);

/// The size of a read of a command's output.
pub const BUFFER: usize = 64 << 10;

/// The most bytes of a command's error output that are kept: the last ones.
const MAX_SAID: usize = 512;

/// Why a command has ended before its stream.
#[derive(Debug, Error)]
pub enum TranscodeError {
    #[error("cannot start `{0}`: {1}")]
    Start(String, io::Error),
    #[error("`{command}` ended ({status}){said}")]
    Exited { command: String, status: String, said: String },
    #[error("cannot write to it: {0}")]
    Input(io::Error),
    #[error("cannot read from it: {0}")]
    Output(io::Error),
    #[error(transparent)]
    Times(#[from] TimestampMismatch),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// The pauses between the runs of a command.
#[derive(Debug)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Pauses {
    /// The pause after a run that began then and has failed.
    pub fn after_failure(&mut self, began: Instant) -> Duration {
        if began.elapsed() >= MAX_PAUSE {
            self.0 = PAUSE;
        }
        let next = (self.0 * 2).min(MAX_PAUSE);
        std::mem::replace(&mut self.0, next)
    }

    /// Begins anew after a run that has not failed.
    pub fn reset(&mut self) {
        self.0 = PAUSE;
    }
}

/// A running command; its process group ends with it.
pub struct RunningCommand {
    program: String,
    child: Child,
    group: Option<Pid>,
    /// The end of its error output.
    said: Arc<Mutex<Vec<u8>>>,
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended.
            _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl RunningCommand {
    /// Starts a program with its arguments, without a shell.
    pub fn start(command: &[String]) -> Result<(Self, CommandInput, ChildStdout), TranscodeError> {
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(a, b)| (a, b));
        let failed = |why| TranscodeError::Start(program.to_owned(), why);
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pipes = (child.stdin.take(), child.stdout.take());
        let said = Arc::default();
        if let Some(errors) = child.stderr.take() {
            tokio::spawn(keep_last(errors, Arc::clone(&said)));
        }
        let running = Self { program: program.to_owned(), child, group, said };
        match pipes {
            (Some(input), Some(output)) => Ok((running, CommandInput::new(input), output)),
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// The error of a command that has ended or closed its output.
    pub async fn exited(&mut self) -> TranscodeError {
        let status = match timeout(DRAIN, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "it closed its output".to_owned(),
        };
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or_else(String::new, |line| format!(": {line}"));
        TranscodeError::Exited { command: self.program.clone(), status, said }
    }
}

/// Reads a command's error output and keeps its end.
async fn keep_last(mut errors: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; MAX_SAID];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&buffer[..read]);
        let over = said.len().saturating_sub(MAX_SAID);
        said.drain(..over);
    }
}

/// A command's standard input.
pub struct CommandInput {
    /// `None` after the command has closed it: its output says whether it has ended.
    pipe: Option<ChildStdin>,
    joiner: TsJoiner,
    packets: Vec<u8>,
}

impl CommandInput {
    fn new(pipe: ChildStdin) -> Self {
        Self { pipe: Some(pipe), joiner: TsJoiner::new(Output::AsSent), packets: Vec::new() }
    }

    /// Writes a frame.
    pub async fn push(&mut self, frame: &Frame) -> Result<(), TranscodeError> {
        self.joiner.push(frame, &mut self.packets);
        self.write().await
    }

    /// Records lost frames.
    pub fn lost(&mut self, lost: &[Lost]) {
        for lost in lost {
            if let Some(class) = FrameClass::from_number(lost.class) {
                self.joiner.record_loss(lost.track, class);
            }
        }
    }

    /// Ends the input.
    pub async fn end(mut self) -> Result<(), TranscodeError> {
        self.joiner.end(&mut self.packets);
        self.write().await
    }

    async fn write(&mut self) -> Result<(), TranscodeError> {
        if let Some(pipe) = &mut self.pipe {
            match pipe.write_all(&self.packets).await {
                Err(why) if why.kind() == io::ErrorKind::BrokenPipe => self.pipe = None,
                written => written.map_err(TranscodeError::Input)?,
            }
        }
        self.packets.clear();
        Ok(())
    }
}
