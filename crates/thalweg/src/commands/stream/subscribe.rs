//! `thalweg stream subscribe`: a stream from this host's node to a program.

use super::{Format, publish::told, socket};
use crate::commands::{
    exit::Code,
    here::{self, Place},
    signals::Signals,
};
use anyhow::Context as _;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};
use thalweg_console::note;
use thalweg_stream::{
    Chains, Frame, TsJoiner, class_of,
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
    net::{TcpStream, UdpSocket},
};

const HELP: &str = "\
Writes the stream to standard output, or to --to. After frames that do not come, it goes on at the next frame that can
be decoded without them. --from names the publisher's node, or one that hands the stream on; without it the stream must be
at this host's node already.

  thalweg stream subscribe stage --from studio --level no-disposable --latency 500ms > stage.ts";

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
    /// Connect there and write the stream to it, or send it in datagrams, instead of standard output
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT")]
    to: Option<To>,
    /// How frames lie in the bytes
    #[arg(long, value_enum, default_value = "ts")]
    format: Format,
    #[command(flatten)]
    place: Place,
}

/// Where the stream is written.
#[derive(Clone, Copy, Debug)]
enum To {
    Tcp(SocketAddr),
    Udp(SocketAddr),
}

impl FromStr for To {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "an address looks like tcp://127.0.0.1:9000 or udp://127.0.0.1:9000";
        let (kind, address) = text.split_once("://").ok_or(form)?;
        let address = address.parse().map_err(|_| form)?;
        match kind {
            "tcp" => Ok(Self::Tcp(address)),
            "udp" => Ok(Self::Udp(address)),
            _ => Err(form),
        }
    }
}

/// Seven packets of a transport stream: what players of UDP expect of a datagram.
const DATAGRAM: usize = 7 * 188;

/// Who takes the bytes.
enum Sink {
    Bytes(Box<dyn AsyncWrite + Unpin>),
    Datagrams(UdpSocket),
}

impl Sink {
    async fn open(to: Option<To>) -> anyhow::Result<Self> {
        Ok(match to {
            None => Self::Bytes(Box::new(tokio::io::stdout())),
            Some(To::Tcp(at)) => {
                let to = TcpStream::connect(at).await;
                Self::Bytes(Box::new(to.with_context(|| format!("cannot connect to {at}"))?))
            }
            Some(To::Udp(at)) => {
                let any: SocketAddr = match at {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any).await.context("cannot open a socket")?;
                socket.connect(at).await.with_context(|| format!("cannot send to {at}"))?;
                Self::Datagrams(socket)
            }
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Bytes(to) => {
                to.write_all(bytes).await?;
                to.flush().await
            }
            Self::Datagrams(socket) => {
                for piece in bytes.chunks(DATAGRAM) {
                    match socket.send(piece).await {
                        // Nobody listens yet, or any more: the next ones may be heard.
                        Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                        sent => drop(sent?),
                    }
                }
                Ok(())
            }
        }
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
            write(args.format, subscriber, Sink::open(args.to).await?).await
        };
        tokio::select! {
            code = work => code.map(ExitCode::from),
            () = signals.next() => Ok(Code::Interrupted.into()),
        }
    })
}

/// Writes the stream until it ends.
async fn write(format: Format, mut subscriber: Subscriber, mut to: Sink) -> anyhow::Result<Code> {
    let mut output =
        Output { format, chains: Chains::default(), next: None, joiner: TsJoiner::default() };
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
        match to.write(&bytes).await {
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
    joiner: TsJoiner,
}

impl Output {
    fn frame(&mut self, head: FrameHead, frame: &Frame) -> Option<Vec<u8>> {
        self.gap(head.sequence);
        if !self.chains.take(frame.track, frame.class) {
            return None;
        }
        Some(match self.format {
            Format::Ts => {
                let mut packets = Vec::with_capacity(frame.bytes.len());
                self.joiner.push(frame, &mut packets);
                packets
            }
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
