//! `thalweg stream publish`: passes frames of a program to this host's node.

use super::{
    Format,
    arrivals::{Arrivals, Program},
    endpoint::{Endpoint, parse_listen_address},
    socket,
};
use crate::commands::{
    exit::Code,
    host::{self, StateDir},
    jobs::QueueOptions,
    signals::Signals,
};
use anyhow::Context as _;
use std::{future::pending, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};
use thalweg_console::note;
use thalweg_media::{Frame, TsSplitter};
use thalweg_stream::{
    container::{PlainSplitter, SplitError, Splitter},
    local::{Publisher, StreamError},
};
use thalweg_units::parse_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{Ending, PublishRequest, Refusal},
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
    #[arg(long, value_name = "tcp://ADDR:PORT|udp://ADDR:PORT", value_parser = parse_listen_address)]
    listen: Option<Endpoint>,
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
    place: StateDir,
    #[command(flatten)]
    queue: QueueOptions,
}

/// Runs the command.
///
/// # Errors
/// When the input cannot be read, or no node runs.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = socket(&args.place)?;
    host::block_on(async {
        let mut signals = Signals::watch()?;
        let work = async {
            let latency_ms = u32::try_from(args.latency.as_millis()).unwrap_or(u32::MAX);
            let request =
                PublishRequest { stream: args.name.clone(), tracks: Vec::new(), latency_ms };
            let mut publisher = match Publisher::begin(&socket, request).await {
                Ok(publisher) => publisher,
                Err(why) => return Ok(report_error(&why)),
            };
            note!("thalweg: publishing {}", args.name);
            let sent = Feed { args: &args, publisher: &mut publisher, newest: None }.run().await;
            match sent {
                Ok(()) => {
                    publisher.end().await.context("cannot end the stream")?;
                    Ok(Code::Done)
                }
                Err(FeedError::Node(why)) => Ok(report_error(&why)),
                Err(FeedError::Input(why)) => {
                    note!("thalweg: {why}; all frames before that byte were published");
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

fn accept_error(why: std::io::Error) -> FeedError {
    other_error(why, "cannot accept a connection")
}

/// The size of the socket's buffer for datagrams: a key frame of high quality arrives at once.
const UDP_BUFFER: usize = 4 << 20;

/// The minimum time between warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Publishes the frames of one or more inputs.
struct Feed<'a> {
    args: &'a Args,
    publisher: &'a mut Publisher,
    /// The arrival and decoding time of the newest frame.
    newest: Option<(Instant, Duration)>,
}

impl Feed<'_> {
    /// Publishes the input, or one input after the other.
    async fn run(mut self) -> Result<(), FeedError> {
        let listen_error =
            |at: SocketAddr| move |why| other_error(why, format!("cannot listen at {at}"));
        match (self.args.listen, &self.args.file) {
            (Some(Endpoint::Tcp(at)), _) => {
                let listener = TcpListener::bind(at).await.map_err(listen_error(at))?;
                self.accept(listener).await
            }
            (Some(Endpoint::Udp(at)), _) => {
                let socket = UdpSocket::bind(at).await.map_err(listen_error(at))?;
                // The kernel may allow less.
                _ = socket2::SockRef::from(&socket).set_recv_buffer_size(UDP_BUFFER);
                self.receive(socket).await
            }
            (None, None) => self.read(&mut tokio::io::stdin(), None).await.map(drop),
            (None, Some(file)) => {
                let open_error = |why| other_error(why, format!("cannot open {}", file.display()));
                let mut file = tokio::fs::File::open(file).await.map_err(open_error)?;
                self.read(&mut file, None).await.map(drop)
            }
        }
    }

    async fn accept(&mut self, listener: TcpListener) -> Result<(), FeedError> {
        let at = listener
            .local_addr()
            .map_err(|why| other_error(why, "cannot determine the bound address"))?;
        note!("thalweg: waiting for a program at tcp://{at}");
        let mut arrivals = Arrivals::new(listener);
        let mut waiting = None;
        loop {
            let (mut from, peer) = match waiting.take() {
                Some(program) => program,
                None => self.unless_ended(arrivals.next()).await?.map_err(accept_error)?,
            };
            note!("thalweg: {peer} sends the stream");
            match self.read(&mut from, Some(&mut arrivals)).await {
                Err(FeedError::Input(why)) => note!("thalweg: {peer}: {why}; waiting for another"),
                Err(FeedError::Other(why)) => {
                    note!("thalweg: {peer}: {why:#}; waiting for another");
                }
                Err(why) => return Err(why),
                Ok(None) => note!("thalweg: {peer} has disconnected; waiting for another"),
                Ok(next) => {
                    note!("thalweg: {peer} has stopped sending; the next program takes its place");
                    waiting = next;
                }
            }
        }
    }

    /// Waits for `waiting`; fails if the node ends the stream first.
    async fn unless_ended<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, FeedError> {
        tokio::select! {
            done = waiting => Ok(done),
            // A node sends nothing but the end, in one piece, so nothing is lost when this is dropped.
            why = self.publisher.ended() => {
                let broken = || StreamError::Broken(std::io::ErrorKind::UnexpectedEof.into());
                Err(FeedError::Node(why.map_or_else(broken, StreamError::Ended)))
            }
        }
    }

    async fn receive(&mut self, socket: UdpSocket) -> Result<(), FeedError> {
        let at = socket
            .local_addr()
            .map_err(|why| other_error(why, "cannot determine the bound address"))?;
        note!("thalweg: waiting for datagrams at udp://{at}");
        let (mut input, mut buffer) = (self.begin(), vec![0; 64 << 10]);
        loop {
            let read = self.unless_ended(socket.recv(&mut buffer)).await?;
            let read = read.map_err(|why| other_error(why, "cannot read"))?;
            self.push(&mut input, &buffer[..read]).await?;
        }
    }

    /// Publishes one input to its end, or until another program replaces it, which is returned.
    async fn read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        mut arrivals: Option<&mut Arrivals>,
    ) -> Result<Option<Program>, FeedError> {
        let (mut input, mut buffer) = (self.begin(), vec![0; 64 << 10]);
        loop {
            let next = async {
                match &mut arrivals {
                    Some(arrivals) => arrivals.next_if_idle().await,
                    None => pending().await,
                }
            };
            let read = async {
                tokio::select! {
                    read = from.read(&mut buffer) => Ok(read),
                    next = next => Err(next),
                }
            };
            let read = match self.unless_ended(read).await? {
                Ok(read) => read.map_err(|why| other_error(why, "cannot read"))?,
                Err(next) => {
                    let next = next.map_err(accept_error)?;
                    self.end(&mut input).await?;
                    return Ok(Some(next));
                }
            };
            if read == 0 {
                self.end(&mut input).await?;
                return Ok(None);
            }
            self.push(&mut input, &buffer[..read]).await?;
        }
    }

    /// Begins an input, whose times begin at zero.
    fn begin(&self) -> Input {
        let splitter: Box<dyn Splitter> = match self.args.format {
            Format::Ts => Box::new(TsSplitter::default()),
            Format::Frames => Box::new(PlainSplitter::default()),
        };
        Input {
            splitter,
            pace: self.args.pace.then(Pace::default),
            offset: self.newest.map_or(Duration::ZERO, |(at, time)| time + at.elapsed()),
            warned: None,
            frames: Vec::new(),
        }
    }

    async fn push(&mut self, input: &mut Input, bytes: &[u8]) -> Result<(), FeedError> {
        let split = input.splitter.push(bytes, &mut input.frames);
        self.send(input).await?;
        split.map_err(FeedError::Input)
    }

    async fn end(&mut self, input: &mut Input) -> Result<(), FeedError> {
        let left = input.splitter.end(&mut input.frames);
        input.warned = None;
        self.send(input).await?;
        if left > 0 {
            note!("thalweg: the input ends within a frame; its last {left} bytes are dropped");
        }
        Ok(())
    }

    async fn send(&mut self, input: &mut Input) -> Result<(), FeedError> {
        input.warn();
        for mut frame in input.frames.drain(..) {
            if let Some(pace) = &mut input.pace {
                pace.wait(&frame).await;
            }
            frame.time += input.offset;
            self.newest = Some((Instant::now(), frame.time));
            self.publisher.send(&frame).await.map_err(FeedError::Node)?;
        }
        Ok(())
    }
}

/// An input that is being published.
struct Input {
    splitter: Box<dyn Splitter>,
    pace: Option<Pace>,
    /// Added to its times, which begin at zero.
    offset: Duration,
    /// When warnings were last printed.
    warned: Option<Instant>,
    frames: Vec<Frame>,
}

impl Input {
    /// Prints the warnings, at most once per second: a lossy source has one for each datagram.
    fn warn(&mut self) {
        if self.warned.is_some_and(|at| at.elapsed() < WARNING_INTERVAL) {
            return;
        }
        for warning in self.splitter.take_warnings() {
            note!("thalweg: {warning}");
            self.warned = Some(Instant::now());
        }
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
