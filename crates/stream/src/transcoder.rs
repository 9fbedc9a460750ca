//! Transcoders: external commands of this node's configuration that make a stream of another one.
//!
//! ```text
//! Stream ─► leg ─► TsJoiner ─► the command's standard input
//! Stream ◄─ TsSplitter ◄────── its standard output
//! ```
//!
//! The command's input is a leg like any other program's: a slow command gets fewer frames and holds nobody. Only
//! streams that are published at this node are transcoded, so that the same members may subscribe to the result.

use crate::{
    Streams,
    io::Leg,
    local::{Publisher, Received, StreamError, Subscriber},
    stream::Source,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io,
    pin::pin,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use thalweg_base::log::Event;
use thalweg_media::{FrameClass, Output, TsJoiner, TsSplitter};
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Announce, Ask, Ending, Said},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, sleep, timeout},
};

/// The pause after a command has failed; doubled by each further failure.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause, and how long a command must run for the next pause to be short again.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How often a transcoder looks for its stream.
const LOOK: Duration = Duration::from_millis(500);

/// How long a command may write after the end of its input.
const DRAIN: Duration = Duration::from_secs(5);

/// The size of a read of a command's output.
const BUFFER: usize = 64 << 10;

/// The most bytes of a command's error output that are kept: the last ones.
const MAX_SAID: usize = 512;

/// A command that makes a stream of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcoder {
    /// The stream that it reads, as an MPEG transport stream.
    pub of: Name,
    /// The stream that it makes.
    pub name: Name,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
}

/// Why a transcoder has ended before its stream.
#[derive(Debug, Error)]
enum TranscodeError {
    #[error("cannot start `{0}`: {1}")]
    Start(String, io::Error),
    #[error("`{command}` ended ({status}){said}")]
    Exited { command: String, status: String, said: String },
    #[error("cannot write to it: {0}")]
    Input(io::Error),
    #[error("cannot read from it: {0}")]
    Output(io::Error),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// A running command; its process group ends with it.
struct Running {
    child: Child,
    group: Option<Pid>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // It may have ended.
            _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Running {
    fn start(command: &[String]) -> Result<Self, TranscodeError> {
        let (program, arguments) = command.split_first().map_or(("", &[][..]), |(a, b)| (a, b));
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| TranscodeError::Start(program.to_owned(), why))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, group })
    }
}

/// Runs the transcoders of the settings whenever their streams are published here, until the future is dropped.
pub async fn run_transcoders(streams: Streams) {
    let all = streams.0.settings.transcoders.iter().cloned();
    let all = all.map(|transcoder| Keeper { streams: streams.clone(), transcoder }.run());
    futures_util::future::join_all(all).await;
}

/// Keeps a transcoder running.
struct Keeper {
    streams: Streams,
    transcoder: Transcoder,
}

impl Keeper {
    async fn run(self) {
        let Self { streams, transcoder } = &self;
        let mut pause = PAUSE;
        loop {
            self.wait_for_stream().await;
            let began = Instant::now();
            let event = |kind| {
                let event = Event::new(kind).with("stream", &transcoder.name);
                event.with("of", &transcoder.of)
            };
            streams.0.log.put(event("stream_transcoder_started"));
            match self.run_once().await {
                Ok(()) => pause = PAUSE,
                Err(why) => {
                    streams.0.log.put(event("stream_transcoder_failed").with("why", why));
                    if began.elapsed() >= MAX_PAUSE {
                        pause = PAUSE;
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    /// Waits until a program publishes the stream here.
    async fn wait_for_stream(&self) {
        let is_here = || {
            let stream = self.streams.0.get(&self.transcoder.of)?;
            let is_open = stream.progress().borrow().ended.is_none();
            (is_open && matches!(stream.source(), Source::Publisher(_))).then_some(())
        };
        while is_here().is_none() {
            sleep(LOOK).await;
        }
    }

    /// A leg to this node, as a program of its owner has it.
    fn leg(&self) -> io::Result<Leg> {
        let (here, there) = UnixStream::pair()?;
        let streams = self.streams.clone();
        tokio::spawn(async move { streams.serve_local(crate::local::leg(there)).await });
        Ok(crate::local::leg(here))
    }

    /// Runs the command until its stream ends.
    async fn run_once(&self) -> Result<(), TranscodeError> {
        let Self { streams, transcoder } = self;
        let latency_ms = streams.0.get(&transcoder.of).map_or(1000, |of| of.about().latency_ms);
        let ask = Ask { latency_ms, ..Ask::all_of(transcoder.of.clone()) };
        let leg = || self.leg().map_err(StreamError::from);
        let subscriber = Subscriber::over(leg()?, ask, |_| ()).await?;
        let mut running = Running::start(&transcoder.command)?;
        let pipes = (running.child.stdin.take(), running.child.stdout.take());
        let (Some(input), Some(output)) = pipes else { return Ok(()) };
        let said = Arc::default();
        if let Some(errors) = running.child.stderr.take() {
            tokio::spawn(keep_last(errors, Arc::clone(&said)));
        }
        let announce = Announce { stream: transcoder.name.clone(), tracks: Vec::new(), latency_ms };
        let mut publisher = Publisher::over(leg()?, announce).await?;
        if transcode(subscriber, input, output, &mut publisher).await? {
            return Ok(publisher.end().await?);
        }
        Err(exited(&transcoder.command[0], &mut running.child, &said).await)
    }
}

/// Moves a stream through the command. Returns false if the command ends before the stream.
async fn transcode(
    subscriber: Subscriber,
    input: ChildStdin,
    output: ChildStdout,
    publisher: &mut Publisher,
) -> Result<bool, TranscodeError> {
    let mut feeding = pin!(feed(subscriber, input));
    let mut publishing = pin!(publish(output, publisher));
    tokio::select! {
        fed = &mut feeding => fed?,
        published = &mut publishing => return published.map(|()| false),
    }
    match timeout(DRAIN, publishing).await {
        Ok(published) => published.map(|()| true),
        // What it would write later is not worth waiting for.
        Err(_) => Ok(true),
    }
}

/// Writes a stream to the command until the stream ends.
async fn feed(mut subscriber: Subscriber, input: ChildStdin) -> Result<(), TranscodeError> {
    let mut input = Some(input);
    let mut joiner = TsJoiner::new(Output::AsSent);
    let mut packets = Vec::new();
    loop {
        match subscriber.next().await? {
            Received::Frame(_, frame) => joiner.push(&frame, &mut packets),
            Received::Said(Said::Lost(lost)) => {
                for lost in lost {
                    if let Some(class) = FrameClass::from_number(lost.class) {
                        joiner.lost(lost.track, class);
                    }
                }
            }
            Received::Said(Said::End(Ending::Over | Ending::Gone)) => {
                joiner.end(&mut packets);
                if let Some(open) = &mut input {
                    // A command that has ended does not need them.
                    _ = open.write_all(&packets).await;
                }
                return Ok(());
            }
            Received::Said(Said::End(why)) => return Err(StreamError::Ended(why).into()),
            Received::Said(_) => {}
        }
        if let Some(open) = &mut input {
            match open.write_all(&packets).await {
                // Its output says whether it has ended.
                Err(why) if why.kind() == io::ErrorKind::BrokenPipe => input = None,
                written => written.map_err(TranscodeError::Input)?,
            }
        }
        packets.clear();
    }
}

/// Publishes what the command writes until it ends.
async fn publish(
    mut output: impl AsyncRead + Unpin,
    publisher: &mut Publisher,
) -> Result<(), TranscodeError> {
    let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = output.read(&mut buffer).await.map_err(TranscodeError::Output)?;
        match read {
            0 => splitter.end(&mut frames),
            _ => splitter.push(&buffer[..read], &mut frames),
        }
        for frame in frames.drain(..) {
            publisher.send(&frame).await?;
        }
        // They would repeat for each packet; the command itself says what is wrong.
        drop(splitter.take_warnings());
        if read == 0 {
            return Ok(());
        }
    }
}

/// Reads the command's error output and keeps its end.
async fn keep_last(mut errors: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; MAX_SAID];
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&buffer[..read]);
        let over = said.len().saturating_sub(MAX_SAID);
        said.drain(..over);
    }
}

/// The error for a command that has ended or closed its output.
async fn exited(program: &str, child: &mut Child, said: &Mutex<Vec<u8>>) -> TranscodeError {
    let status = match timeout(DRAIN, child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(why)) => why.to_string(),
        Err(_) => "it closed its output".to_owned(),
    };
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    let text = String::from_utf8_lossy(&said);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let said = last.map_or_else(String::new, |line| format!(": {line}"));
    TranscodeError::Exited { command: program.to_owned(), status, said }
}
