//! `thalweg stream publish`: frames of a program to this host's node.

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
    Frame,
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
    net::TcpListener,
    time::{Instant, sleep_until},
};

const HELP: &str = "\
Reads standard input, a file, or whoever connects. Who may subscribe is in `[stream] subscribe` of the node's
settings. When the program that connects to --listen goes away, the stream waits for it to return.

  thalweg stream publish stage --listen tcp://127.0.0.1:9000
  thalweg stream publish loop recording.frames --pace --latency 2s";

/// Arguments of `thalweg stream publish`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The stream's name, which is nobody else's in the mesh
    #[arg(value_name = "NAME")]
    name: Name,
    /// Read this file instead of standard input
    #[arg(value_name = "FILE", conflicts_with = "listen")]
    file: Option<PathBuf>,
    /// Take the stream from one program at a time that connects here
    #[arg(long, value_name = "tcp://ADDR:PORT")]
    listen: Option<Listen>,
    /// Send frames at their own times instead of as fast as they are read
    #[arg(long)]
    pace: bool,
    /// How frames lie in the bytes
    #[arg(long, value_enum, default_value = "frames")]
    format: Format,
    /// How long frames are of use
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    #[command(flatten)]
    place: Place,
}

/// Where programs connect.
#[derive(Clone, Copy, Debug)]
struct Listen(SocketAddr);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("tcp://").and_then(|address| address.parse().ok());
        let address: SocketAddr =
            address.ok_or("an address looks like tcp://127.0.0.1:9000, with a number")?;
        match address.ip().is_loopback() {
            true => Ok(Self(address)),
            false => {
                Err("whoever connects is not asked who it is: take a loopback address".to_owned())
            }
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
                Err(why) => return Ok(told(&why)),
            };
            note!("thalweg: publishing {}", args.name);
            let sent = feed(&args, &mut publisher).await;
            match sent {
                Ok(()) => {
                    publisher.end().await.context("cannot end the stream")?;
                    Ok(Code::Done)
                }
                Err(Failed::Node(why)) => Ok(told(&why)),
                Err(Failed::Input(why)) => {
                    note!("thalweg: {why}; the stream up to there was published");
                    Ok(Code::Bytes)
                }
                Err(Failed::Other(why)) => Err(why),
            }
        };
        tokio::select! {
            code = work => code.map(ExitCode::from),
            () = signals.next() => Ok(Code::Interrupted.into()),
        }
    })
}

/// Says why a node does not do it; with which code the command ends.
pub(super) fn told(why: &StreamError) -> Code {
    note!("thalweg: {why}");
    match why {
        StreamError::NoDaemon(_)
        | StreamError::Refused(Refusal::Unknown(_) | Refusal::Upstream(_)) => Code::Network,
        StreamError::Refused(_) | StreamError::Ended(Ending::Revoked) => Code::Refused,
        StreamError::Ended(Ending::Over) => Code::Done,
        StreamError::Ended(_) | StreamError::Broken(_) => Code::Other,
    }
}

/// What ends the feeding.
enum Failed {
    Node(StreamError),
    Input(SplitError),
    Other(anyhow::Error),
}

async fn feed(args: &Args, publisher: &mut Publisher) -> Result<(), Failed> {
    let other =
        |why: std::io::Error, what: String| Failed::Other(anyhow::Error::new(why).context(what));
    if let Some(Listen(at)) = args.listen {
        let listener = TcpListener::bind(at).await;
        let listener = listener.map_err(|why| other(why, format!("cannot listen at {at}")))?;
        loop {
            let accepted = listener.accept().await;
            let (mut from, peer) =
                accepted.map_err(|why| other(why, "cannot accept".to_owned()))?;
            note!("thalweg: {peer} brings the stream");
            match pass(args, &mut from, publisher).await {
                Err(Failed::Input(why)) => note!("thalweg: {peer}: {why}; waiting for another"),
                Err(Failed::Other(why)) => note!("thalweg: {peer}: {why:#}; waiting for another"),
                Err(why) => return Err(why),
                Ok(()) => note!("thalweg: {peer} has left; waiting for another"),
            }
        }
    }
    match &args.file {
        None => pass(args, &mut tokio::io::stdin(), publisher).await,
        Some(file) => {
            let opened = tokio::fs::File::open(file).await;
            let mut opened =
                opened.map_err(|why| other(why, format!("cannot open {}", file.display())))?;
            pass(args, &mut opened, publisher).await
        }
    }
}

/// Passes one input on, to its end.
async fn pass(
    args: &Args,
    from: &mut (impl AsyncRead + Unpin),
    publisher: &mut Publisher,
) -> Result<(), Failed> {
    let mut splitter: Box<dyn Splitter> = match args.format {
        Format::Frames => Box::new(Frames::default()),
    };
    let (mut buffer, mut frames) = (vec![0; 64 << 10], Vec::new());
    let mut pace = args.pace.then(Pace::default);
    loop {
        let read = from.read(&mut buffer).await;
        let read =
            read.map_err(|why| Failed::Other(anyhow::Error::new(why).context("cannot read")))?;
        let split = splitter.push(&buffer[..read], &mut frames);
        for frame in frames.drain(..) {
            if let Some(pace) = &mut pace {
                pace.wait(&frame).await;
            }
            publisher.send(&frame).await.map_err(Failed::Node)?;
        }
        split.map_err(Failed::Input)?;
        if read == 0 {
            let left = splitter.end();
            if left > 0 {
                note!("thalweg: the input ends within a frame; its last {left} bytes are left out");
            }
            return Ok(());
        }
    }
}

/// Has frames go at their times.
#[derive(Default)]
struct Pace {
    began: Option<(Instant, Duration)>,
}

impl Pace {
    async fn wait(&mut self, frame: &Frame) {
        let (began, first) = *self.began.get_or_insert((Instant::now(), frame.time));
        sleep_until(began + frame.time.saturating_sub(first)).await;
    }
}
