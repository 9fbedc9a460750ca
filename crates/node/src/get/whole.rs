//! An object that comes in one piece: the server ignores ranges, or does not say the length.

use super::{
    Candidate, GetError, Halt, PathError, Run, Stop,
    meter::{INTERVAL, Meter},
    resource::Whole,
    worker::Body,
};
use crate::{
    job::Event,
    part::{PartKey, Writer},
};
use thalweg_units::{ByteSize, PathId};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// Takes the body to the file, from 0, on the one path whose answer it is.
///
/// Nothing of it can be resumed: there is no way to ask for the rest.
pub(super) async fn download(
    run: &mut Run<'_>,
    path: Candidate,
    whole: Whole,
    body: Body,
    stop: &mut Stop,
) -> Result<(), Halt> {
    let key = PartKey::Url {
        url: whole.url.to_string(),
        length: None,
        validator: whole.validator.clone(),
        digests: run.request.digests.clone(),
    };
    let part = run.open_part(key).await?;
    let name = path.name.clone();
    run.started(&part, whole.url.to_string(), whole.length);
    let reason = "the server does not offer ranges: one path".to_owned();
    run.sink.event(&Event::Chosen { path: name.clone(), reason });
    let writer =
        Writer::spawn(part, vec![name.clone()]).map_err(|e| Halt::Failed(GetError::System(e)))?;
    let mut meter = Meter::new(&[path], 0, whole.length);
    let copied = tokio::select! {
        copied = copy(run, &writer, body, &mut meter) => {
            copied.map_err(|error| Halt::paths(vec![(name.clone(), error)]))
        }
        () = stop.requested() => Err(Halt::Failed(GetError::Interrupted)),
    };
    meter.charge(&run.request.budget);
    run.fetched += meter.fetched;
    let part = run.finish(writer).await?;
    let length = match copied {
        Ok(length) if whole.length.is_none_or(|n| n == length) => length,
        other => {
            run.close(part).await?;
            let short = |n| {
                PathError::Early(ByteSize::from_bytes(whole.length.unwrap_or(n).saturating_sub(n)))
            };
            return Err(other.map_or_else(|h| h, |n| Halt::paths(vec![(name, short(n))])));
        }
    };
    run.publish(part, length).await
}

/// Writes the body; returns its length. Its end is the framing's (RFC 9112 §6.3).
async fn copy(
    run: &Run<'_>,
    writer: &Writer,
    mut body: Body,
    meter: &mut Meter,
) -> Result<u64, PathError> {
    let stall = run.request.selection.stall;
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut at = 0;
    loop {
        let next = timeout(stall, body.next());
        tokio::pin!(next);
        let data = loop {
            tokio::select! {
                data = &mut next => break data,
                _ = ticks.tick() => meter.tell(run.sink, &run.request.budget),
            }
        };
        let data = data.unwrap_or(Err(PathError::Silent(stall)));
        let Some(data) = data? else { return Ok(at) };
        let n = data.len() as u64;
        // The writer's own failure is told when it is finished.
        if writer.write(PathId(0), at, data).await.is_err() {
            return Ok(at);
        }
        at += n;
        meter.useful(PathId(0), n);
    }
}
