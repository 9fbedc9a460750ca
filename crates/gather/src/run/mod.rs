//! Runs a complete collection, from listings to files, and emits its events.

mod checksums;
mod execution;
mod files;
mod listing;
mod listing_memory;
mod metered_landing;
mod participants;
mod pending_sources;
mod planning;
mod progress_reporter;
mod totals;

pub use listing::SourceRequest;
pub use participants::Via;
pub use pending_sources::LISTING_PATIENCE;

use super::{
    CollectContext, Event, EventSink, Forecast, ForecastError, IdleRemotes, Method, MethodName,
    Outcome, Plan, PriceList, Totals,
    facts::TransferFacts,
    landing::{Fidelity, Landing, Layout, OpenError, Options, as_root},
};
use checksums::RemoteSums;
use execution::TransferOutcome;
use listing::Listings;
use metered_landing::MeteredLanding;
use progress_reporter::{ProgressReporter, SourceCounters};
use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::Budget,
    job::{Job, Kind},
    rate_limit::RateLimit,
    rate_timetable::RateTimetable,
    verdict::Verdict,
};
use thalweg_files::{
    inventory::Inventory,
    land::{Land, LandError},
};
use thalweg_mesh::RouteNameError;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::{estimates::Estimates, overlay::Overlay, transfer_counters::Way};
use thalweg_plan::collection::Grid;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::{LegKind, Terms};
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// The input of a collection.
#[derive(Clone, Debug)]
pub struct Request {
    /// The sources, in the order of the participants; each node appears once.
    pub sources: Vec<SourceRequest>,
    /// Patterns of paths to leave out at all sources.
    pub exclude: Vec<Vec<u8>>,
    /// Once another source has listed everything, a source that lists nothing new for this long is left out.
    pub listing_patience: Duration,
    pub into: PathBuf,
    /// How sources' files are placed below it; `None`: by the number of nodes.
    pub layout: Option<Layout>,
    /// Compare content instead of times.
    pub checksum: bool,
    /// Metadata to keep besides content, modes, times and links.
    pub fidelity: Fidelity,
    /// Hosts that may be used as intermediates.
    pub via: Via,
    /// The terms requested from relays.
    pub terms: Terms,
    /// Known rates and round trips of legs.
    pub estimates: Estimates,
    /// The method to carry it out.
    pub method: MethodName,
    /// The maximum number of concurrent paths per source, for the fluid method; `None`: its default.
    pub ways: Option<usize>,
    /// The slot length of a timetable; `None`: chosen automatically.
    pub slot: Option<Duration>,
    /// Its data unit; `None`: chosen automatically.
    pub unit: Option<ByteSize>,
    /// The maximum receive rate of this host.
    pub limit: Option<RateTimetable>,
    /// The time by which everything is to be here, from the start.
    pub deadline: Option<Duration>,
    /// The prices of legs.
    pub prices: Option<PriceList>,
    /// The maximum price of the collection.
    pub budget: Option<f64>,
    /// Only list and plan.
    pub dry_run: bool,
    /// Report the files to fetch ([`Event::Files`]).
    pub list: bool,
    /// The budget to which received bytes are charged, as data and duplicates.
    pub bytes: Arc<Budget>,
}

impl Request {
    /// Creates a request for these sources and this directory, with the defaults of `thalweg gather`.
    pub fn new(sources: Vec<SourceRequest>, into: PathBuf) -> Self {
        Self {
            sources,
            exclude: Vec::new(),
            listing_patience: LISTING_PATIENCE,
            into,
            layout: None,
            checksum: false,
            fidelity: as_root(),
            via: Via::default(),
            terms: Terms { leg: LegKind::Open, ..Terms::default() },
            estimates: Estimates::default(),
            method: MethodName::Fluid,
            ways: None,
            slot: None,
            unit: None,
            limit: None,
            deadline: None,
            prices: None,
            budget: None,
            dry_run: false,
            list: false,
            bytes: Arc::default(),
        }
    }
}

/// A collection could not begin, or not continue at all.
#[derive(Debug, Error)]
pub enum GatherError {
    #[error(transparent)]
    Name(#[from] RouteNameError),
    /// This host has no valid roster.
    #[error("{0}")]
    Roster(String),
    /// No source could be listed; each failure was reported as [`Event::SourceFailed`].
    #[error("no source could be listed; the reason for each is given above")]
    NoSource,
    /// The collection cannot land here.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An invalid pattern of paths to leave out.
    #[error("--exclude: {0}")]
    Exclude(String),
    /// It cannot be planned.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
    /// A task panicked; its panic was printed.
    #[error("a task of this program panicked; the panic is printed above")]
    Broken,
}

/// Runs a collection. Events, and finally the result as [`Event::Ended`], go to `events`.
///
/// When `stop` is cancelled, received data is kept, and a later call with the same request continues.
///
/// # Errors
///
/// Returns [`GatherError`] if nothing was moved.
pub async fn gather(
    request: Request,
    dialer: MemberDialer,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
) -> Result<Totals, GatherError> {
    let dialer = dialer.with_terms(request.terms.clone());
    let run = CollectionRun { request, dialer, events, stop, began: Instant::now() };
    let (totals, verdict) = run.run().await?;
    if let Some(verdict) = verdict {
        run.events.event(Event::Verdict(verdict));
    }
    run.events.event(Event::Ended(totals.clone()));
    Ok(totals)
}

struct CollectionRun {
    request: Request,
    dialer: MemberDialer,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
    began: Instant,
}

/// The state when bytes begin to flow.
struct PreparedCollection {
    overlay: Arc<Overlay>,
    landing: Landing,
    /// Whether it resumes an earlier call.
    resumed: bool,
    inventory: Arc<Inventory>,
    plan: Plan,
    method: Method,
    grid: Grid,
    idle_remotes: IdleRemotes,
    /// Sources that could not be listed.
    failed: Vec<u32>,
}

impl CollectionRun {
    async fn run(&self) -> Result<(Totals, Option<Verdict>), GatherError> {
        participants::check(&self.request, &self.dialer)?;
        thalweg_files::check_excludes(&self.request.exclude).map_err(GatherError::Exclude)?;
        let listings = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok((Totals::interrupted(), None)),
            listings = listing::all(&self.request, &self.dialer, &self.events) => listings?,
        };
        let ready = self.prepare(listings).await?;
        if self.request.dry_run {
            self.report_failures(&ready.overlay, &ready.landing.required_work().failed);
            return Ok((self.looked(&ready), None));
        }
        let began = Instant::now();
        let facts = Arc::new(TransferFacts::begin(Way::Down));
        let events = self.events.clone();
        let watch = ProgressReporter::start(&ready, events, facts.clone(), began);
        let counts = watch.counts();
        let metered = Arc::new(self.metered(&ready, &watch, facts.clone()));
        let ended = self.execute(&ready, metered.clone(), &facts).await;
        let report = ready.landing.finish().await;
        let duplicate_bytes = watch.counts().duplicates();
        let lost_bytes = metered.received_of(&ready.inventory, &report.lost);
        let sources = (watch.finish().await, lost_bytes);
        let totals = self.totals(&ready, ended, report, sources, began.elapsed());
        let verdict = self.verdict(&totals, &counts, &facts);
        Ok((Totals { duplicate_bytes, ..totals }, verdict))
    }

    /// The bound that it met; `None` if it failed or was stopped.
    fn verdict(
        &self,
        totals: &Totals,
        counts: &SourceCounters,
        facts: &TransferFacts,
    ) -> Option<Verdict> {
        if !matches!(totals.outcome, Outcome::Complete | Outcome::Partial) {
            return None;
        }
        let took = Duration::try_from_secs_f64(totals.seconds).unwrap_or_default();
        let publication = counts.last_byte().map(|last| took.saturating_sub(last));
        let times = (counts.first_byte().unwrap_or_default(), publication.unwrap_or_default());
        let limit = self.request.limit.clone().map(|limit| RateLimit::scheduled(limit).rate());
        let known = (self.dialer.me(), &self.request.estimates);
        Some(facts.of_gather(totals, times, limit, known))
    }

    /// Prepares overlay, landing and plan.
    async fn prepare(&self, listings: Listings) -> Result<PreparedCollection, GatherError> {
        let Listings { listed, failed, rtts, idle_remotes } = listings;
        let overlay = Arc::new(participants::overlay(&self.request, &self.dialer, rtts));
        // Plans that may be refused are made before anything is created here.
        let early = match self.may_be_refused() && !self.request.dry_run {
            true => Some(self.plan_early(&listed, &overlay).await?),
            false => None,
        };
        let (landing, inventory, resumed) =
            self.open(listed, &overlay, self.request.dry_run).await?;
        let required_work = landing.required_work().clone();
        self.events.event(Event::Started {
            job: landing.job().id,
            into: self.request.into.display().to_string(),
            files: required_work.files,
            bytes: required_work.bytes,
            present_files: required_work.present_files,
            present_bytes: required_work.present_bytes,
            changes: required_work.changes,
        });
        files::report_passed_over(&required_work.passed_over, &overlay, &self.events);
        if required_work.resumed_bytes > 0 {
            let kept = ByteSize::from_bytes(required_work.resumed_bytes);
            let text = format!("{kept} of unfinished files are here from an earlier call");
            self.events.event(Event::Note { text });
        }
        for text in required_work.remarks.clone() {
            self.events.event(Event::Note { text });
        }
        if self.request.list {
            files::report(&inventory, &overlay, &self.events);
        }
        let amounts = amounts(&inventory, &overlay);
        let (plan, method, grid) = match early.filter(|(known, _)| *known == amounts) {
            Some((_, planned)) => planned,
            None => self.plan(overlay.clone(), amounts).await?,
        };
        self.report_prices(&plan.forecast);
        self.events.event(Event::Planned(plan.forecast.clone()));
        self.report_unmeasured(&plan.forecast);
        self.report_deadline(&plan.forecast);
        let inventory = Arc::new(inventory);
        Ok(PreparedCollection {
            overlay,
            landing,
            resumed,
            inventory,
            plan,
            method,
            grid,
            idle_remotes,
            failed,
        })
    }

    /// Whether the plan may be refused: a timetable needs measured paths, and a budget may be too small.
    fn may_be_refused(&self) -> bool {
        let by_method = !matches!(
            self.request.method,
            MethodName::Fluid | MethodName::Direct(_) | MethodName::AllAtOnce(_)
        );
        by_method || self.request.budget.is_some()
    }

    /// Makes the plan before anything is created here, from the missing data as far as it is visible then.
    async fn plan_early(
        &self,
        listed: &[super::landing::Listing],
        overlay: &Arc<Overlay>,
    ) -> Result<(Vec<ByteSize>, (Plan, Method, Grid)), GatherError> {
        let (_, inventory, _) = self.open(listed.to_vec(), overlay, true).await?;
        let amounts = amounts(&inventory, overlay);
        let planned = self.plan(overlay.clone(), amounts.clone()).await?;
        Ok((amounts, planned))
    }

    /// Opens the landing. Also returns whether it resumes an earlier call.
    async fn open(
        &self,
        listed: Vec<super::landing::Listing>,
        overlay: &Overlay,
        dry_run: bool,
    ) -> Result<(Landing, Inventory, bool), GatherError> {
        let Request { sources, into, .. } = &self.request;
        let asked = sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let job = Job::begin(Kind::Gather, asked, into.display().to_string());
        let begun = job.id;
        let sums = RemoteSums::new(self.dialer.clone(), overlay.names.clone());
        let options = Options {
            // By the number of requested sources, so that a source that is away now does not move the others' files.
            layout: Some(self.request.layout.unwrap_or(Layout::of(self.request.sources.len()))),
            sums: self.request.checksum.then(|| Arc::new(sums) as _),
            fidelity: self.request.fidelity,
            dry_run,
            ..Options::new(job)
        };
        let into = into.clone();
        let opened = spawn_blocking(move || Landing::open(&into, listed, options)).await;
        let (landing, inventory) = opened.map_err(|_| GatherError::Broken)??;
        let resumed = landing.job().id != begun;
        Ok((landing, inventory, resumed))
    }

    fn metered(
        &self,
        ready: &PreparedCollection,
        watch: &ProgressReporter,
        facts: Arc<TransferFacts>,
    ) -> MeteredLanding {
        let (landing, limit) = (Arc::new(ready.landing.clone()), self.request.limit.clone());
        let limit = limit.map(RateLimit::scheduled);
        let (inventory, bytes) = (&ready.inventory, self.request.bytes.clone());
        MeteredLanding::new(landing, inventory, watch.counts(), limit, bytes, facts)
    }

    async fn execute(
        &self,
        ready: &PreparedCollection,
        land: Arc<dyn Land>,
        facts: &TransferFacts,
    ) -> Result<TransferOutcome, LandError> {
        let context = CollectContext {
            dialer: self.dialer.clone(),
            idle_remotes: ready.idle_remotes.clone(),
            overlay: ready.overlay.clone(),
            inventory: ready.inventory.clone(),
            land,
            events: self.events.clone(),
            connections: facts.connections.clone(),
            stop: self.stop.clone(),
        };
        execution::execute(&context, ready, &self.request).await
    }

    fn looked(&self, ready: &PreparedCollection) -> Totals {
        let required_work = ready.landing.required_work();
        let Forecast { makespan_seconds, bound_seconds, .. } = ready.plan.forecast;
        Totals {
            outcome: super::Outcome::Planned,
            present_files: required_work.present_files,
            failed_files: required_work.failed.len() as u64,
            failed_sources: ready.failed.len() as u64,
            planned_seconds: makespan_seconds,
            bound_seconds,
            late: self.is_beyond(bound_seconds),
            ..Totals::default()
        }
    }
}

/// Missing bytes by participant.
fn amounts(inventory: &Inventory, overlay: &Overlay) -> Vec<ByteSize> {
    inventory.amounts(overlay.names.len()).into_iter().map(ByteSize::from_bytes).collect()
}
