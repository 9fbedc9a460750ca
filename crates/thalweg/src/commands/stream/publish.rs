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
Reads standard input, a file, or whoever connects. Who may subscribe is in `[stream] subscribe` of the node's
settings. When the program that connects to --listen goes away, the stream waits for it to return.

  thalweg stream publish stage --listen tcp://127.0.0.1:9000
  thalweg stream publish loop recording.ts --pace --latency 2s";

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
    /// Take the stream from one program at a time that connects here, or sends datagrams
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT")]
    listen: Option<Listen>,
    /// Send frames at their own times instead of as fast as they are read
    #[arg(long)]
    pace: bool,
    /// How frames lie in the bytes
    #[arg(long, value_enum, default_value = "ts")]
    format: Format,
    /// How long frames are of use
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    #[command(flatten)]
    place: Place,
}

/// Where programs bring the stream.
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
            return Err("whoever comes is not asked who it is: take a loopback address".to_owned());
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
                    publisher.end().await.context("cannot end the stream")?;
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

fn other(why: std::io::Error, what: impl Into<String>) -> Failed {
    Failed::Other(anyhow::Error::new(why).context(what.into()))
}

async fn feed(args: &Args, publisher: &mut Publisher) -> Result<(), Failed> {
    let no_listener = |at: SocketAddr| move |why| other(why, format!("cannot listen at {at}"));
    match (args.listen, &args.file) {
        (Some(Listen::Tcp(at)), _) => {
            let listener = TcpListener::bind(at).await.map_err(no_listener(at))?;
            loop {
                let accepted = listener.accept().await;
                let (mut from, peer) = accepted.map_err(|why| other(why, "cannot accept"))?;
                note!("thalweg: {peer} brings the stream");
                match pass(args, &mut from, publisher).await {
                    Err(Failed::Input(why)) => note!("thalweg: {peer}: {why}; waiting for another"),
                    Err(Failed::Other(why)) => {
                        note!("thalweg: {peer}: {why:#}; waiting for another");
                    }
                    Err(why) => return Err(why),
                    Ok(()) => note!("thalweg: {peer} has left; waiting for another"),
                }
            }
        }
        (Some(Listen::Udp(at)), _) => {
            let socket = UdpSocket::bind(at).await.map_err(no_listener(at))?;
            let (mut passing, mut buffer) = (Passing::new(args), vec![0; 64 << 10]);
            loop {
                let read =
                    socket.recv(&mut buffer).await.map_err(|why| other(why, "cannot read"))?;
                passing.bytes(&buffer[..read], publisher).await?;
            }
        }
        (None, None) => pass(args, &mut tokio::io::stdin(), publisher).await,
        (None, Some(file)) => {
            let opened = tokio::fs::File::open(file).await;
            let opened =
                opened.map_err(|why| other(why, format!("cannot open {}", file.display())));
            pass(args, &mut opened?, publisher).await
        }
    }
}

/// Passes one input on, to its end.
async fn pass(
    args: &Args,
    from: &mut (impl AsyncRead + Unpin),
    publisher: &mut Publisher,
) -> Result<(), Failed> {
    let (mut passing, mut buffer) = (Passing::new(args), vec![0; 64 << 10]);
    loop {
        let read = from.read(&mut buffer).await.map_err(|why| other(why, "cannot read"))?;
        if read == 0 {
            return passing.end(publisher).await;
        }
        passing.bytes(&buffer[..read], publisher).await?;
    }
}

/// One input on its way.
struct Passing {
    splitter: Box<dyn Splitter>,
    pace: Option<Pace>,
    frames: Vec<Frame>,
}

impl Passing {
    fn new(args: &Args) -> Self {
        let splitter: Box<dyn Splitter> = match args.format {
            Format::Ts => Box::new(TsSplitter::default()),
            Format::Frames => Box::new(Frames::default()),
        };
        Self { splitter, pace: args.pace.then(Pace::default), frames: Vec::new() }
    }

    async fn bytes(&mut self, bytes: &[u8], publisher: &mut Publisher) -> Result<(), Failed> {
        let split = self.splitter.push(bytes, &mut self.frames);
        self.send(publisher).await?;
        split.map_err(Failed::Input)
    }

    async fn end(&mut self, publisher: &mut Publisher) -> Result<(), Failed> {
        let left = self.splitter.end(&mut self.frames);
        self.send(publisher).await?;
        if left > 0 {
            note!("thalweg: the input ends within a frame; its last {left} bytes are left out");
        }
        Ok(())
    }

    async fn send(&mut self, publisher: &mut Publisher) -> Result<(), Failed> {
        for passed in self.splitter.passed() {
            note!("thalweg: {passed}");
        }
        for frame in self.frames.drain(..) {
            if let Some(pace) = &mut self.pace {
                pace.wait(&frame).await;
            }
            publisher.send(&frame).await.map_err(Failed::Node)?;
        }
        Ok(())
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
        // A time that no clock has is not waited for.
        if let Some(due) = began.checked_add(frame.time.saturating_sub(first)) {
            sleep_until(due).await;
        }
    }
}
