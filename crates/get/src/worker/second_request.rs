//! Requests on a second connection while an answer is silent.
//!
//! A server that generates a file while sending it pauses. Dropping the answer and sending the request again gains
//! nothing, because the next answer pauses too. So the bytes that follow the answer are requested meanwhile, and later
//! the same bytes once more in case the connection is dead. Each byte is taken from the answer that delivers it first.

use super::{
    Spare,
    body::{HttpAnswer, Stream},
    closes,
};
use crate::{
    PathError,
    http::Connection,
    resource::{Resource, check_segment},
};
use bytes::Bytes;
use hyper::{Response, body::Incoming};
use std::{ops::Range, sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The bytes that follow a silent answer are requested after this time, or after a fifth of the stall time if that is
/// less: longer than a packet loss takes in most networks.
const EARLY: Duration = Duration::from_secs(1);

/// After this many stall times of silence, an answer is dropped if a second one delivers its bytes.
const GIVEN_UP: u32 = 2;

/// The most bytes of an answer that are read before its turn.
const HELD: usize = 16 << 20;

/// The spare connection, if it is open.
pub(super) async fn spare_connection(spare: Option<Spare>) -> Option<Connection> {
    let connection = spare?.join_next().await?.ok()?.ok()?;
    Some(connection).filter(Connection::is_open)
}

/// A request to send once a part of the previous answer has been received.
pub(super) struct DueRequest {
    /// The position that must be reached.
    pub(super) at: u64,
    pub(super) rest: Range<u64>,
    pub(super) resource: Arc<Resource>,
}

/// A request that was sent before the previous answer was read.
pub(super) struct EarlyRequest {
    pub(super) range: Range<u64>,
    /// Tells the task that its answer's turn has come.
    turn: oneshot::Sender<()>,
    /// Contains one task, which is aborted on drop.
    task: JoinSet<Result<EarlyAnswer, PathError>>,
}

/// The answer to such a request, and its connection.
pub(super) struct EarlyAnswer {
    pub(super) answered: HttpAnswer,
    pub(super) connection: Connection,
    /// Whether the server closes the connection after it.
    pub(super) closes: bool,
}

impl EarlyRequest {
    /// Starts the request for `range`; `asking` sends it.
    pub(super) fn start(
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
            let mut answered = HttpAnswer::new(response);
            if read_ahead == ReadAhead::Held {
                answered.read_ahead(its_turn, HELD).await?;
            }
            Ok(EarlyAnswer { answered, connection, closes })
        });
        Self { range, turn, task }
    }

    /// Waits for the answer. Ends the reading before its turn.
    pub(super) async fn answer(self) -> Result<EarlyAnswer, PathError> {
        let Self { turn, mut task, .. } = self;
        _ = turn.send(());
        joined(&mut task).await
    }
}

async fn joined(
    task: &mut JoinSet<Result<EarlyAnswer, PathError>>,
) -> Result<EarlyAnswer, PathError> {
    // A task that panicked returns no answer.
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

/// The answer being read, and optionally a second answer with the same bytes.
pub(super) struct AnswerReader {
    pub(super) main: Stream,
    pub(super) again: Option<RepeatedRequest>,
    pub(super) silence: SilenceWatch,
}

/// The second request for the same bytes: sent, or with its answer.
pub(super) enum RepeatedRequest {
    Asked(EarlyRequest),
    Answered(Box<Stream>, Connection, bool),
}

/// Bytes and their position; `None` at the end.
pub(super) type ReadResult = Result<Option<(u64, Bytes)>, PathError>;

/// An event while an answer is read.
pub(super) enum ReadEvent {
    Main(ReadResult),
    Again(ReadResult),
    Silence,
}

/// How long an answer has been silent, and which requests were sent because of it.
pub(super) struct SilenceWatch {
    since: Instant,
    stall: Duration,
    /// Whether the following bytes were requested.
    is_ahead: bool,
    /// When the same bytes were requested again.
    again: Option<Instant>,
    /// Whether the server serves no ranges of this object, so that no second request is sent.
    pub(super) is_in_vain: bool,
}

impl SilenceWatch {
    /// Starts now. `is_ahead`: no bytes follow, or they were already requested.
    pub(super) fn new(stall: Duration, is_ahead: bool) -> Self {
        Self { since: Instant::now(), stall, is_ahead, again: None, is_in_vain: false }
    }

    /// Whether it is time to request the following bytes. Returns true once.
    pub(super) fn is_rest_due(&mut self) -> bool {
        !self.is_ahead && self.lasts(self.early()) && !std::mem::replace(&mut self.is_ahead, true)
    }

    /// Whether it is time to request the same bytes again; repeated after each further stall time.
    pub(super) fn is_repeat_due(&mut self) -> bool {
        let since = self.again.unwrap_or(self.since);
        let is_due = !self.is_in_vain && since.elapsed() >= self.stall;
        if is_due {
            self.again = Some(Instant::now());
        }
        is_due
    }

    /// Whether the second answer should replace this one.
    pub(super) fn is_too_long(&self) -> bool {
        self.lasts(GIVEN_UP * self.stall)
    }

    fn early(&self) -> Duration {
        EARLY.min(self.stall / 5)
    }

    fn lasts(&self, least: Duration) -> bool {
        self.since.elapsed() >= least
    }

    /// The next time at which a request may be due.
    fn due(&self) -> Instant {
        let now = Instant::now();
        let steps = [self.early(), self.stall, GIVEN_UP * self.stall];
        let next = steps.into_iter().map(|step| self.since + step).find(|due| *due > now);
        next.unwrap_or(now + self.stall)
    }

    pub(super) fn reset(&mut self) {
        (self.since, self.again) = (Instant::now(), None);
    }
}

impl AnswerReader {
    pub(super) async fn next(&mut self, resource: &Resource, by_hash: bool) -> ReadEvent {
        tokio::select! {
            biased;
            next = self.main.next() => ReadEvent::Main(next),
            next = next_again(&mut self.again, resource, by_hash) => ReadEvent::Again(next),
            () = sleep_until(self.silence.due()) => ReadEvent::Silence,
        }
    }
}

/// The next bytes of the second answer; pending forever if there is none. Cancel-safe.
async fn next_again(
    again: &mut Option<RepeatedRequest>,
    resource: &Resource,
    by_hash: bool,
) -> ReadResult {
    if let Some(RepeatedRequest::Asked(ahead)) = again {
        let EarlyAnswer { answered, connection, closes } = joined(&mut ahead.task).await?;
        let held = check_segment(&answered.head, ahead.range.clone(), resource, by_hash)?;
        let stream = Stream::new(answered, ahead.range.start, held.end);
        *again = Some(RepeatedRequest::Answered(Box::new(stream), connection, closes));
    }
    match again {
        Some(RepeatedRequest::Answered(stream, ..)) => stream.next().await,
        _ => std::future::pending().await,
    }
}
