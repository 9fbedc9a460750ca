//! `thalweg stream publish`: passes frames of a program to this host's node.

use super::{Format, socket};
use crate::commands::{
    exit::Code,
    here::{self, Place},
    signals::Signals,
};
use anyhow::Context as _;
use std::{net::SocketAddr, path::PathBuf, process::ExitCode, str::FromStr, time::Duration};
use thalweg_console::note;
use thalweg_stream::{
    Frame, TsSplitter,
    container::{Frames, SplitError, Splitter},
    local::{Publisher, StreamError},
};
use thalweg_units::parse_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Announce, Ending, Refusal},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::{TcpListener, UdpSocket},
    time::{Instant, sleep_until},
};

const HELP: &str = "\
Reads standard input, a file, or a program that connects. The node's setting `[stream] subscribe`
lists the members that may subscribe. When the program at --listen disconnects, the stream waits for
it to return.

  thalweg stream publish stage --listen tcp://127.0.0.1:9000
  thalweg stream publish loop recording.ts --pace --latency 2s";

/// Arguments of `thalweg stream publish`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The stream's name, unique in the mesh
    #[arg(value_name = "NAME")]
    name: Name,
    /// Read this file instead of standard input
    #[arg(value_name = "FILE", conflicts_with = "listen")]
    file: Option<PathBuf>,
    /// Accept the stream from one connecting program at a time, or as datagrams
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT")]
    listen: Option<Listen>,
    /// Send frames in real time instead of as fast as they are read
    #[arg(long)]
    pace: bool,
    /// The format of the input
    #[arg(long, value_enum, default_value = "ts")]
    format: Format,
    /// How long frames stay useful
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    #[command(flatten)]
    place: Place,
}

/// The address at which programs deliver the stream.
#[derive(Clone, Copy, Debug)]
enum Listen {
    Tcp(SocketAddr),
    Udp(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            || "an address looks like tcp://127.0.0.1:9000 or udp://127.0.0.1:9000".to_owned();
        let (kind, address) = text.split_once("://").ok_or_else(form)?;
        let address: SocketAddr = address.parse().map_err(|_| form())?;
        if !address.ip().is_loopback() {
            return Err(
                "programs are not authenticated, so only a loopback address is allowed".to_owned()
            );
        }
        match kind {
            "tcp" => Ok(Self::Tcp(address)),
            "udp" => Ok(Self::Udp(address)),
            _ => Err(form()),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When the input cannot be read, or no node runs.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    here::block_on(async {
        let mut signals = Signals::watch()?;
        let work = async {
            let latency_ms = u32::try_from(args.latency.as_millis()).unwrap_or(u32::MAX);
            let announce = Announce { stream: args.name.clone(), tracks: Vec::new(), latency_ms };
            let mut publisher = match Publisher::begin(&socket, announce).await {
                Ok(publisher) => publisher,
                Err(why) => return Ok(report_error(&why)),
            };
            note!("thalweg: publishing {}", args.name);
            let sent = feed(&args, &mut publisher).await;
            match sent {
                Ok(()) => {
                    publisher.end().await.context("cannot end the stream")?;
                    Ok(Code::Done)
                }
                Err(FeedError::Node(why)) => Ok(report_error(&why)),
                Err(FeedError::Input(why)) => {
                    note!("thalweg: {why}; the stream up to there was published");
                    publisher.end().await.context("cannot end the stream")?;
                    Ok(Code::Bytes)
                }
                Err(FeedError::Other(why)) => Err(why),
            }
        };
        tokio::select! {
            code = work => code.map(ExitCode::from),
            () = signals.next() => Ok(Code::Interrupted.into()),
        }
    })
}

/// Prints the error and returns the exit code.
pub(super) fn report_error(why: &StreamError) -> Code {
    note!("thalweg: {why}");
    match why {
        StreamError::NoDaemon(_)
        | StreamError::Refused(Refusal::Unknown(_) | Refusal::Upstream(_)) => Code::Network,
        StreamError::Refused(_) | StreamError::Ended(Ending::Revoked) => Code::Refused,
        StreamError::Ended(Ending::Over) => Code::Done,
        StreamError::Ended(_) | StreamError::Broken(_) => Code::Other,
    }
}

/// Why publishing failed.
enum FeedError {
    Node(StreamError),
    Input(SplitError),
    Other(anyhow::Error),
}

fn other_error(why: std::io::Error, what: impl Into<String>) -> FeedError {
    FeedError::Other(anyhow::Error::new(why).context(what.into()))
}

async fn feed(args: &Args, publisher: &mut Publisher) -> Result<(), FeedError> {
    let no_listener =
        |at: SocketAddr| move |why| other_error(why, format!("cannot listen at {at}"));
    match (args.listen, &args.file) {
        (Some(Listen::Tcp(at)), _) => {
            let listener = TcpListener::bind(at).await.map_err(no_listener(at))?;
            loop {
                let accepted = listener.accept().await;
                let (mut from, peer) = accepted.map_err(|why| other_error(why, "cannot accept"))?;
                note!("thalweg: {peer} delivers the stream");
                match publish_input(args, &mut from, publisher).await {
                    Err(FeedError::Input(why)) => {
                        note!("thalweg: {peer}: {why}; waiting for another")
                    }
                    Err(FeedError::Other(why)) => {
                        note!("thalweg: {peer}: {why:#}; waiting for another");
                    }
                    Err(why) => return Err(why),
                    Ok(()) => note!("thalweg: {peer} has left; waiting for another"),
                }
            }
        }
        (Some(Listen::Udp(at)), _) => {
            let socket = UdpSocket::bind(at).await.map_err(no_listener(at))?;
            let (mut input, mut buffer) = (InputFeed::new(args), vec![0; 64 << 10]);
            loop {
                let read = socket
                    .recv(&mut buffer)
                    .await
                    .map_err(|why| other_error(why, "cannot read"))?;
                input.push(&buffer[..read], publisher).await?;
            }
        }
        (None, None) => publish_input(args, &mut tokio::io::stdin(), publisher).await,
        (None, Some(file)) => {
            let opened = tokio::fs::File::open(file).await;
            let opened =
                opened.map_err(|why| other_error(why, format!("cannot open {}", file.display())));
            publish_input(args, &mut opened?, publisher).await
        }
    }
}

/// Publishes one input to its end.
async fn publish_input(
    args: &Args,
    from: &mut (impl AsyncRead + Unpin),
    publisher: &mut Publisher,
) -> Result<(), FeedError> {
    let (mut input, mut buffer) = (InputFeed::new(args), vec![0; 64 << 10]);
    loop {
        let read = from.read(&mut buffer).await.map_err(|why| other_error(why, "cannot read"))?;
        if read == 0 {
            return input.end(publisher).await;
        }
        input.push(&buffer[..read], publisher).await?;
    }
}

/// An input that is being published.
struct InputFeed {
    splitter: Box<dyn Splitter>,
    pace: Option<Pace>,
    frames: Vec<Frame>,
}

impl InputFeed {
    fn new(args: &Args) -> Self {
        let splitter: Box<dyn Splitter> = match args.format {
            Format::Ts => Box::new(TsSplitter::default()),
            Format::Frames => Box::new(Frames::default()),
        };
        Self { splitter, pace: args.pace.then(Pace::default), frames: Vec::new() }
    }

    async fn push(&mut self, bytes: &[u8], publisher: &mut Publisher) -> Result<(), FeedError> {
        let split = self.splitter.push(bytes, &mut self.frames);
        self.send(publisher).await?;
        split.map_err(FeedError::Input)
    }

    async fn end(&mut self, publisher: &mut Publisher) -> Result<(), FeedError> {
        let left = self.splitter.end(&mut self.frames);
        self.send(publisher).await?;
        if left > 0 {
            note!("thalweg: the input ends within a frame; its last {left} bytes are dropped");
        }
        Ok(())
    }

    async fn send(&mut self, publisher: &mut Publisher) -> Result<(), FeedError> {
        for warning in self.splitter.take_warnings() {
            note!("thalweg: {warning}");
        }
        for frame in self.frames.drain(..) {
            if let Some(pace) = &mut self.pace {
                pace.wait(&frame).await;
            }
            publisher.send(&frame).await.map_err(FeedError::Node)?;
        }
        Ok(())
    }
}

/// Delays frames to their decoding times.
#[derive(Default)]
struct Pace {
    began: Option<(Instant, Duration)>,
}

impl Pace {
    async fn wait(&mut self, frame: &Frame) {
        let (began, first) = *self.began.get_or_insert((Instant::now(), frame.time));
        // Do not wait for a time beyond the clock's range.
        if let Some(due) = began.checked_add(frame.time.saturating_sub(first)) {
            sleep_until(due).await;
        }
    }
}
