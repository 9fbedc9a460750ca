//! `GET /v1/events`: changes of jobs as they happen, as server-sent events (HTML Standard, §9.2).
//!
//! Each event's id is the number of its change. A client that reconnects sends the last id that it has seen, as browsers
//! do by themselves, and misses nothing; if the changes since then are no longer known, it gets `reset`.

use super::{
    Api,
    error::{ApiRefusal, ErrorBody, QueryOf},
};
use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use thalweg_jobs::{Change, ChangeId, Jobs};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

/// The most open streams: some browsers with a few tabs, and programs.
pub const MAX_STREAMS: usize = 32;

/// The shortest time between two events of one job. A later state of the job replaces those that wait.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);

/// The interval of comment lines, by which both ends find out that the other is gone.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// The longest that a client may ask for.
const MAX_SECONDS: u64 = 30 * 24 * 3600;

/// The header by which a client that reconnects says what it has seen.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The most events that a client can ask for.
const MAX_LIMIT: u64 = 1_000_000;

/// The query of `GET /v1/events`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub struct EventsQuery {
    /// Begin after this change, e.g. the `change` of `GET /v1/jobs`; without it, and without `Last-Event-ID`, which takes
    /// precedence, begin with the next change.
    after: Option<String>,
    /// End after this many events.
    #[param(minimum = 1, maximum = 1000000)]
    limit: Option<u64>,
    /// End after this time, at most 30 days.
    #[param(minimum = 1, maximum = 2592000)]
    seconds: Option<u64>,
}

impl EventsQuery {
    fn check(&self) -> Result<(), ApiRefusal> {
        let message = match (self.limit, self.seconds) {
            (Some(0), _) => "`limit` is at least 1",
            (Some(n), _) if n > MAX_LIMIT => "`limit` is at most 1000000",
            (_, Some(0)) => "`seconds` is at least 1",
            (_, Some(s)) if s > MAX_SECONDS => "`seconds` is at most 2592000, which is 30 days",
            _ => return Ok(()),
        };
        Err(ApiRefusal::new(StatusCode::BAD_REQUEST, "bad_request", message))
    }
}

/// Follow the jobs
///
/// Server-sent events. `job`: a whole `Job`, at most four a second for each job. `job_event`: `{"id", "event"}`, an
/// event of the job's command other than progress. `job_removed`: `{"id"}`. `reset`: the changes since the last id are
/// no longer known; fetch `/v1/jobs` again. The first block has only an id. A comment comes every 15 seconds.
#[utoipa::path(get, path = "/v1/events", operation_id = "follow_jobs", tag = "jobs",
    params(EventsQuery, ("Last-Event-ID" = Option<String>, Header,
        description = "The id of the last event that the client has seen")),
    responses(
        (status = 200, description = "Events until the client leaves, or to one of the limits",
            content(("text/event-stream"))),
        (status = 400, description = "A limit is out of its range", body = ErrorBody),
        (status = 429, description = "32 streams are open", body = ErrorBody),
    ))]
pub async fn events(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiRefusal> {
    query.check()?;
    let jobs = api.jobs()?.clone();
    let place = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let message = format!("{MAX_STREAMS} streams of events are open; close one of them");
        ApiRefusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message)
    })?;
    let seen = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
    let follower = Follower::new(jobs, seen.or(query.after.clone()), &query, &api.stop, place);
    let keep_alive = KeepAlive::new().interval(COMMENT_INTERVAL);
    Ok(Sse::new(follower.stream()).keep_alive(keep_alive).into_response())
}

/// One open stream.
struct Follower {
    jobs: Jobs,
    /// The last change that was read, though not all of them may be sent yet.
    position: ChangeId,
    waiting: VecDeque<Notice>,
    /// The number of events that may still be sent.
    left: u64,
    until: Option<Instant>,
    next_batch: Instant,
    /// The daemon ends.
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

/// A block of the stream.
enum Notice {
    /// The position, so that a client that reconnects before the first event has one.
    Position(ChangeId),
    Change(ChangeId, Change),
    Reset(ChangeId),
}

impl Notice {
    fn is_event(&self) -> bool {
        !matches!(self, Self::Position(_))
    }

    fn event(&self) -> Event {
        let (Self::Position(id) | Self::Change(id, _) | Self::Reset(id)) = self;
        let event = Event::default().id(id.to_string());
        // JSON of one line has no carriage return, which axum refuses.
        match self {
            Self::Position(_) => event,
            Self::Change(_, Change::Job(job)) => event.event("job").data(json!(job).to_string()),
            Self::Change(_, Change::JobEvent { id, event: of_job }) => {
                event.event("job_event").data(json!({ "id": id, "event": of_job }).to_string())
            }
            Self::Change(_, Change::JobRemoved { id }) => {
                event.event("job_removed").data(json!({ "id": id }).to_string())
            }
            Self::Reset(_) => event.event("reset").data("{}"),
        }
    }
}

impl Follower {
    /// Begins after the change `start`, or after the last one if `start` is `None` or no change's id.
    fn new(
        jobs: Jobs,
        start: Option<String>,
        query: &EventsQuery,
        stop: &CancellationToken,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let last = || jobs.list().0;
        let (position, notice) = match start.map(|id| id.parse::<ChangeId>()) {
            Some(Ok(id)) => (id, Notice::Position(id)),
            Some(Err(_)) => {
                let last = last();
                (last, Notice::Reset(last))
            }
            None => {
                let last = last();
                (last, Notice::Position(last))
            }
        };
        Self {
            position,
            waiting: [notice].into(),
            left: query.limit.unwrap_or(u64::MAX),
            until: query.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            next_batch: Instant::now(),
            jobs,
            stop: stop.clone(),
            _place: place,
        }
    }

    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async move {
            let notice = follower.next().await?;
            Some((Ok(notice.event()), follower))
        })
    }

    /// The next block; `None` at the end.
    async fn next(&mut self) -> Option<Notice> {
        loop {
            if self.left == 0 || self.until.is_some_and(|until| until <= Instant::now()) {
                return None;
            }
            if let Some(notice) = self.waiting.pop_front() {
                self.left -= u64::from(notice.is_event());
                return Some(notice);
            }
            let (until, stop) = (self.until, self.stop.clone());
            let over = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return None,
                () = over => return None,
                () = self.read() => {}
            }
        }
    }

    /// Waits for the next changes.
    async fn read(&mut self) {
        sleep_until(self.next_batch).await;
        match self.jobs.changes(self.position).await {
            Ok(changes) => {
                self.position = changes.last().map_or(self.position, |(id, _)| *id);
                self.waiting = newest(changes);
            }
            Err(_) => {
                self.position = self.jobs.list().0;
                self.waiting.push_back(Notice::Reset(self.position));
            }
        }
        self.next_batch = Instant::now() + BATCH_INTERVAL;
    }
}

/// The changes without states of jobs that a later one replaces.
fn newest(changes: Vec<(ChangeId, Change)>) -> VecDeque<Notice> {
    let mut seen = BTreeSet::new();
    let mut kept = VecDeque::new();
    for (id, change) in changes.into_iter().rev() {
        let is_newest = match &change {
            Change::Job(job) => seen.insert(job.id),
            Change::JobRemoved { id } => seen.insert(*id),
            Change::JobEvent { .. } => true,
        };
        if is_newest {
            kept.push_front(Notice::Change(id, change));
        }
    }
    kept
}
