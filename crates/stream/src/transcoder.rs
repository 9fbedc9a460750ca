//! Transcoders: external commands of this node's configuration that make a stream of another one. Those that make
//! renditions of the same stream are in `renditions`.
//!
//! ```text
//! Stream ─► leg ─► TsJoiner ─► the command's standard input
//! Stream ◄─ TsSplitter ◄────── its standard output
//! ```
//!
//! The command's input is a leg like any other program's: a slow command gets fewer frames and delays nobody. Only
//! streams that are published at this node are transcoded, so that the same members may subscribe to the result.

use crate::{
    Streams, Transcoder,
    command::{BUFFER, CommandInput, DRAIN, Pauses, RunningCommand, TranscodeError},
    io::Leg,
    local_client::{Publisher, ReceivedItem, StreamError, Subscriber, leg},
    stream::Source,
};
use std::{io, pin::pin, time::Duration};
use thalweg_base::log::Event;
use thalweg_media::TsSplitter;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Ending, ParentMessage, PublishRequest, SubscribeRequest},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::UnixStream,
    process::ChildStdout,
    time::{Instant, sleep, timeout},
};

/// How often a transcoder checks whether its stream is published.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the transcoders of the settings whenever their streams are published here, until the future is dropped.
pub async fn run_transcoders(streams: Streams) {
    let settings = streams.0.settings.get();
    let all = settings.transcoders.iter().cloned();
    let all = all.filter_map(|Transcoder { source, name, command }| {
        Some(TranscoderRunner { streams: streams.clone(), source, name: name?, command }.run())
    });
    futures_util::future::join_all(all).await;
}

/// Keeps a transcoder running.
struct TranscoderRunner {
    streams: Streams,
    source: Name,
    name: Name,
    command: Vec<String>,
}

impl TranscoderRunner {
    async fn run(self) {
        let log = &self.streams.0.log;
        let event = |kind| Event::new(kind).with("stream", &self.name).with("of", &self.source);
        let mut pauses = Pauses::default();
        loop {
            self.wait_for_stream().await;
            let began = Instant::now();
            log.put(event("stream_transcoder_started"));
            match self.run_once().await {
                Ok(()) => pauses.reset(),
                Err(why) => {
                    log.put(event("stream_transcoder_failed").with("why", why));
                    sleep(pauses.after_failure(began)).await;
                }
            }
        }
    }

    /// Waits until a program publishes the stream here.
    async fn wait_for_stream(&self) {
        let is_here = || {
            let stream = self.streams.0.streams.get(&self.source)?;
            let is_open = stream.progress().borrow().ended.is_none();
            (is_open && matches!(stream.source(), Source::Publisher(_))).then_some(())
        };
        while is_here().is_none() {
            sleep(CHECK_INTERVAL).await;
        }
    }

    /// Opens a leg to this node, like a program of its owner.
    fn leg(&self) -> io::Result<Leg> {
        let (here, there) = UnixStream::pair()?;
        let streams = self.streams.clone();
        tokio::spawn(async move { streams.serve_local(leg(there)).await });
        Ok(leg(here))
    }

    /// Runs the command until its stream ends.
    async fn run_once(&self) -> Result<(), TranscodeError> {
        let source = self.streams.0.streams.get(&self.source);
        let latency_ms = source.map_or(1000, |source| source.about().latency_ms);
        let request =
            SubscribeRequest { latency_ms, ..SubscribeRequest::for_stream(self.source.clone()) };
        let leg = || self.leg().map_err(StreamError::from);
        let subscriber = Subscriber::begin_on_leg(leg()?, request, |_| ()).await?;
        let (mut running, input, output) = RunningCommand::start(&self.command)?;
        let request = PublishRequest { stream: self.name.clone(), tracks: Vec::new(), latency_ms };
        let mut publisher = Publisher::begin_on_leg(leg()?, request).await?;
        if transcode(subscriber, input, output, &mut publisher).await? {
            return Ok(publisher.end().await?);
        }
        Err(running.exit_error().await)
    }
}

/// Moves a stream through the command. Returns false if the command ends before the stream.
async fn transcode(
    subscriber: Subscriber,
    input: CommandInput,
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
        // Later output is dropped.
        Err(_) => Ok(true),
    }
}

/// Writes a stream to the command until the stream ends.
async fn feed(mut subscriber: Subscriber, mut input: CommandInput) -> Result<(), TranscodeError> {
    loop {
        match subscriber.next().await? {
            ReceivedItem::Frame(_, frame) => input.push(&frame).await?,
            ReceivedItem::Message(ParentMessage::Lost(lost)) => input.record_losses(&lost),
            ReceivedItem::Message(ParentMessage::End(Ending::Over | Ending::Gone)) => {
                return input.end().await;
            }
            ReceivedItem::Message(ParentMessage::End(why)) => {
                return Err(StreamError::Ended(why).into());
            }
            ReceivedItem::Message(_) => {}
        }
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
        // Warnings would repeat for each packet, and the command reports its own errors.
        drop(splitter.take_warnings());
        if read == 0 {
            return Ok(());
        }
    }
}
