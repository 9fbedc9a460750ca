//! Requests on a second connection while an answer is silent.
//!
//! A server that generates a file while it sends it pauses. A client that drops the answer and asks again gains
//! nothing, because the next answer pauses too. So the bytes after the answer are requested meanwhile, and later the
//! same bytes once more in case the connection is dead. The answer that delivers a byte first counts.

use super::{
    Spare,
    body::{Answered, Stream},
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

/// What follows a silent answer is requested after this time, or a fifth of the time that counts as a stall if that is
/// less: longer than a loss takes in most networks.
const EARLY: Duration = Duration::from_secs(1);

/// After this many stall times of silence, an answer is dropped if a second one delivers its bytes.
const GIVEN_UP: u32 = 2;

/// The most bytes that are read of an answer before its turn.
const HELD: usize = 16 << 20;

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
