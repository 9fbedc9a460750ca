//! `thalweg stream subscribe`: a stream from this host's node to a program.

use super::{Format, publish::told, socket};
use crate::commands::{
    exit::Code,
    here::{self, Place},
    signals::Signals,
};
use anyhow::Context as _;
use std::{io::ErrorKind, net::SocketAddr, process::ExitCode, str::FromStr, time::Duration};
use thalweg_console::note;
use thalweg_stream::{
    Chains, Frame, class_of,
    container::Frames,
    local::{Coming, StreamError, Subscriber},
};
use thalweg_units::parse_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Ask, Ending, FrameHead, Level, Said},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

const HELP: &str = "\
Writes the stream to standard output, or to --to. After frames that do not come, it goes on at the next frame that can
be decoded without them. With an oracle the stream is found by its name; --from names its publisher's node.

  thalweg stream subscribe stage --from studio --level no-disposable --latency 500ms > stage.frames";

/// Arguments of `thalweg stream subscribe`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The stream's name
    #[arg(value_name = "NAME")]
    name: Name,
    /// The member at whose node it is published, or that hands it on
    #[arg(long, value_name = "MEMBER")]
    from: Option<Name>,
    /// The best that is of use: all, no-disposable, keys
    #[arg(long, value_name = "LEVEL", default_value = "all")]
    level: Level,
    /// A frame that would come later than this is not sent
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// Connect there and write the stream to it instead of standard output
    #[arg(long, value_name = "tcp://ADDR:PORT")]
    to: Option<To>,
    /// How frames lie in the bytes
    #[arg(long, value_enum, default_value = "frames")]
    format: Format,
    #[command(flatten)]
    place: Place,
}

/// Where the stream is written.
#[derive(Clone, Copy, Debug)]
struct To(SocketAddr);

impl FromStr for To {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.strip_prefix("tcp://").and_then(|address| address.parse().ok());
        address.map(Self).ok_or("an address looks like tcp://127.0.0.1:9000, with a number")
    }
}

/// Runs the command.
///
/// # Errors
/// When no node runs, or the output cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    here::block_on(async {
        let mut signals = Signals::watch()?;
        let work = async {
            let ask = Ask {
                stream: args.name.clone(),
                level: args.level,
                tracks: Vec::new(),
                latency_ms: u32::try_from(args.latency.as_millis()).unwrap_or(u32::MAX),
                after: None,
                from: args.from.clone(),
                hops: 0,
            };
            let subscriber = match Subscriber::begin(&socket, ask).await {
                Ok(subscriber) => subscriber,
                Err(why) => return Ok(told(&why)),
            };
            note!("thalweg: {} of {}", args.name, subscriber.about().origin);
            match &args.to {
                None => write(args.format, subscriber, tokio::io::stdout()).await,
                Some(To(at)) => {
                    let to = TcpStream::connect(at).await;
                    let to = to.with_context(|| format!("cannot connect to {at}"))?;
                    write(args.format, subscriber, to).await
                }
            }
        };
        tokio::select! {
            code = work => code.map(ExitCode::from),
            () = signals.next() => Ok(Code::Interrupted.into()),
        }
    })
}

/// Writes the stream until it ends.
async fn write(
    format: Format,
    mut subscriber: Subscriber,
    mut to: impl AsyncWrite + Unpin,
) -> anyhow::Result<Code> {
    let mut output = Output { format, chains: Chains::default(), next: None };
    loop {
        let bytes = match subscriber.next().await {
            Ok(Coming::Frame(head, frame)) => output.frame(head, &frame),
            Ok(Coming::Said(Said::Lost(lost))) => {
                lost.iter().for_each(|lost| output.lost(lost.sequence, lost.track, lost.class));
                continue;
            }
            Ok(Coming::Said(Said::End(Ending::Over))) => return Ok(Code::Done),
            Ok(Coming::Said(Said::End(why))) => return Ok(told(&StreamError::Ended(why))),
            Ok(Coming::Said(_)) => continue,
            Err(why) => return Ok(told(&why)),
        };
        let Some(bytes) = bytes else { continue };
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        match written.await {
            Err(why) if why.kind() == ErrorKind::BrokenPipe => return Ok(Code::Unread),
            written => written.context("cannot write the stream")?,
        }
    }
}

/// What is written of what comes: only what can be decoded.
struct Output {
    format: Format,
    chains: Chains,
    next: Option<u64>,
}

impl Output {
    fn frame(&mut self, head: FrameHead, frame: &Frame) -> Option<Vec<u8>> {
        self.gap(head.sequence);
        if !self.chains.take(frame.track, frame.class) {
            return None;
        }
        Some(match self.format {
            Format::Frames => Frames::encode(head, frame),
        })
    }

    fn lost(&mut self, sequence: u64, track: u8, class: u8) {
        self.gap(sequence);
        if let Some(class) = class_of(class) {
            self.chains.lost(track, class);
        }
    }

    /// Frames of which nothing was said break all chains.
    fn gap(&mut self, sequence: u64) {
        if self.next.is_some_and(|next| sequence > next) {
            self.chains.lost_unknown();
        }
        self.next = Some(sequence + 1);
    }
}
