//! Several downloads in one call.

use super::{GetFailed, Outcome, Request, Stop};
use crate::{
    history::History,
    job::{Event, EventSink},
};
use std::{num::NonZeroUsize, sync::Mutex};

/// How several downloads run.
pub struct Many<'a> {
    /// The most at the same time.
    pub parallel: NonZeroUsize,
    /// No further one starts after a failure.
    pub fail_early: bool,
    /// Learns from each download and advises the next ones.
    pub history: Option<&'a Mutex<History>>,
}

/// Hears what happens to each of several downloads. Must not block.
pub trait ManySink: Send + Sync {
    /// Takes note of one event of the `download`th request, from 0.
    fn event(&self, download: usize, event: &Event);
}

/// One download's events.
struct Of<'a>(usize, &'a dyn ManySink);

impl EventSink for Of<'_> {
    fn event(&self, event: &Event) {
        self.1.event(self.0, event);
    }
}

/// How they went.
#[derive(Debug, Default)]
pub struct Tally {
    /// Those that are there.
    pub done: Vec<Outcome>,
    /// Those that are not, with their URLs.
    pub failed: Vec<(String, GetFailed)>,
}

/// Runs all `requests`, which share connections, limit, publisher and history.
///
/// Requests are made one by one as they start, so that a long list costs no memory; an `Err`
/// is a line of a list that makes no request, and counts as failed.
pub async fn many<I>(requests: I, how: &Many<'_>, sink: &dyn ManySink, stop: Stop) -> Tally
where
    I: IntoIterator<Item = Result<Request, (String, GetFailed)>>,
{
    let _ = how;
    let mut tally = Tally::default();
    for (i, request) in requests.into_iter().enumerate() {
        let request = match request {
            Ok(request) => request,
            Err(failed) => {
                tally.failed.push(failed);
                continue;
            }
        };
        let url = request.url.to_string();
        match super::get(request, &Of(i, sink), stop.clone()).await {
            Ok(outcome) => tally.done.push(outcome),
            Err(failed) => tally.failed.push((url, failed)),
        }
    }
    tally
}
