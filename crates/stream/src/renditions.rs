//! Renditions that commands of this node's configuration make of a stream that is published here.
//!
//! ```text
//! publisher ─┬─► Ladder ─► DecodingOrder ─► Stream
//!            └─► LegQueue ─► the command's standard input
//!     Ladder ◄─ TsSplitter ◄─ its standard output
//! ```
//!
//! The commands run while the stream has a publisher. Nothing waits for a command's input: what it does not read in time
//! is dropped as on any leg. The source's frames wait for the command's pictures, but not for long.

use crate::{
    Bounds, Clock, Entry, LegQueue, NextItem, NumberedFrame, Quality, Stream, Transcoder,
    command::{BUFFER, CommandInput, DRAIN, Pauses, RunningCommand, TranscodeError},
    decoding_order::{DecodingOrder, Patience},
    frame_rate::FrameRateLimit,
    io::LegReader,
    publisher,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use std::{convert::Infallible, io, pin::pin, sync::Arc, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_media::{Frame, Ladder, TsSplitter};
use thalweg_wire::stream::leg::Ending;
use tokio::{
    io::AsyncReadExt as _,
    process::ChildStdout,
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The longest time for which a frame of the source waits for a command, whatever the latency.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// After so many pictures in a row whose times are not the source's, the command has failed.
const MAX_MISPLACED: u32 = 100;

/// The parameters of a ladder.
pub struct LadderContext {
    pub stream: Arc<Stream>,
    /// The commands that make renditions of it.
    pub commands: Vec<Transcoder>,
    /// How long frames stay useful.
    pub latency: Duration,
    /// The most bytes that wait: for the commands' pictures, and for each command's input.
    pub memory: usize,
    /// The node's clock.
    pub clock: Clock,
    /// The node's log.
    pub log: Log,
}

/// Receives frames until the publisher ends the stream, and adds the renditions that commands make of it.
///
/// # Errors
/// When the connection fails or the publisher violates the protocol.
pub async fn receive(context: LadderContext, reader: &mut LegReader) -> io::Result<Ending> {
    let renditions = Renditions::new(context);
    let reading = async {
        let take = |frame| renditions.add_source_frame(frame);
        let ended = publisher::receive(reader, take).await?;
        renditions.closed.cancel();
        Ok::<_, io::Error>(ended)
    };
    let keeping = async {
        join_all((0..renditions.context.commands.len()).map(|at| renditions.keep_running(at)))
            .await;
        Ok(())
    };
    let ended = tokio::select! {
        ended = async { tokio::try_join!(reading, keeping) } => ended.map(|(ended, ())| ended),
        never = renditions.release_when_due() => match never {},
    };
    renditions.release_all();
    ended
}

/// The ladder of one stream.
struct Renditions {
    context: LadderContext,
    state: Mutex<State>,
    /// Notified when frames may have become due.
    changed: Notify,
    /// Notified when there is something for a command to read.
    fed: Vec<Notify>,
    /// Cancelled when the publisher has ended the stream.
    closed: CancellationToken,
}

struct State {
    ladder: Ladder,
    order: DecodingOrder,
    /// The inputs of running commands.
    feeds: Vec<Option<LegQueue>>,
    /// The number of the source's next frame.
    sequence: u64,
}

impl Renditions {
    fn new(context: LadderContext) -> Self {
        let count = context.commands.len();
        let patience =
            Patience { time: (context.latency / 2).min(MAX_WAIT), bytes: context.memory };
        let state = State {
            ladder: Ladder::default(),
            order: DecodingOrder::new(count, patience),
            feeds: (0..count).map(|_| None).collect(),
            sequence: 0,
        };
        Self {
            context,
            state: Mutex::new(state),
            changed: Notify::new(),
            fed: (0..count).map(|_| Notify::new()).collect(),
            closed: CancellationToken::new(),
        }
    }

    /// Adds the publisher's next frame.
    fn add_source_frame(&self, frame: Frame) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        let sequence = state.sequence;
        state.sequence += 1;
        let numbered = Arc::new(NumberedFrame { sequence, born: now, frame: frame.clone() });
        for (feed, fed) in state.feeds.iter_mut().zip(&self.fed) {
            if let Some(queue) = feed {
                queue.push(Entry::Frame(Arc::clone(&numbered)), now);
                fed.notify_one();
            }
        }
        if let Some(frame) = state.ladder.add_source(frame) {
            state.order.push(0, frame, now);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds frames to the stream as soon as they need not wait any more.
    async fn release_when_due(&self) -> Infallible {
        loop {
            let now = self.context.clock.now();
            let due = {
                let mut state = self.state.lock();
                while let Some(next) = state.order.pop(now) {
                    self.context.stream.add_published(next.frame, next.born);
                }
                state.order.due()
            };
            let wait = due.map_or(Duration::MAX, |due| due.since(now));
            // Both the end of the wait and a change may make frames due.
            _ = timeout(wait, self.changed.notified()).await;
        }
    }

    fn release_all(&self) {
        let mut state = self.state.lock();
        while let Some(next) = state.order.pop_any() {
            self.context.stream.add_published(next.frame, next.born);
        }
    }

    /// Keeps a command running until the publisher ends the stream.
    async fn keep_running(&self, at: usize) {
        let name = &self.context.stream.name;
        let event = |kind| Event::new(kind).with("stream", name).with_number("command", at as u64);
        let mut pauses = Pauses::default();
        while !self.closed.is_cancelled() {
            let began = Instant::now();
            self.context.log.put(event("stream_transcoder_started"));
            let ended = tokio::select! {
                ended = self.run(at) => ended,
                // Later output is dropped.
                () = self.wait_for_drain() => Ok(()),
            };
            self.record_command_end(at);
            let Err(why) = ended else { return };
            self.context.log.put(event("stream_transcoder_failed").with("why", why));
            tokio::select! {
                () = sleep(pauses.after_failure(began)) => {}
                () = self.closed.cancelled() => {}
            }
        }
    }

    /// Waits until the stream has ended and the command's time for its last output is over.
    async fn wait_for_drain(&self) {
        self.closed.cancelled().await;
        sleep(DRAIN).await;
    }

    /// Records that a command has ended.
    fn record_command_end(&self, at: usize) {
        let mut state = self.state.lock();
        state.feeds[at] = None;
        state.order.stop_waiting_for(1 + at);
        drop(state);
        self.changed.notify_one();
    }

    /// Runs a command until the publisher ends the stream.
    async fn run(&self, at: usize) -> Result<(), TranscodeError> {
        let command = &self.context.commands[at].command;
        let tables = self.open_feed(at);
        let (mut running, input, output) = RunningCommand::start(command)?;
        let mut feeding = pin!(self.feed(at, tables, input));
        let mut making = pin!(self.read_pictures(at, output));
        tokio::select! {
            fed = &mut feeding => fed?,
            made = &mut making => {
                made?;
                return Err(running.exit_error().await);
            }
        }
        making.await
    }

    /// Opens a command's input queue, which begins at the next key frame. Returns the source's tables.
    fn open_feed(&self, at: usize) -> Option<Frame> {
        let (latency, bytes) = (self.context.latency, self.context.memory);
        let queue = LegQueue::new(Bounds { latency, bytes }, Quality::default());
        let mut state = self.state.lock();
        state.feeds[at] = Some(queue);
        state.ladder.tables()
    }

    /// Writes the source's tables and frames to a command.
    async fn feed(
        &self,
        at: usize,
        tables: Option<Frame>,
        mut input: CommandInput,
    ) -> Result<(), TranscodeError> {
        if let Some(tables) = tables {
            input.push(&tables).await?;
        }
        loop {
            let is_closed = self.closed.is_cancelled();
            let next = {
                let mut state = self.state.lock();
                let now = self.context.clock.now();
                state.feeds[at].as_mut().and_then(|queue| queue.pop(now))
            };
            match next {
                Some(NextItem::Frame(frame)) => input.push(&frame.frame).await?,
                Some(NextItem::Lost(lost)) => input.record_losses(&lost),
                None if is_closed => return input.end().await,
                None => tokio::select! {
                    () = self.fed[at].notified() => {}
                    () = self.closed.cancelled() => {}
                },
            }
        }
    }

    /// Adds the pictures that a command writes to the ladder, until it ends.
    async fn read_pictures(
        &self,
        at: usize,
        mut output: ChildStdout,
    ) -> Result<(), TranscodeError> {
        let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
        let (mut rate, mut misplaced) = (FrameRateLimit::new(), 0);
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = output.read(&mut buffer).await.map_err(TranscodeError::Output)?;
            match read {
                0 => splitter.end(&mut frames),
                _ => splitter.push(&buffer[..read], &mut frames),
            }
            rate.admit(frames.len()).await;
            for frame in frames.drain(..) {
                match self.add_made_picture(at, &splitter, &frame) {
                    Ok(()) => misplaced = 0,
                    Err(why) if misplaced >= MAX_MISPLACED => return Err(why),
                    Err(_) => misplaced += 1,
                }
            }
            // Warnings would repeat for each packet, and the command reports its own errors.
            drop(splitter.take_warnings());
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Adds a frame that a command has written.
    fn add_made_picture(
        &self,
        at: usize,
        splitter: &TsSplitter,
        frame: &Frame,
    ) -> Result<(), TranscodeError> {
        let Some(info) = splitter.tracks().get(usize::from(frame.track)) else { return Ok(()) };
        if !frame.class.is_video() {
            return Ok(());
        }
        let now = self.context.clock.now();
        let mut made = Vec::new();
        let mut state = self.state.lock();
        state.ladder.add_transcoded(at, frame, info.codec, &mut made)?;
        for frame in made {
            state.order.push(1 + at, frame, now);
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }
}
