//! Probe trains for other programs (MGRP §2.1's Probe API): a Unix socket that only the node's owner can open.
//!
//! A program submits a whole train and reads its report. A program at the receiving member gets the header of each
//! probe with both timestamps. `docs/probe-service.md` describes the protocol.

pub mod messages;

use super::{
    Endpoint, OpenError, Payer, Session, SessionError, Trains, open, run::Direction, session::READY,
};
use messages::{Arrival, InvalidRequest, Opened, ProbeFilter, Reply, Report, Request, SendRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::log::{Event, Log};
use thalweg_base::peer_source::is_owner;
use thalweg_measure::train::{Punctuality, Train, sizes};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::Stream;
use thalweg_units::{NodeId, Time};
use thalweg_wire::mesh::Name;
use thiserror::Error;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf, unix::OwnedWriteHalf},
    sync::{Semaphore, broadcast::error::RecvError},
    task::JoinSet,
    time::sleep,
};

/// The longest line: a train of 4,096 different probes.
const MAX_LINE: u64 = 1 << 20;

/// The most programs at a time. With [`SESSIONS`] each they have 256 sessions, their part of an endpoint's; a further
/// program's connection is closed.
const PROGRAMS: usize = 32;

/// The most members that a program can send to over one connection. A further one is an error.
const SESSIONS: usize = 8;

/// A member that was asked for nothing this long is asked for arrivals even if the program does not want them, to check
/// that it is still there.
const SILENT: Duration = Duration::from_secs(60);

/// How often a program whose train is sent later is checked for a disconnect. Reading would not show one: the program
/// may have sent more requests already, or have closed its writing side and be waiting for the report.
const LOOK: Duration = Duration::from_secs(1);

/// The service of one node.
#[derive(Clone, Debug)]
pub struct ProbeService {
    trains: Trains,
    endpoint: Arc<Endpoint>,
    dialer: MemberDialer,
    /// Bulk flows hold permits of this semaphore.
    flows: Arc<Semaphore>,
    log: Log,
}

/// Why a request fails.
#[derive(Debug, Error)]
enum RequestError {
    #[error("cannot parse the request: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Words(#[from] InvalidRequest),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("the roster has no member `{0}` that runs a node")]
    Nobody(Name),
    #[error("the program disconnected before its train was sent")]
    Left,
    #[error(
        "one connection can send trains to at most {SESSIONS} members; open another connection"
    )]
    Many,
}

/// A session with a member, and the key that the member had when it was opened.
struct ProgramSession {
    session: Session<Stream>,
    key: NodeId,
}

impl ProbeService {
    /// Creates the service. `endpoint` is one of those that receive the datagrams of `trains`. Bulk flows hold permits
    /// of `flows`, so that no train is sent beside one.
    pub fn new(
        trains: Trains,
        endpoint: Arc<Endpoint>,
        dialer: MemberDialer,
        flows: Arc<Semaphore>,
        log: Log,
    ) -> Self {
        Self { trains, endpoint, dialer, flows, log }
    }

    /// Serves programs of this node's owner and of root; never returns.
    pub async fn run(self, listener: UnixListener) {
        let me = rustix::process::geteuid().as_raw();
        let places = Arc::new(Semaphore::new(PROGRAMS));
        let mut programs = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if is_owner(&stream, me) => {
                        // A connection beyond the limit is closed without an answer.
                        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                        let service = self.clone();
                        programs.spawn(async move {
                            service.serve(stream).await;
                            drop(place);
                        });
                    }
                    Ok(_) => {}
                    // As for TCP: without free descriptors, wait for some.
                    Err(_) => sleep(Duration::from_millis(100)).await,
                },
                Some(_) = programs.join_next() => {}
            }
        }
    }

    async fn serve(&self, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let mut sessions = BTreeMap::new();
        loop {
            let line = match line(&mut read).await {
                Ok(Some(line)) => line,
                Ok(None) | Err(_) => return,
            };
            let said = match self.answer(&line, &mut sessions, &write).await {
                Ok(Answer::Say(said)) => said,
                Ok(Answer::Subscribe(wanted)) => {
                    // An error means that the program has disconnected.
                    _ = self.stream_probes(&wanted, &mut read, &mut write).await;
                    return;
                }
                Err(why) => {
                    self.log.put(Event::new("probe_service").with("why", &why));
                    Reply::Error(why.to_string())
                }
            };
            if say(&mut write, &said).await.is_err() {
                return;
            }
        }
    }

    async fn answer(
        &self,
        line: &str,
        sessions: &mut BTreeMap<Name, ProgramSession>,
        program: &OwnedWriteHalf,
    ) -> Result<Answer, RequestError> {
        match serde_json::from_str(line)? {
            Request::Open(open) => {
                let session = self.session(&open.to, sessions).await?;
                // Whether a probe passes does not depend on timing.
                session.accept_busy(true);
                let largest = session.fitting(Direction::There, &sizes(session.overhead())).await?;
                let way = (largest, session.overhead());
                let opened = Opened::of(session.rtt(), way, session.calibrations());
                Ok(Answer::Say(Reply::Opened(opened)))
            }
            Request::Send(send) => {
                let report = self.send(&send, sessions, program).await?;
                Ok(Answer::Say(Reply::Report(Box::new(report))))
            }
            Request::Receive(receive) => Ok(Answer::Subscribe(receive.wanted()?)),
        }
    }

    /// The session with the member; a failed one is replaced.
    async fn session<'a>(
        &self,
        to: &Name,
        sessions: &'a mut BTreeMap<Name, ProgramSession>,
    ) -> Result<&'a mut Session<Stream>, RequestError> {
        let nobody = || RequestError::Nobody(to.clone());
        let roster = self.dialer.roster().map_err(|_| nobody())?;
        let key = roster.by_name(to).and_then(|member| member.node).ok_or_else(nobody)?;
        // Nothing is sent to a member that was revoked or replaced.
        sessions.retain(|name, open| name != to || open.key == key);
        if !sessions.contains_key(to) {
            if sessions.len() >= SESSIONS {
                return Err(RequestError::Many);
            }
            let (mut session, key) = open(&self.trains, &self.dialer, to, true).await?;
            session.pay_by(Payer::new(self.trains.clone(), key, Arc::clone(&self.flows)));
            sessions.insert(to.clone(), ProgramSession { session, key });
        }
        sessions.get_mut(to).map(|open| &mut open.session).ok_or_else(nobody)
    }

    async fn send(
        &self,
        send: &SendRequest,
        sessions: &mut BTreeMap<Name, ProgramSession>,
        program: &OwnedWriteHalf,
    ) -> Result<Report, RequestError> {
        let (train, headers) = send.train()?;
        let session = self.session(&send.to, sessions).await?;
        let train = train.with_overhead(session.overhead());
        session.accept_busy(send.accept_busy);
        let after = Duration::from_micros(send.after_us.into());
        let at = session.announce(&train, after);
        wait_while_connected(program, after.saturating_sub(READY)).await?;
        let sent = send_and_report(session, send, (train, at), headers).await;
        // If the hosts or the train forbid it, the channel is still usable.
        if sent.as_ref().is_err_and(SessionError::is_end) {
            sessions.remove(&send.to);
        }
        Ok(sent?)
    }

    /// Sends probes to a program until it disconnects.
    async fn stream_probes(
        &self,
        wanted: &ProbeFilter,
        read: &mut BufReader<OwnedReadHalf>,
        write: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut came = self.endpoint.subscribe();
        say(write, &Reply::Receiving {}).await?;
        loop {
            let said = tokio::select! {
                came = came.recv() => match came {
                    Ok(came) if wanted.has(&came) => Reply::Probe(Arrival::from(&*came)),
                    Ok(_) => continue,
                    Err(RecvError::Lagged(missed)) => Reply::Missed(missed),
                    Err(RecvError::Closed) => return Ok(()),
                },
                // The program has no more requests: a line or the end of the connection ends this.
                _ = line(read) => return Ok(()),
            };
            say(write, &said).await?;
        }
    }
}

/// Waits this long, or until the program disconnects.
async fn wait_while_connected(
    program: &OwnedWriteHalf,
    after: Duration,
) -> Result<(), RequestError> {
    let until = Instant::now() + after;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        sleep(left.min(LOOK)).await;
        if left <= LOOK {
            return Ok(());
        }
        if has_left(program) {
            return Err(RequestError::Left);
        }
    }
}

/// Whether the program has closed the connection, and not only its writing side.
fn has_left(program: &OwnedWriteHalf) -> bool {
    let stream: &UnixStream = program.as_ref();
    let mut asked = [PollFd::new(stream, PollFlags::empty())];
    let found = poll(&mut asked, Some(&Timespec::default()));
    found.is_ok() && asked[0].revents().contains(PollFlags::HUP)
}

/// Sends a train in its turn, charges it, and returns its report.
async fn send_and_report(
    session: &mut Session<Stream>,
    send: &SendRequest,
    (train, at): (Train, Time),
    headers: Vec<Vec<u8>>,
) -> Result<Report, SessionError> {
    let departed = session.depart_at(train.clone(), headers, at).await?;
    let carried = departed.carried().to_vec();
    let flight = match send.await_arrivals || session.silence() > SILENT {
        true => session.arrivals(departed).await?,
        false => departed.without_arrivals(),
    };
    let mut punctuality = Punctuality::default();
    punctuality.note(&train, &flight);
    let doubts = [session.doubts(Direction::There), punctuality.doubts()].concat();
    Ok(Report::of(&train, &flight, carried, &doubts))
}

/// What a request leads to.
enum Answer {
    Say(Reply),
    Subscribe(ProbeFilter),
}

/// Reads the next line; `None` at the end.
async fn line(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = from.take(MAX_LINE).read_line(&mut line).await?;
    match line.ends_with('\n') || (read as u64) < MAX_LINE {
        true => Ok((read > 0).then_some(line)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn say(to: &mut OwnedWriteHalf, said: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    to.write_all(&line).await
}
