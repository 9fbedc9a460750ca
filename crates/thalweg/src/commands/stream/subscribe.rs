//! `thalweg stream subscribe`: passes a stream from this host's node to a program.

use super::{Format, publish::report_error, socket};
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
    local::{Received, StreamError, Subscriber},
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
Writes the stream to standard output or to --to. After a loss it resumes at the next frame that can
be decoded. --from names the publisher's node or a relay; without it this host's node must have the
stream already.

  thalweg stream subscribe stage --from studio --level no-disposable --latency 500ms > stage.ts";

/// Arguments of `thalweg stream subscribe`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The stream's name
    #[arg(value_name = "NAME")]
    name: Name,
    /// The member that publishes or relays the stream
    #[arg(long, value_name = "MEMBER")]
    from: Option<Name>,
    /// The highest level: all, no-disposable or keys
    #[arg(long, value_name = "LEVEL", default_value = "all")]
    level: Level,
    /// The deadline: frames that would be older than this are dropped
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// Connect to this address and write the stream there, or send it as datagrams
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT")]
    to: Option<To>,
    /// The format of the output
    #[arg(long, value_enum, default_value = "ts")]
    format: Format,
    #[command(flatten)]
    place: Place,
}

/// The address that receives the stream.
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

/// Seven transport stream packets: the datagram size that UDP players expect.
const DATAGRAM: usize = 7 * 188;

/// The receiver of the bytes.
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
                        // Nobody listens at present, but the player may start later.
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
                Err(why) => return Ok(report_error(&why)),
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
            Ok(Received::Frame(head, frame)) => output.format_frame(head, &frame),
            Ok(Received::Said(Said::Lost(lost))) => {
                lost.iter()
                    .for_each(|lost| output.record_loss(lost.sequence, lost.track, lost.class));
                continue;
            }
            Ok(Received::Said(Said::End(Ending::Over))) => return Ok(Code::Done),
            Ok(Received::Said(Said::End(why))) => {
                return Ok(report_error(&StreamError::Ended(why)));
            }
            Ok(Received::Said(_)) => continue,
            Err(why) => return Ok(report_error(&why)),
        };
        let Some(bytes) = bytes else { continue };
        match to.write(&bytes).await {
            Err(why) if why.kind() == ErrorKind::BrokenPipe => return Ok(Code::Unread),
            written => written.context("cannot write the stream")?,
        }
    }
}

/// Selects and formats the frames that can be decoded.
struct Output {
    format: Format,
    chains: Chains,
    next: Option<u64>,
    joiner: TsJoiner,
}

impl Output {
    fn format_frame(&mut self, head: FrameHead, frame: &Frame) -> Option<Vec<u8>> {
        self.check_gap(head.sequence);
        if !self.chains.accept(frame.track, frame.class) {
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

    fn record_loss(&mut self, sequence: u64, track: u8, class: u8) {
        self.check_gap(sequence);
        if let Some(class) = class_of(class) {
            self.chains.record_loss(track, class);
        }
    }

    /// Breaks all chains if frames are missing without a notice.
    fn check_gap(&mut self, sequence: u64) {
        if self.next.is_some_and(|next| sequence > next) {
            self.chains.break_all();
        }
        self.next = Some(sequence + 1);
    }
}
