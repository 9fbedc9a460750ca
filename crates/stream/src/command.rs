//! External commands that read a transport stream on standard input and write one on standard output.

use crate::local_client::StreamError;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{io, process::Stdio, sync::Arc, time::Duration};
use thalweg_media::{Frame, FrameClass, Output, TimestampMismatch, TsJoiner};
use thalweg_wire::stream::leg::LostFrame;
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
const MAX_ERROR_OUTPUT: usize = 512;

/// Why a command has ended before its stream.
#[derive(Debug, Error)]
pub enum TranscodeError {
    #[error("cannot start `{0}`: {1}")]
    Start(String, io::Error),
    #[error("`{command}` ended ({status}){error_output}")]
    Exited { command: String, status: String, error_output: String },
    #[error("cannot write to the command: {0}")]
    Input(io::Error),
    #[error("cannot read from the command: {0}")]
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

    /// Resets the pause after a run that has not failed.
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
    error_output: Arc<Mutex<Vec<u8>>>,
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
        let error_output = Arc::default();
        if let Some(errors) = child.stderr.take() {
            tokio::spawn(keep_last(errors, Arc::clone(&error_output)));
        }
        let running = Self { program: program.to_owned(), child, group, error_output };
        match pipes {
            (Some(input), Some(output)) => Ok((running, CommandInput::new(input), output)),
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Waits for the end of a command that has closed its output, and returns the error.
    pub async fn exit_error(&mut self) -> TranscodeError {
        let status = match timeout(DRAIN, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(why)) => why.to_string(),
            Err(_) => "it closed its output".to_owned(),
        };
        let error_output = self.error_output.lock();
        let text = String::from_utf8_lossy(&error_output);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        let error_output = last.map_or_else(String::new, |line| format!(": {line}"));
        TranscodeError::Exited { command: self.program.clone(), status, error_output }
    }
}

/// Reads a command's error output and keeps its end.
async fn keep_last(mut errors: impl AsyncRead + Unpin, error_output: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; MAX_ERROR_OUTPUT];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let mut error_output = error_output.lock();
        error_output.extend_from_slice(&buffer[..read]);
        let over = error_output.len().saturating_sub(MAX_ERROR_OUTPUT);
        error_output.drain(..over);
    }
}

/// A command's standard input.
pub struct CommandInput {
    /// `None` after the command has closed it. Whether it has ended shows at its output.
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
    pub fn record_losses(&mut self, lost: &[LostFrame]) {
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
