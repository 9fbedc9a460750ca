//! Requests on a second connection while an answer is silent.
//!
//! A server that generates a file while it sends it pauses. A client that drops the answer and asks again gains
//! nothing, because the next answer pauses too. So the bytes after the answer are requested meanwhile, and later the
//! same bytes once more in case the connection is dead. The answer that delivers a byte first counts.

use super::{
    Report, Spare, Worker,
    body::{Answered, Stream},
    closes,
};
use crate::{
    PathError,
    http::Connection,
    resource::{Resource, check_segment},
};
use bytes::Bytes;
use hyper::{Response, body::Incoming, header::ACCEPT_ENCODING};
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

/// After this many stall times of silence, an answer is dropped if a second one delivers its bytes.
const GIVEN_UP: u32 = 2;

/// The most bytes that are read of an answer before its turn.
const HELD: usize = 16 << 20;

/// Answers that may fall silent.
impl Worker {
    /// Hands over `wanted`, the first part of the answer `main`; `rest` is the remainder of the same range. Returns the
    /// body that delivered the last byte.
    ///
    /// If the answer falls silent and no other path is left it is not given up at once.
    pub(super) async fn deliver(
        &mut self,
        main: Stream,
        wanted: Range<u64>,
        resource: &Arc<Resource>,
        rest: Range<u64>,
    ) -> Result<Incoming, PathError> {
        let silence = Silence::new(self.shared.stall, rest.is_empty());
        let mut reading = Reading { main, again: None, silence };
        let mut at = wanted.start;
        while at < wanted.end {
            match reading.next(resource, self.shared.by_hash).await {
                Came::Main(Ok(Some((from, data)))) => {
                    let is_new = from + data.len() as u64 > at;
                    at = self.hand_over(at..wanted.end, from, data).await;
                    self.ask_if_due(at);
                    if is_new {
                        // It goes on: the pause of the other answer may be still to come.
                        reading.again = None;
                        reading.silence.is_over();
                    }
                }
                Came::Main(end) => {
                    let early = PathError::Early(ByteSize::from_bytes(wanted.end - at));
                    if !self.change_over(&mut reading) {
                        return Err(end.err().unwrap_or(early));
                    }
                }
                Came::Again(Ok(Some((from, data)))) => {
                    at = self.hand_over(at..wanted.end, from, data).await;
                    if at == wanted.end || reading.silence.is_too_long() {
                        self.change_over(&mut reading);
                    }
                }
                Came::Again(end) => {
                    reading.again = None;
                    // Each further request would make the server generate the file again.
                    if matches!(end, Err(PathError::NotPartial | PathError::Status(_))) {
                        reading.silence.is_in_vain = true;
                    }
                }
                Came::Silence if self.may_ask_beside(resource) => {
                    self.ask_beside(&mut reading, resource, at..wanted.end, &rest);
                }
                Came::Silence => {}
            }
        }
        Ok(reading.main.into_body())
    }

    /// Whether a second answer may replace a silent one: no other path is left, and something proves that both are of
    /// one version.
    fn may_ask_beside(&self, resource: &Resource) -> bool {
        let is_proven = resource.validator.is_some() || self.shared.is_verifiable;
        is_proven && self.shared.is_alone.load(Ordering::Relaxed)
    }

    /// Does what is due while the answer is silent: `left` is the range that it has not delivered yet.
    fn ask_beside(
        &mut self,
        reading: &mut Reading,
        resource: &Arc<Resource>,
        left: Range<u64>,
        rest: &Range<u64>,
    ) {
        let takes_two = !self.shared.server.is_asked_in_turn();
        if takes_two && reading.silence.calls_for_rest() && self.line.ahead.is_none() {
            self.line.ahead = Some(self.ask_early(resource, rest.clone(), ReadAhead::Held));
        }
        if reading.silence.calls_for_same() && reading.again.is_none() {
            let asked = self.ask_early(resource, left, ReadAhead::Nothing);
            reading.again = Some(Again::Asked(asked));
        }
        // While the second answer is silent too, both stay: the pause of the first may end first.
    }

    /// Continues with the second answer alone, if there is one.
    fn change_over(&mut self, reading: &mut Reading) -> bool {
        let came = reading.again.take_if(|again| matches!(again, Again::Came(..)));
        let Some(Again::Came(stream, connection, closes)) = came else { return false };
        (reading.main, self.line.connection, self.line.closes) =
            (*stream, Some(connection), closes);
        reading.silence.is_over();
        true
    }

    /// Hands over the new bytes of `data`, whose position is `from`; `left` is the range still wanted. Returns the
    /// position of the next byte.
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

    /// Requests `range` on a separate connection.
    pub(super) fn ask_early(
        &mut self,
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
        let spare = self.line.spare.take().filter(|_| self.leads_to(&url));
        Ahead::of(range, read_ahead, async move {
            let mut connection = match opened(spare).await {
                Some(connection) => connection,
                None => Connection::open(&web, &route, &url).await?,
            };
            let response = connection.ask(request).await?;
            Ok((connection, response))
        })
    }

    /// Makes the request that follows the first answer if enough of this is here, up to `at`.
    fn ask_if_due(&mut self, at: u64) {
        // After a silence it was made already.
        if let Some(due) = self.line.due.take_if(|due| at >= due.at)
            && self.line.ahead.is_none()
        {
            let asked = self.ask_early(&due.resource, due.rest, ReadAhead::Nothing);
            self.line.ahead = Some(asked);
        }
    }
}

/// The spare connection, if it is open.
pub(super) async fn opened(spare: Option<Spare>) -> Option<Connection> {
    let connection = spare?.join_next().await?.ok()?.ok()?;
    Some(connection).filter(Connection::is_open)
}

/// A request to make once a part of the answer before it is here.
pub(super) struct Due {
    /// The position that must be reached.
    pub(super) at: u64,
    pub(super) rest: Range<u64>,
    pub(super) resource: Arc<Resource>,
}

/// A request that was made before the answer ahead of it was read.
pub(super) struct Ahead {
    pub(super) range: Range<u64>,
    /// Its answer's turn has come.
    turn: oneshot::Sender<()>,
    /// Contains one task, which is aborted on drop.
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
    /// For `range`, by the answer that `asking` brings.
    pub(super) fn of(
        range: Range<u64>,
        read_ahead: ReadAhead,
        asking: impl Future<Output = Result<(Connection, Response<Incoming>), PathError>>
        + Send
        + 'static,
    ) -> Self {
        let (turn, its_turn) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let (connection, response) = asking.await?;
            let closes = closes(&response);
            let mut answered = Answered::new(response);
            if read_ahead == ReadAhead::Held {
                answered.read_ahead(its_turn, HELD).await?;
            }
            Ok(Early { answered, connection, closes })
        });
        Self { range, turn, task }
    }

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
    /// Nothing: bytes wait in the kernel's buffer.
    Nothing,
    /// Up to [`HELD`] bytes.
    Held,
}

/// An answer that is being read, and optionally a second answer with the same bytes.
pub(super) struct Reading {
    pub(super) main: Stream,
    pub(super) again: Option<Again>,
    pub(super) silence: Silence,
}

/// The second request for the same bytes.
pub(super) enum Again {
    Asked(Ahead),
    Came(Box<Stream>, Connection, bool),
}

/// Bytes and where they belong; `None` at the end.
pub(super) type Next = Result<Option<(u64, Bytes)>, PathError>;

/// What happened while an answer was read.
pub(super) enum Came {
    Main(Next),
    Again(Next),
    Silence,
}

/// How long an answer was silent, and what was done about it.
pub(super) struct Silence {
    since: Instant,
    stall: Duration,
    /// What follows it was requested.
    is_ahead: bool,
    /// When the same was requested again.
    again: Option<Instant>,
    /// The server serves no ranges of this object, so that nothing is requested beside it.
    pub(super) is_in_vain: bool,
}

impl Silence {
    /// Begins now. `is_ahead`: nothing follows, or it was requested.
    pub(super) fn new(stall: Duration, is_ahead: bool) -> Self {
        Self { since: Instant::now(), stall, is_ahead, again: None, is_in_vain: false }
    }

    /// Whether it is time to request what follows; once.
    pub(super) fn calls_for_rest(&mut self) -> bool {
        !self.is_ahead && self.lasts(self.early()) && !std::mem::replace(&mut self.is_ahead, true)
    }

    /// Whether it is time to request the same again, once more after as long a time.
    pub(super) fn calls_for_same(&mut self) -> bool {
        let since = self.again.unwrap_or(self.since);
        let is_due = !self.is_in_vain && since.elapsed() >= self.stall;
        if is_due {
            self.again = Some(Instant::now());
        }
        is_due
    }

    /// Whether the second answer replaces this one.
    pub(super) fn is_too_long(&self) -> bool {
        self.lasts(GIVEN_UP * self.stall)
    }

    fn early(&self) -> Duration {
        EARLY.min(self.stall / 5)
    }

    fn lasts(&self, least: Duration) -> bool {
        self.since.elapsed() >= least
    }

    /// When to look again.
    fn due(&self) -> Instant {
        let now = Instant::now();
        let steps = [self.early(), self.stall, GIVEN_UP * self.stall];
        let next = steps.into_iter().map(|step| self.since + step).find(|due| *due > now);
        next.unwrap_or(now + self.stall)
    }

    pub(super) fn is_over(&mut self) {
        (self.since, self.again) = (Instant::now(), None);
    }
}

impl Reading {
    pub(super) async fn next(&mut self, resource: &Resource, by_hash: bool) -> Came {
        tokio::select! {
            biased;
            next = self.main.next() => Came::Main(next),
            next = next_again(&mut self.again, resource, by_hash) => Came::Again(next),
            () = sleep_until(self.silence.due()) => Came::Silence,
        }
    }
}

/// The next bytes of the second answer; pending for ever if there is none. Cancel-safe.
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
