//! Requests beside an answer that is silent.
//!
//! A server that makes a file while it sends it pauses. Whoever gives the answer up and asks anew waits in vain: the next
//! answer pauses, too. So what follows the answer is requested meanwhile, and later the same bytes once more, in case
//! that the connection is dead. Whichever answer brings a byte first counts.

use super::{
    Report, Worker,
    body::{Answered, Stream},
    closes,
};
use crate::{
    PathError,
    http::Connection,
    resource::{Resource, check_segment},
};
use bytes::Bytes;
use hyper::{body::Incoming, header::ACCEPT_ENCODING};
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use thalweg_units::ByteSize;
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// What follows a silent answer is requested after this time, or a fifth of the time that counts as a stall if that is
/// less: longer than a loss takes in most networks.
const EARLY: Duration = Duration::from_secs(1);

/// An answer that was silent for so many times the time that counts as a stall, while another one brings its bytes, is
/// given up.
const GIVEN_UP: u32 = 2;

/// The most bytes that are read of an answer before its turn.
const HELD: usize = 16 << 20;

/// A request that was made before the answer ahead of it was read.
pub(super) struct Ahead {
    pub(super) range: Range<u64>,
    /// Its answer's turn has come.
    turn: oneshot::Sender<()>,
    /// One task, which ends with this.
    task: JoinSet<Result<Early, PathError>>,
}

/// An answer, and the connection that it comes over.
pub(super) struct Early {
    pub(super) answered: Answered,
    pub(super) connection: Connection,
    /// The server closes the connection after it.
    pub(super) closes: bool,
}

impl Ahead {
    /// The answer; it is read no further beforehand.
    pub(super) async fn answer(self) -> Result<Early, PathError> {
        let Self { turn, mut task, .. } = self;
        _ = turn.send(());
        joined(&mut task).await
    }
}

async fn joined(task: &mut JoinSet<Result<Early, PathError>>) -> Result<Early, PathError> {
    // A task that panicked brings nothing.
    let ended = task.join_next().await.and_then(Result::ok);
    ended.unwrap_or(Err(PathError::Silent(Duration::ZERO)))
}

/// How much of an answer's body is read before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAhead {
    /// What the kernel holds.
    Nothing,
    /// Up to [`HELD`] bytes.
    Held,
}

/// An answer that is being read, and the same bytes requested once more.
struct Reading {
    main: Stream,
    again: Option<Again>,
    silence: Silence,
}

/// The same bytes, requested once more.
enum Again {
    Asked(Ahead),
    Came(Box<Stream>, Connection, bool),
}

/// Bytes and where they belong; `None` at the end.
type Next = Result<Option<(u64, Bytes)>, PathError>;

/// What happened while an answer was read.
enum Came {
    Main(Next),
    Again(Next),
    Silence,
}

/// How long an answer was silent, and what was done about it.
struct Silence {
    since: Instant,
    stall: Duration,
    /// What follows it was requested.
    is_ahead: bool,
    /// When the same was requested again.
    again: Option<Instant>,
}

impl Silence {
    fn early(&self) -> Duration {
        EARLY.min(self.stall / 5)
    }

    fn lasts(&self, least: Duration) -> bool {
        self.since.elapsed() >= least
    }

    /// Whether to request the same again; once more after as long a time.
    fn is_stall(&self) -> bool {
        self.again.unwrap_or(self.since).elapsed() >= self.stall
    }

    /// When to look again.
    fn due(&self) -> Instant {
        let now = Instant::now();
        let steps = [self.early(), self.stall, GIVEN_UP * self.stall];
        let next = steps.into_iter().map(|step| self.since + step).find(|due| *due > now);
        next.unwrap_or(now + self.stall)
    }

    fn is_over(&mut self) {
        (self.since, self.again) = (Instant::now(), None);
    }
}

impl Reading {
    async fn next(&mut self, resource: &Resource, by_hash: bool) -> Came {
        tokio::select! {
            biased;
            next = self.main.next() => Came::Main(next),
            next = next_again(&mut self.again, resource, by_hash) => Came::Again(next),
            () = sleep_until(self.silence.due()) => Came::Silence,
        }
    }
}

/// The next bytes of the second answer; never, if there is none. Nothing is lost if it is not awaited to the end.
async fn next_again(again: &mut Option<Again>, resource: &Resource, by_hash: bool) -> Next {
    if let Some(Again::Asked(ahead)) = again {
        let Early { answered, connection, closes } = joined(&mut ahead.task).await?;
        let held = check_segment(&answered.head, ahead.range.clone(), resource, by_hash)?;
        let stream = Stream::new(answered, ahead.range.start, held.end);
        *again = Some(Again::Came(Box::new(stream), connection, closes));
    }
    match again {
        Some(Again::Came(stream, ..)) => stream.next().await,
        _ => std::future::pending().await,
    }
}

impl Worker {
    /// Hands over `wanted`, with which the answer `main` begins; `rest` is what follows in the same range. Returns the
    /// body that brought the last byte.
    ///
    /// If the answer falls silent and no other path is left it is not given up at once.
    pub(super) async fn deliver(
        &mut self,
        main: Stream,
        wanted: Range<u64>,
        resource: &Arc<Resource>,
        rest: Range<u64>,
    ) -> Result<Incoming, PathError> {
        let (since, stall) = (Instant::now(), self.shared.stall);
        let silence = Silence { since, stall, is_ahead: rest.is_empty(), again: None };
        let mut reading = Reading { main, again: None, silence };
        let mut at = wanted.start;
        while at < wanted.end {
            match reading.next(resource, self.shared.by_hash).await {
                Came::Main(Ok(Some((from, data)))) => {
                    // It goes on: the pause of the other answer may be still to come.
                    reading.again = None;
                    at = self.hand_over(at..wanted.end, from, data).await;
                    reading.silence.is_over();
                }
                Came::Main(end) => {
                    let early = PathError::Early(ByteSize::from_bytes(wanted.end - at));
                    if !self.change_over(&mut reading) {
                        return Err(end.err().unwrap_or(early));
                    }
                }
                Came::Again(Ok(Some((from, data)))) => {
                    at = self.hand_over(at..wanted.end, from, data).await;
                    if at == wanted.end {
                        self.change_over(&mut reading);
                    }
                }
                Came::Again(_) => reading.again = None,
                Came::Silence if self.shared.is_alone.load(Ordering::Relaxed) => {
                    self.ask_beside(&mut reading, resource, at..wanted.end, &rest);
                }
                Came::Silence => {}
            }
        }
        Ok(reading.main.into_body())
    }

    /// Does what is due about a silence: `left` is what the answer still owes.
    fn ask_beside(
        &mut self,
        reading: &mut Reading,
        resource: &Arc<Resource>,
        left: Range<u64>,
        rest: &Range<u64>,
    ) {
        let silence = &mut reading.silence;
        if !silence.is_ahead && silence.lasts(silence.early()) {
            silence.is_ahead = true;
            if self.line.ahead.is_none() {
                self.line.ahead = Some(self.ask_early(resource, rest.clone(), ReadAhead::Held));
            }
        }
        if silence.is_stall() {
            silence.again = Some(Instant::now());
            if reading.again.is_none() {
                let asked = self.ask_early(resource, left, ReadAhead::Nothing);
                reading.again = Some(Again::Asked(asked));
            }
        }
        if silence.lasts(GIVEN_UP * silence.stall) {
            self.change_over(reading);
        }
    }

    /// Goes on with the second answer alone, if there is one.
    fn change_over(&mut self, reading: &mut Reading) -> bool {
        let came = reading.again.take_if(|again| matches!(again, Again::Came(..)));
        let Some(Again::Came(stream, connection, closes)) = came else { return false };
        (reading.main, self.line.connection, self.line.closes) =
            (*stream, Some(connection), closes);
        reading.silence.is_over();
        true
    }

    /// Hands over what is new of `data`, which begins at `from`; `left` is what is wanted. Returns where the next byte
    /// belongs.
    async fn hand_over(&self, left: Range<u64>, from: u64, mut data: Bytes) -> u64 {
        let known = left.start.saturating_sub(from).min(data.len() as u64);
        if known > 0 {
            self.tell(Report::Unused(known)).await;
        }
        // At most the length of the data.
        data = data.slice(known as usize..);
        let from = from + known;
        // Below 2^32: a piece of what hyper holds in memory.
        data.truncate(left.end.saturating_sub(from) as usize);
        if data.is_empty() {
            return left.start;
        }
        let reached = from + data.len() as u64;
        self.tell(Report::Data(from, data)).await;
        reached
    }

    /// Requests `range` on a connection of its own.
    pub(super) fn ask_early(
        &self,
        resource: &Resource,
        range: Range<u64>,
        read_ahead: ReadAhead,
    ) -> Ahead {
        let mut request = self.request_for(resource, std::slice::from_ref(&range));
        if self.shared.server.refuses_identity() {
            request.headers_mut().remove(ACCEPT_ENCODING);
        }
        let request = self.signed(&resource.url, &request);
        let (web, route, url) = (self.shared.web.clone(), self.route.clone(), resource.url.clone());
        let (turn, its_turn) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connection = Connection::open(&web, &route, &url).await?;
            let response = connection.ask(request).await?;
            let closes = closes(&response);
            let mut answered = Answered::new(response);
            if read_ahead == ReadAhead::Held {
                answered.read_ahead(its_turn, HELD).await?;
            }
            Ok(Early { answered, connection, closes })
        });
        Ahead { range, turn, task }
    }
}
