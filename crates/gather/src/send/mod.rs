//! One to one: files of this host to a directory of another node, over several ways if they are
//! faster than one.
//!
//! ```text
//! files ─► held there? ─► Queue of pieces ─► ways: direct, by relays ─► Store
//! ```
//!
//! Every way takes the next piece as soon as it can, of about a second's worth at its rate, so
//! that shares follow rates without a plan. A relayed way is kept if it brings its part of the sum.
//! When nothing waits any more, a way that is free sends again what another has had for long.

mod local;
mod queue;
mod way;

pub use local::LocalError;

use super::{Event, EventSink, Outcome, Progress, SourceProgress, SourceTotals, Totals, run::Via};
use local::{Found, Local};
use queue::Queue;
use std::{
    num::NonZeroU64,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::{job::JobId, rate_limit::Limit};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_mesh::{Names, RouteNameError};
use thalweg_paths::estimates::Estimates;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::{Name, Terms};
use thiserror::Error;
use tokio::{task::JoinSet, time::interval};
use tokio_util::sync::CancellationToken;
use way::Way;

/// Less than this comes over the direct path alone: it is there before another way is open and warm.
const WORTH_WAYS: u64 = 16 << 20;

/// The most relayed ways: more gained nothing in any mesh that was measured.
const WAYS: usize = 3;

/// Between two looks at the ways.
const EVERY: Duration = Duration::from_millis(250);

/// What is to be sent, and how.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Files of this host, and directories with all below them.
    pub files: Vec<PathBuf>,
    /// To whom.
    pub node: Name,
    /// The directory there, absolute.
    pub into: Vec<u8>,
    /// Which hosts may stand between.
    pub via: Via,
    /// What relays are asked for.
    pub terms: Terms,
    /// What is known of legs.
    pub estimates: Estimates,
    /// The most bytes a second that this host sends.
    pub limit: Option<NonZeroU64>,
}

/// Nothing was sent.
#[derive(Debug, Error)]
pub enum SendError {
    /// No such node.
    #[error(transparent)]
    Name(#[from] RouteNameError),
    /// This host has no roster that holds.
    #[error("{0}")]
    Roster(String),
    /// A file here.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The node cannot be reached.
    #[error("{0}")]
    Unreached(String),
    /// It takes no file.
    #[error(
        "node {node} takes nothing into {into} from {me}; it would with this in its settings, and `thalweg \
         node` started anew:\n  [files]\n  accept = [{{ path = {into:?}, from = [\"{me}\"] }}]"
    )]
    NotAccepted {
        /// Which.
        node: Name,
        /// The directory.
        into: String,
        /// Who would send.
        me: Name,
    },
}

/// Sends; what happens is told to `events`, the end as [`Event::Ended`] as well.
///
/// When `stop` is cancelled, what is there is kept there, and a later call goes on.
///
/// # Errors
///
/// [`SendError`].
pub async fn send(
    request: SendRequest,
    reach: MemberDialer,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
) -> Result<Totals, SendError> {
    let reach = reach.with_terms(request.terms.clone());
    let ways = ways(&request, &reach)?;
    let Found { files, mut failed, passed } = local::find(&request.files);
    if files.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0).into());
    }
    tell_passed(&passed, &events);
    let limit = request.limit.map(Limit::new);
    let shared = Arc::new(Shared {
        request,
        reach,
        files,
        unread: failed,
        events,
        stop,
        limit,
        queue: Mutex::new(Queue::default()),
        began: Instant::now(),
    });
    let totals = shared.clone().run(ways).await?;
    shared.events.event(Event::Ended(totals.clone()));
    Ok(totals)
}

/// What is no file is not sent; nobody is to find that out at the other end.
fn tell_passed(passed: &[PathBuf], events: &Arc<dyn EventSink>) {
    let Some(first) = passed.first() else { return };
    let more = match passed.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more like it"),
    };
    let first = first.display();
    let text = format!("not sent, as only files are: {first}{more} (links, pipes, devices)");
    events.event(Event::Note { text });
}

/// The relays by which it may go, the best first.
fn ways(request: &SendRequest, reach: &MemberDialer) -> Result<Vec<Name>, SendError> {
    let roster = reach.roster().map_err(SendError::Roster)?;
    let names = Names { roster: Ok(&roster), me: Some(reach.me()) };
    names.node(&request.node)?;
    let me = std::slice::from_ref(reach.me());
    let rank = |candidates: Vec<Name>, most| {
        request.estimates.intermediates(me, candidates, &request.node, most)
    };
    Ok(match &request.via {
        Via::Named(via) => {
            via.iter().try_for_each(|name| names.route(name.as_str(), &request.terms).map(drop))?;
            rank(via.clone(), via.len())
        }
        Via::Relays => {
            let relays = names.candidates(&request.terms, usize::MAX).into_iter();
            rank(relays.map(|(name, _)| name).collect(), WAYS)
        }
    })
}

/// What all ways share.
#[derive(Debug)]
struct Shared {
    request: SendRequest,
    reach: MemberDialer,
    files: Vec<Local>,
    /// What cannot be read here.
    unread: Vec<LocalError>,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
    limit: Option<Limit>,
    queue: Mutex<Queue>,
    began: Instant,
}

impl Shared {
    /// Held for a few instructions only.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes and files that are not there.
    fn left(&self) -> (u64, u64) {
        let queue = self.queue();
        (queue.left(), queue.unfinished() as u64)
    }

    async fn run(self: Arc<Self>, relays: Vec<Name>) -> Result<Totals, SendError> {
        let present = tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                return Ok(Totals { outcome: Outcome::Interrupted, ..Totals::default() });
            }
            present = way::ask_what_is_there(&self) => present?,
        };
        let (missing, files) = self.left();
        self.tell_start(missing, files, &present);
        let began = Instant::now();
        let several = missing >= WORTH_WAYS;
        let relays = if several { relays } else { Vec::new() };
        let why = self.clone().move_all(relays, several, began).await;
        Ok(self.totals(missing, present, began.elapsed(), why))
    }

    fn tell_start(&self, missing: u64, files: u64, present: &Present) {
        let into = String::from_utf8_lossy(&self.request.into);
        let target = format!("{}:{into}", self.request.node);
        self.events.event(Event::Started {
            job: self.job(&target),
            into: target,
            files,
            bytes: missing,
            present_files: present.files,
            present_bytes: present.bytes,
        });
    }

    /// The same for the same call: what is there of it is the other end's to remember.
    fn job(&self, target: &str) -> JobId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.reach.me().as_str().as_bytes());
        hasher.update(&[0]).update(target.as_bytes());
        for file in &self.request.files {
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            hasher.update(&[0]).update(whole.as_os_str().as_bytes());
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        JobId::from(id)
    }

    /// Until all pieces are there or no way is left; why not all, then.
    async fn move_all(
        self: Arc<Self>,
        relays: Vec<Name>,
        several: bool,
        began: Instant,
    ) -> Option<String> {
        let mut ways = vec![Way::direct(several)];
        ways.extend(relays.into_iter().map(Way::by));
        let ways: Vec<Arc<Way>> = ways.into_iter().map(Arc::new).collect();
        let mut workers = JoinSet::new();
        for way in &ways {
            for _ in 0..way.connections() {
                let (shared, way) = (self.clone(), way.clone());
                workers.spawn(async move { way.work(&shared).await });
            }
        }
        let mut ticks = interval(EVERY);
        let mut why = None;
        let mut board = Board::default();
        while !self.queue().is_finished() && !self.stop.is_cancelled() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                ended = workers.join_next() => match ended {
                    None => break,
                    Some(Ok(Err(failed))) => why = Some(failed),
                    Some(_) => {}
                },
                _ = ticks.tick() => {
                    board.tell(&self, began);
                    way::leave_useless(&ways, &self, began);
                }
            }
        }
        board.tell(&self, began);
        // A way that still has a piece sends what is there by now.
        workers.shutdown().await;
        why.filter(|_| !self.queue().is_finished())
    }

    fn totals(
        &self,
        missing: u64,
        present: Present,
        took: Duration,
        why: Option<String>,
    ) -> Totals {
        let queue = self.queue();
        let (left, unfinished) = (queue.left(), queue.unfinished() as u64);
        let failed = (queue.failed().len() + self.unread.len()) as u64;
        let bytes = missing.saturating_sub(left + queue.given_up());
        let outcome = match (queue.is_finished(), failed) {
            (true, 0) => Outcome::Complete,
            (true, _) => Outcome::Partial,
            _ if self.stop.is_cancelled() => Outcome::Interrupted,
            _ => Outcome::Failed,
        };
        for (file, why) in queue.failed() {
            self.events.event(Event::FileFailed {
                source: self.reach.me().clone(),
                file: self.files[*file].here.display().to_string(),
                why: why.clone(),
            });
        }
        for (file, why) in self.unread.iter().map(LocalError::parts) {
            let (source, file) = (self.reach.me().clone(), file.display().to_string());
            self.events.event(Event::FileFailed { source, file, why });
        }
        let all = (self.files.len() + self.unread.len()) as u64;
        Totals {
            outcome,
            files: all.saturating_sub(present.files + unfinished + failed),
            bytes,
            duplicate_bytes: queue.twice(),
            present_files: present.files,
            failed_files: failed,
            unfinished_files: unfinished,
            kept_bytes: if left > 0 { bytes } else { 0 },
            seconds: took.as_secs_f64(),
            rate_bps: Rate::over(ByteSize::from_bytes(bytes), took).as_bps(),
            sources: vec![SourceTotals {
                source: self.reach.me().clone(),
                bytes,
                seconds: took.as_secs_f64(),
            }],
            why,
            ..Totals::default()
        }
    }
}

/// What was there before.
#[derive(Clone, Copy, Debug, Default)]
struct Present {
    files: u64,
    bytes: u64,
}

/// How far it is.
#[derive(Debug, Default)]
struct Board {
    total: u64,
    before: u64,
    at: f64,
    rate: Option<f64>,
}

impl Board {
    fn tell(&mut self, shared: &Shared, began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        let (left, unfinished) = shared.left();
        self.total = self.total.max(left);
        let done = self.total - left;
        let passed = (seconds - self.at).max(1e-3);
        let rate = done.saturating_sub(self.before) as f64 / passed;
        let late = self.rate.map_or(rate, |late| late + (passed / 3.0).min(1.0) * (rate - late));
        (self.before, self.at, self.rate) = (done, seconds, Some(late));
        let left_seconds = (late > 1.0).then(|| left as f64 / late);
        let source = SourceProgress {
            source: shared.reach.me().clone(),
            done_bytes: done,
            total_bytes: self.total,
            rate_bps: (rate * 8.0) as u64,
            left_seconds,
        };
        let files = shared.files.len() as u64;
        shared.events.event(Event::Progress(Progress {
            seconds,
            done_bytes: done,
            total_bytes: self.total,
            done_files: files.saturating_sub(unfinished),
            total_files: files,
            rate_bps: source.rate_bps,
            left_seconds,
            plan_left_seconds: None,
            sources: vec![source],
        }));
    }
}
