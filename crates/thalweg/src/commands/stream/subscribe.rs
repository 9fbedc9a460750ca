//! `thalweg stream subscribe`: passes a stream from this host's node to a program, or serves it as HLS.

use super::{
    Format,
    endpoint::Endpoint,
    hls::{Hls, HlsAddress},
    publish::report_error,
    sink::Sink,
    socket,
};
use crate::commands::{
    exit::Code,
    host::{self, StateDir},
    jobs::QueueOptions,
    signals::Signals,
};
use std::{io::ErrorKind, path::PathBuf, process::ExitCode, str::FromStr, time::Duration};
use thalweg_console::note;
use thalweg_media::{Frame, FrameClass, MAX_TRACKS, Output, TsJoiner};
use thalweg_stream::{
    Chains, RenditionChoice,
    container::PlainSplitter,
    hls::DirectoryError,
    local::{ReceivedItem, StreamError, Subscriber},
};
use thalweg_units::parse_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Ending, FrameHead, Level, LostFrame, ParentMessage, SubscribeRequest},
};

const HELP: &str = "\
Writes the stream to standard output, to --to, or as HLS for browsers. After a loss it resumes at
the next frame that can be decoded. The mesh's oracle chooses where the stream comes from; without
an oracle, --from names the publisher's node or a relay.

  thalweg stream subscribe stage --level no-disposable --latency 500ms > stage.ts
  thalweg stream subscribe stage --from studio --hls 127.0.0.1:8090";

/// Arguments of `thalweg stream subscribe`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The stream's name
    #[arg(value_name = "NAME")]
    name: Name,
    /// The member that publishes or relays the stream, instead of the oracle's choice
    #[arg(long, value_name = "MEMBER")]
    from: Option<Name>,
    /// The highest level: all, no-disposable or keys
    #[arg(long, value_name = "LEVEL", default_value = "all")]
    level: Level,
    /// Of several renditions: the best that arrives in time (auto), one by its number, or all
    #[arg(long, value_name = "auto|all|N", default_value = "auto")]
    rendition: Rendition,
    /// The deadline: frames that would be older than this are dropped
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// Connect to this address and write the stream there, or send it as datagrams
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT")]
    to: Option<Endpoint>,
    /// Serve the stream as HLS with a player page by HTTP; without an address at 127.0.0.1:8090
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1")]
    #[arg(conflicts_with_all = ["to", "format", "hls_dir"])]
    hls: Option<HlsAddress>,
    /// Write the stream as HLS to this directory, for a web server
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["to", "format"])]
    hls_dir: Option<PathBuf>,
    /// The format of the output
    #[arg(long, value_enum, default_value = "ts")]
    format: Format,
    #[command(flatten)]
    place: StateDir,
    #[command(flatten)]
    queue: QueueOptions,
}

/// The renditions of a ladder to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendition {
    /// One at a time, the best that the path can deliver.
    Auto,
    /// All at once.
    All,
    /// One, by the index of its track.
    One(u8),
}

impl FromStr for Rendition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            _ => {
                let number = text.parse().ok().filter(|n| usize::from(*n) < MAX_TRACKS);
                let last = MAX_TRACKS - 1;
                number.map(Self::One).ok_or_else(|| {
                    format!("`{text}` is not a rendition: auto, all, or a number up to {last}")
                })
            }
        }
    }
}

impl Rendition {
    /// The tracks to request.
    fn tracks(self) -> Vec<u8> {
        match self {
            Self::Auto => (0..MAX_TRACKS as u8).collect(),
            Self::All => Vec::new(),
            Self::One(track) => vec![track],
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When no node runs, or the output cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    host::block_on(async {
        let mut signals = Signals::watch()?;
        let work = async {
            let request = SubscribeRequest {
                level: args.level,
                tracks: args.rendition.tracks(),
                latency_ms: u32::try_from(args.latency.as_millis()).unwrap_or(u32::MAX),
                from: args.from.clone(),
                ..SubscribeRequest::for_stream(args.name.clone())
            };
            let mut last_reason = String::new();
            let report_wait = |why: &str| {
                if last_reason != why {
                    note!("thalweg: {}: {why}", args.name);
                    why.clone_into(&mut last_reason);
                }
            };
            let mut subscriber =
                match Subscriber::begin_with_progress(&socket, request, report_wait).await {
                    Ok(subscriber) => subscriber,
                    Err(why) => return Ok(report_error(&why)),
                };
            note!("thalweg: {}, published at {}", args.name, subscriber.about().origin);
            let mut output = match StreamOutput::open(&args, &subscriber).await {
                Ok(output) => output,
                Err(why) if why.is::<DirectoryError>() => {
                    note!("thalweg: {why:#}");
                    return Ok(Code::Disk);
                }
                Err(why) => return Err(why),
            };
            match follow(&mut subscriber, &mut output).await? {
                StreamOutcome::Unwritten(code) => Ok(code),
                StreamOutcome::Ended(code) => Ok(output.end().await?.unwrap_or(code)),
            }
        };
        tokio::select! {
            code = work => code.map(ExitCode::from),
            () = signals.next() => Ok(Code::Interrupted.into()),
        }
    })
}

/// How following a stream ended, with the exit code.
enum StreamOutcome {
    Ended(Code),
    /// The output cannot be written any more, which has been reported.
    Unwritten(Code),
}

/// Writes the stream until it ends.
async fn follow(
    subscriber: &mut Subscriber,
    output: &mut StreamOutput,
) -> anyhow::Result<StreamOutcome> {
    loop {
        let written = match subscriber.next().await {
            Ok(ReceivedItem::Frame(head, frame)) => output.write(head, &frame).await?,
            Ok(ReceivedItem::Message(ParentMessage::Lost(lost))) => {
                lost.into_iter().for_each(|lost| output.record_loss(lost));
                None
            }
            Ok(ReceivedItem::Message(ParentMessage::End(Ending::Over))) => {
                return Ok(StreamOutcome::Ended(Code::Done));
            }
            Ok(ReceivedItem::Message(ParentMessage::End(why))) => {
                return Ok(StreamOutcome::Ended(report_error(&StreamError::Ended(why))));
            }
            Ok(ReceivedItem::Message(_)) => None,
            Err(why) => return Ok(StreamOutcome::Ended(report_error(&why))),
        };
        if let Some(code) = written {
            return Ok(StreamOutcome::Unwritten(code));
        }
    }
}

/// The output of the command.
enum StreamOutput {
    Ts(Box<TsOutput>, Sink),
    Frames(FramesOutput, Sink),
    Hls(Box<Hls>),
}

impl StreamOutput {
    async fn open(args: &Args, subscriber: &Subscriber) -> anyhow::Result<Self> {
        let origin = subscriber.about().origin.to_string();
        if let Some(address) = args.hls {
            return Ok(Self::Hls(Box::new(
                Hls::serve(address, args.name.as_str(), &origin).await?,
            )));
        }
        if let Some(path) = &args.hls_dir {
            return Ok(Self::Hls(Box::new(
                Hls::write_to(path, args.name.as_str(), &origin).await?,
            )));
        }
        let to = Sink::open(args.to).await?;
        Ok(match args.format {
            Format::Ts => Self::Ts(Box::new(TsOutput::new(args.rendition)), to),
            Format::Frames => Self::Frames(FramesOutput::default(), to),
        })
    }

    /// Writes a frame. Returns the exit code if nobody reads the output any more or the disk is full.
    async fn write(&mut self, head: FrameHead, frame: &Frame) -> anyhow::Result<Option<Code>> {
        let (bytes, to) = match self {
            Self::Hls(hls) => return Ok(hls.write(head, frame).await),
            Self::Ts(output, to) => (output.format(head, frame), to),
            Self::Frames(output, to) => (output.format(head, frame), to),
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        match to.write(&bytes).await {
            Ok(()) => Ok(None),
            Err(why) => output_error(why).map(Some),
        }
    }

    fn record_loss(&mut self, lost: LostFrame) {
        match self {
            Self::Ts(output, _) => output.record_loss(lost),
            Self::Frames(output, _) => output.record_loss(lost),
            Self::Hls(hls) => hls.record_loss(lost),
        }
    }

    /// Ends the output: the last segment is complete. Returns the exit code if it cannot be written.
    async fn end(self) -> anyhow::Result<Option<Code>> {
        match self {
            Self::Ts(mut output, mut to) => {
                let mut bytes = Vec::new();
                output.joiner.end(&mut bytes);
                match to.write(&bytes).await {
                    Ok(()) => Ok(None),
                    // A reader that has left does not need them.
                    Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(None),
                    Err(why) => output_error(why).map(Some),
                }
            }
            Self::Hls(hls) => hls.end().await,
            Self::Frames(..) => Ok(None),
        }
    }
}

/// The exit code for an error of the output, which is reported if nobody has caused it by leaving.
///
/// # Errors
/// Those without a code of their own.
fn output_error(why: std::io::Error) -> anyhow::Result<Code> {
    match why.kind() {
        ErrorKind::BrokenPipe => Ok(Code::Unread),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            note!("thalweg: cannot write the stream: {why}");
            Ok(Code::Disk)
        }
        _ => Err(anyhow::Error::new(why).context("cannot write the stream")),
    }
}

/// Finds frames that are missing without a notice.
#[derive(Default)]
struct Gaps {
    next: Option<u64>,
}

impl Gaps {
    /// Returns whether frames before this one are missing.
    fn check(&mut self, sequence: u64) -> bool {
        let is_gap = self.next.is_some_and(|next| sequence > next);
        self.next = Some(sequence + 1);
        is_gap
    }
}

/// Frames as a transport stream.
struct TsOutput {
    joiner: TsJoiner,
    choice: Option<RenditionChoice>,
    gaps: Gaps,
}

impl TsOutput {
    fn new(rendition: Rendition) -> Self {
        let output = match rendition {
            Rendition::All => Output::AsSent,
            Rendition::Auto | Rendition::One(_) => Output::Detected,
        };
        let choice = (rendition != Rendition::All).then(RenditionChoice::default);
        Self { joiner: TsJoiner::new(output), choice, gaps: Gaps::default() }
    }

    fn format(&mut self, head: FrameHead, frame: &Frame) -> Vec<u8> {
        self.check_gap(head.sequence);
        if let Some(track) = self.choice.as_mut().and_then(|choice| choice.add(frame)) {
            self.joiner.select(track);
        }
        let mut packets = Vec::with_capacity(frame.bytes.len());
        self.joiner.push(frame, &mut packets);
        packets
    }

    fn record_loss(&mut self, lost: LostFrame) {
        self.check_gap(lost.sequence);
        if let Some(class) = FrameClass::from_number(lost.class) {
            self.joiner.record_loss(lost.track, class);
        }
    }

    fn check_gap(&mut self, sequence: u64) {
        if self.gaps.check(sequence) {
            (0..MAX_TRACKS as u8).for_each(|track| self.joiner.record_loss(track, FrameClass::Key));
        }
    }
}

/// Frames behind their heads.
#[derive(Default)]
struct FramesOutput {
    chains: Chains,
    gaps: Gaps,
}

impl FramesOutput {
    fn format(&mut self, head: FrameHead, frame: &Frame) -> Vec<u8> {
        self.check_gap(head.sequence);
        match self.chains.accept(frame.track, frame.class) {
            true => PlainSplitter::encode(head, frame),
            false => Vec::new(),
        }
    }

    fn record_loss(&mut self, lost: LostFrame) {
        self.check_gap(lost.sequence);
        if let Some(class) = FrameClass::from_number(lost.class) {
            self.chains.record_loss(lost.track, class);
        }
    }

    fn check_gap(&mut self, sequence: u64) {
        if self.gaps.check(sequence) {
            self.chains.break_all();
        }
    }
}
