//! Downloads an object with one answer, because the server ignores ranges or does not state the length.

use super::{
    AttemptError, GetError, PathError, Request, Run, Stop,
    meter::{INTERVAL, Meter},
    output::ObjectIdentity,
    resource::WholeObject,
    store::Store,
    worker::Body,
};
use bytes::Bytes;
use std::time::Duration;
use thalweg_base::job::Event;
use thalweg_net::Route;
use thalweg_part::PartKey;
use thalweg_paths::candidates::Candidate;
use thalweg_plan::selection::Failure;
use thalweg_units::{ByteSize, PathId};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

/// How often an answer that broke off is requested again. Each time the whole object is sent again, because the rest
/// cannot be requested; a server that breaks off four times will always do so.
pub(super) const RETRIES: u32 = 3;

/// The longest wait for the first byte of a plain answer and between two pieces of it, in multiples of the request's
/// patience, if there is one path. A server that generates the file pauses, and the only alternative would be to start
/// over.
const PATIENCE: u32 = 4;

/// How long a plain request waits for the next byte.
pub(super) fn plain_patience(request: &Request) -> Duration {
    request.patience * if request.paths.len() == 1 { PATIENCE } else { 1 }
}

/// Waits before retry number `n`, from 1, to give a restarting server some seconds.
///
/// # Errors
/// [`GetError::Interrupted`].
pub(super) async fn pause(n: u32, stop: &mut Stop) -> Result<(), GetError> {
    tokio::select! {
        () = sleep(Duration::from_millis(250 << n.min(4))) => Ok(()),
        () = stop.requested() => Err(GetError::Interrupted),
    }
}

/// Writes the body to the file, from byte 0, over the one path that answered.
///
/// It cannot be resumed, because the rest cannot be requested.
pub(super) async fn download(
    run: &mut Run<'_>,
    path: Candidate,
    whole: WholeObject,
    body: Body,
    stop: &mut Stop,
) -> Result<(), AttemptError> {
    let target = run.target(&whole.metadata, &whole.url)?;
    if let Some(length) = whole.length {
        run.expect_length(length)?;
        if run.is_there(target.as_ref(), &key(run, &whole, Some(length))).await? {
            return Ok(());
        }
    }
    let key = key(run, &whole, None);
    let part = run.open_part(target, key).await?;
    let name = path.name.clone();
    run.started(&part, whole.url.to_string(), &whole.metadata, whole.length);
    let mut reason = "the server does not support ranges, so one path is used".to_owned();
    if whole.is_open_ended {
        reason.push_str("; only the end of the connection marks the end of the file");
    }
    run.sink.event(&Event::Chosen { path: name.clone(), reason });
    let of = ObjectIdentity { length: whole.length, validator: whole.validator.clone() };
    let mut store = run.store(part, vec![name.clone()], of)?;
    let mut meter = Meter::new(std::slice::from_ref(&path), 0, whole.length);
    let route = path.route.clone();
    let copied = tokio::select! {
        copied = copy(run, &mut store, body, &mut meter, (&route, &whole)) => Ok(copied),
        () = stop.requested() => Err(AttemptError::Failed(GetError::Interrupted)),
    };
    meter.charge(&run.request.budget);
    run.fetched += meter.fetched;
    run.waits.add(meter.waits);
    run.last_byte = Some(Instant::now());
    let part = run.finish(store).await?;
    let length = match copied.map(|copied| copied.and_then(|n| complete(&whole, n))) {
        Ok(Ok(length)) => length,
        Ok(Err(error)) => {
            run.close(part).await?;
            return Err(broke(name, error, meter.fetched));
        }
        Err(halt) => {
            run.close(part).await?;
            return Err(halt);
        }
    };
    if let Err(AttemptError::Failed(wrong)) = run.expect_length(length) {
        return Err(run.discard(part, wrong).await);
    }
    run.publish(part, length, None, stop).await
}

/// The key of the object's part, with `length` if given.
fn key(run: &Run<'_>, whole: &WholeObject, length: Option<u64>) -> PartKey {
    PartKey::Url {
        url: whole.url.to_string(),
        length,
        validator: whole.validator.clone(),
        digests: run.digests(&whole.metadata),
    }
}

/// Converts the error of a body that broke off at `at`: some errors are worth another attempt.
fn broke(name: String, error: PathError, at: u64) -> AttemptError {
    match error.failure() {
        Failure::Refused => AttemptError::paths(vec![(name, error)]),
        _ => AttemptError::Broke(name, Box::new(error), at),
    }
}

fn complete(whole: &WholeObject, n: u64) -> Result<u64, PathError> {
    match whole.length {
        Some(length) if n < length => Err(PathError::Early(ByteSize::from_bytes(length - n))),
        Some(length) if n > length => Err(PathError::TooLong),
        _ => Ok(n),
    }
}

/// Writes the body and returns its length. The framing marks its end (RFC 9112 §6.3). The connection is left to later
/// downloads.
async fn copy(
    run: &Run<'_>,
    store: &mut Store,
    mut body: Body,
    meter: &mut Meter,
    (route, whole): (&Route, &WholeObject),
) -> Result<u64, PathError> {
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut at = 0;
    loop {
        if whole.length == Some(at) {
            // Any further bytes do not belong to the object.
            leave(run, body, route, whole).await;
            return Ok(at);
        }
        let data = next(run, &mut body, meter, &mut ticks).await?;
        let Some(data) = data else {
            leave(run, body, route, whole).await;
            return Ok(at);
        };
        let n = data.len() as u64;
        let before = Instant::now();
        let written = store.write(PathId(0), at, data).await;
        meter.waits.disk += before.elapsed();
        // `finish` reports the store's error.
        if written.is_err() {
            return Ok(at);
        }
        at += n;
        meter.useful(PathId(0), n);
        brake(run, n, meter, &mut ticks).await;
    }
}

/// The next bytes of the body. Reports progress meanwhile.
async fn next(
    run: &Run<'_>,
    body: &mut Body,
    meter: &mut Meter,
    ticks: &mut tokio::time::Interval,
) -> Result<Option<Bytes>, PathError> {
    let stall = run.request.selection.stall.max(plain_patience(run.request));
    let next = timeout(stall, body.next());
    tokio::pin!(next);
    loop {
        tokio::select! {
            data = &mut next => return data.unwrap_or(Err(PathError::Silent(stall))),
            _ = ticks.tick() => meter.tell(run.sink, &run.request.budget),
        }
    }
}

/// Leaves the connection to later downloads if the body was read to its end.
async fn leave(run: &Run<'_>, body: Body, route: &Route, whole: &WholeObject) {
    if let Some(connection) = body.leave().await {
        run.request.kept.give(route, &whole.url, run.request.web.version, connection);
    }
}

/// Waits as long as the rate limit says. Reports progress meanwhile.
async fn brake(run: &Run<'_>, n: u64, meter: &mut Meter, ticks: &mut tokio::time::Interval) {
    let Some(limit) = &run.request.limit else { return };
    let before = Instant::now();
    let until = before + limit.charge(n);
    loop {
        tokio::select! {
            () = sleep_until(until) => {
                meter.waits.limit += before.elapsed();
                return;
            }
            _ = ticks.tick() => meter.tell(run.sink, &run.request.budget),
        }
    }
}
