//! Processes the paths' reports, mainly received bytes.

use super::Ranged;
use crate::{
    AttemptError, GetError,
    worker::{Message, Report},
};
use bytes::Bytes;
use std::time::Duration;
use thalweg_base::job::Event;
use thalweg_units::PathId;
use tokio::time::Instant;

/// A shorter wait for the disk does not pause the paths' clocks.
const NO_PAUSE: Duration = Duration::from_millis(5);

/// A shorter wait for the rate limit is not worth a timer; the limit accounts for it later.
const NO_BRAKE: Duration = Duration::from_millis(2);

/// Stops the processing of reports while the download is over its rate limit. The paths' queue fills, their tasks wait,
/// and TCP's own windows slow the senders down.
#[derive(Default)]
pub(super) struct Brake {
    /// The start and the end of the current pause.
    on: Option<(Instant, Instant)>,
    /// The total length of all pauses.
    pub(super) total: Duration,
}

impl Brake {
    /// The end of the current pause, if any.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        self.on.map(|(_, until)| until)
    }

    fn apply(&mut self, wait: Duration) {
        if wait >= NO_BRAKE {
            let now = Instant::now();
            self.on = Some((now, now + wait));
        }
    }

    /// Ends the pause. Returns its length, if there was one.
    pub(super) fn release(&mut self) -> Option<Duration> {
        let (since, _) = self.on.take()?;
        self.total += since.elapsed();
        Some(since.elapsed())
    }
}

impl Ranged<'_, '_> {
    pub(super) async fn handle_report(
        &mut self,
        message: Message,
        current: bool,
    ) -> Result<(), AttemptError> {
        let Message { path, report, .. } = message;
        self.charge(&report);
        match report {
            Report::Data(_, data) if !current => self.meter.late(path, data.len() as u64),
            Report::Held(n) if !current => self.meter.late(path, n),
            Report::Unused(n) => self.meter.late(path, n),
            _ if !current => {}
            Report::Connected(_) => self.join_connected(),
            Report::Setup(took) => self.note_setup(path, took),
            Report::Sent => self.selection.sent(path, self.now()),
            Report::Data(at, data) => return self.take(path, at, data, false).await,
            Report::Held(n) => {
                self.meter.held(path, n);
                self.selection.coming(path, n, self.now());
            }
            Report::Verified(at, data) => return self.take(path, at, data, true).await,
            Report::Moved(resource) => {
                let url = resource.url.to_string();
                self.sources.moved(self.paths.source(path), resource);
                let path = self.paths.name(path).to_owned();
                self.run.sink.event(&Event::Moved { path, url });
            }
            Report::Waiting(status, wait) => {
                self.tell_busy(path, format!("the server answered {status}"), wait);
            }
            Report::Failed(error) => {
                if Some(path) == self.paths.direct(self.sources.primary) {
                    self.direct_owes_word = false;
                }
                self.fail(path, error);
            }
            Report::Answered(answer, _) => return self.handle_answer(path, *answer),
        }
        Ok(())
    }

    /// Charges received bytes to the limit, useful or not.
    fn charge(&mut self, report: &Report) {
        let n = match report {
            Report::Data(_, data) => data.len() as u64,
            Report::Held(n) | Report::Unused(n) => *n,
            _ => return,
        };
        if let Some(limit) = &self.run.request.limit {
            self.brake.apply(limit.charge(n));
        }
    }

    fn note_setup(&mut self, path: PathId, took: Duration) {
        if let Some(setup) = self.setups.get_mut(path.0 as usize) {
            setup.get_or_insert(took);
        }
    }

    /// Writes the new bytes at their position. Waiting for a slow disk does not count against the path.
    async fn take(
        &mut self,
        path: PathId,
        at: u64,
        data: Bytes,
        held: bool,
    ) -> Result<(), AttemptError> {
        self.refusals.trust(path);
        // The path has recovered.
        self.failures.remove(&path);
        let came = data.len() as u64;
        // The end of the requested range may belong to another path by now.
        let n = came.min(self.selection.owes(path));
        let new = self.selection.received(path, came, self.now()).min(n);
        self.meter.took(path, new, came - new, held);
        if new == 0 {
            return Ok(());
        }
        let (start, before) = (at + (n - new), Instant::now());
        self.present.insert(start..at + n);
        // Both are at most the length of the data.
        let data = data.slice((n - new) as usize..n as usize);
        if self.writer.write(path, start, data).await.is_err() {
            // `finish` reports the writer's own error.
            return Err(AttemptError::Failed(GetError::System(std::io::Error::other(
                "the writer stopped",
            ))));
        }
        let waited = before.elapsed();
        self.meter.waits.disk += waited;
        if waited > NO_PAUSE {
            self.brake.total += waited;
            self.selection.paused(waited);
        }
        Ok(())
    }
}
