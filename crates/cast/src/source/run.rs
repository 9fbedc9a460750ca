//! A whole cast, from a path to the last receiver's report.

use super::{
    describe::{self, DescribeError},
    dry_run::DryRun,
    event::{Event, EventSink, Outcome, PlannedReceiver, ReceiverState, Totals},
    facts::FactCollector,
    job::{CastRecord, JobError, JobRecorder},
    member::{CastContext, Member},
    plan::{self, ReceiverPlan},
    progress,
    recheck::ObjectRecheck,
    rings::Forwarding,
    survey::{self, Survey, SurveyError},
};
use crate::{leg::Announcements, store::Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use thalweg_base::{rate_limit::RateLimit, rate_timetable::RateTimetable};
use thalweg_fountain::{Geometry, GeometryError};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::PrivateKey;
use thalweg_part::Fidelity;
use thalweg_paths::estimates::Estimates;
use thalweg_units::WallTime;
use thalweg_wire::{
    Signed,
    cast::{Candidate, Offer, Pass},
    mesh::Name,
    object::FilePath,
};
use thiserror::Error;
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// The lifetime of an offer, in which receivers serve it to each other.
const OFFER_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of left-out paths that are named per reason.
const MAX_NAMED: usize = 10;

/// The most passes over an object. Each pass finds all unreadable files and leaves them out, so one more pass suffices
/// unless files appear or vanish.
const MAX_PASSES: u32 = 4;

/// Bytes between two events about the reading of the object.
const HASHING_STEP: u64 = 64 << 20;

/// A cast to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// The file or directory.
    pub path: PathBuf,
    /// The metadata of files that is cast besides content, modes, times and links.
    pub fidelity: Fidelity,
    /// The object's name in the inboxes; `None`: the file's own name.
    pub name: Option<Vec<u8>>,
    pub to: Vec<Name>,
    /// Estimates of the legs.
    pub estimates: Estimates,
    /// The number of parents that a receiver uses at a time.
    pub parents: u32,
    /// Sizes of symbols and blocks in bytes; `None`: chosen by the object's length.
    pub shape: (Option<u32>, Option<u64>),
    /// How receivers forward what they receive.
    pub forwarding: Forwarding,
    /// Whether data may pass in the clear between hosts that have proven their keys.
    pub open: bool,
    /// How long a receiver may be away before it is given up.
    pub patience: Duration,
    /// The most that this host sends to all receivers together; `None`: no limit.
    pub limit: Option<RateTimetable>,
    /// The directory for the job's record, and for digests that later casts can reuse.
    pub kept_in: PathBuf,
    /// Only ask receivers whether they would accept the cast.
    pub dry_run: bool,
}

/// Why a cast did not start.
#[derive(Debug, Error)]
pub enum CastError {
    /// The object cannot be cast.
    #[error("{0}")]
    Survey(#[from] SurveyError),
    /// The object cannot be described.
    #[error("{0}")]
    Describe(#[from] DescribeError),
    /// The object cannot be divided this way.
    #[error("{0}")]
    Shape(#[from] GeometryError),
    /// Inboxes do not accept the name.
    #[error("`{0}` is not a valid name in an inbox; give another one with --name")]
    Name(String),
    /// A receiver is not a member with a node.
    #[error("`{0}` is not a member of this mesh that runs a node")]
    Member(Name),
    /// A receiver is the source itself.
    #[error("`{0}` is this host, which already has the object; remove it from the receivers")]
    Here(Name),
    /// There are no receivers.
    #[error("there are no receivers: none was given with --to or found with --to-all")]
    Nobody,
    /// A relay is a receiver, or this host.
    #[error(
        "`{0}` is given with --via but is a receiver or this host; a relay must be another member"
    )]
    Via(Name),
    /// A rate was given for a host that is neither source nor receiver nor relay.
    #[error("`{0}` is neither source, receiver nor relay of this cast; remove it from --egress")]
    NoPart(Name),
    /// The source's ring cannot be created.
    #[error("cannot create the ring buffer: {0}")]
    Ring(std::io::Error),
    /// There is no roster.
    #[error("{0}")]
    Roster(String),
    /// The job's record is not available.
    #[error("{0}")]
    Job(#[from] JobError),
    /// A bug: a thread has panicked.
    #[error("internal error: a thread of this program panicked")]
    Broken,
}

/// Runs a cast until all receivers have the object or are given up, or until `stop` is cancelled.
///
/// # Errors
/// [`CastError`]. Failures of receivers are reported as events.
pub async fn cast(
    request: Request,
    dialer: MemberDialer,
    key: PrivateKey,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
) -> Result<Totals, CastError> {
    let to = receivers(&request, &dialer)?;
    check_relays(&request.forwarding, &to, &dialer)?;
    let Some(described) = read(&request, key, &events, &stop).await? else {
        return Ok(interrupted_totals(to.len()));
    };
    report_started(&described.store, &to, &*events);
    let forwarding = &request.forwarding;
    let parts = plan::plan(dialer.me(), &to, &request.estimates, request.parents, forwarding);
    report_plan(&parts, dialer.me(), &*events);
    if request.dry_run {
        let receiving = receiving_plans(&parts, forwarding);
        let record = record(&request, &described.offer, dialer.me(), &receiving);
        super::job::check_idle(&request.kept_in, &record)?;
        return Ok(dry_run(described, &parts, forwarding, dialer).run(events).await);
    }
    deliver(request, described, parts, dialer, events, stop).await
}

/// Reads the object and describes it; `None` if stopped before.
async fn read(
    request: &Request,
    key: PrivateKey,
    events: &Arc<dyn EventSink>,
    stop: &CancellationToken,
) -> Result<Option<DescribedObject>, CastError> {
    let (request, events) = (request.clone(), Arc::clone(events));
    let describing = spawn_blocking(move || describe(&request, key, &*events));
    tokio::select! {
        described = describing => described.map_err(|_| CastError::Broken)?.map(Some),
        () = stop.cancelled() => Ok(None),
    }
}

/// Offers the object to the members of the plan and serves it.
async fn deliver(
    request: Request,
    described: DescribedObject,
    parts: BTreeMap<Name, ReceiverPlan>,
    dialer: MemberDialer,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
) -> Result<Totals, CastError> {
    let DescribedObject { store, offer, key, failed_files } = described;
    let (forwarding, key) = (&request.forwarding, Arc::new(key));
    let rings = forwarding.rings(&store, &parts, &key).map_err(CastError::Ring)?;
    let (relays, parts): (BTreeMap<Name, ReceiverPlan>, _) =
        parts.into_iter().partition(|(name, _)| forwarding.via.contains(name));
    let keeper = Arc::new(job_recorder(&request, &offer, (dialer.me(), &parts), events)?);
    let facts = FactCollector::new(Arc::clone(&keeper) as Arc<dyn EventSink>, dialer.me().clone());
    let facts = Arc::new(facts);
    let casting = CastContext {
        legs: facts.legs(),
        offer: offer.encode(),
        layout: store.files.layout().encode(),
        has_links_upwards: store.files.layout().has_links_upwards(),
        announcements: Announcements::new(&store.known.geometry),
        store,
        dialer,
        events: facts,
        began: Instant::now(),
        broken: watch::Sender::new(None),
        patience: request.patience,
        limit: request.limit.clone().map(|limit| Arc::new(RateLimit::scheduled(limit))),
        receivers: parts.len(),
        failed_files,
        rings,
        recheck: ObjectRecheck::default(),
    };
    let (members, relays) = (members(&casting, parts, &key), members(&casting, relays, &key));
    let totals = serve(Arc::new(casting), members, relays, stop).await;
    // The task does not panic; if it did, the cast would be over all the same.
    _ = spawn_blocking(move || keeper.finish()).await;
    Ok(totals)
}

/// The members with their parts of the plan, each with a pass for this cast.
fn members(
    casting: &CastContext,
    parts: BTreeMap<Name, ReceiverPlan>,
    key: &PrivateKey,
) -> Vec<Arc<Member>> {
    let (id, expiry) = (casting.store.known.id, casting.store.known.offer.expiry);
    let member = |(name, part): (Name, ReceiverPlan)| {
        let pass = Pass { cast: id, to: name.clone(), expiry };
        Arc::new(Member::new(name, part, Signed::sign(pass, key).encode()))
    };
    parts.into_iter().map(member).collect()
}

/// Creates the job's record, or continues an existing one.
fn job_recorder(
    request: &Request,
    offer: &Signed<Offer>,
    (here, parts): (&Name, &BTreeMap<Name, ReceiverPlan>),
    events: Arc<dyn EventSink>,
) -> Result<JobRecorder, JobError> {
    JobRecorder::open(&request.kept_in, record(request, offer, here, parts), events)
}

fn record(
    request: &Request,
    offer: &Signed<Offer>,
    here: &Name,
    parts: &BTreeMap<Name, ReceiverPlan>,
) -> CastRecord {
    let path = std::path::absolute(&request.path).unwrap_or_else(|_| request.path.clone());
    CastRecord::begin(&path, here, offer, parts)
}

/// The members of the plan that store the object: all but relays.
fn receiving_plans(
    parts: &BTreeMap<Name, ReceiverPlan>,
    forwarding: &Forwarding,
) -> BTreeMap<Name, ReceiverPlan> {
    let keeps = |(name, _): &(&Name, &ReceiverPlan)| !forwarding.via.contains(name);
    parts.iter().filter(keeps).map(|(name, part)| (name.clone(), part.clone())).collect()
}

fn dry_run(
    described: DescribedObject,
    parts: &BTreeMap<Name, ReceiverPlan>,
    forwarding: &Forwarding,
    dialer: MemberDialer,
) -> DryRun {
    let DescribedObject { store, offer, key, failed_files } = described;
    let relays = forwarding.via.iter().cloned().collect();
    let (cast, expiry) = (store.known.id, store.known.offer.expiry);
    let pass = |to: &Name| Signed::sign(Pass { cast, to: to.clone(), expiry }, &key).encode();
    let passes = parts.keys().map(|name| (name.clone(), pass(name))).collect();
    DryRun { offer: offer.encode(), passes, relays, store, failed_files, dialer }
}

fn interrupted_totals(receivers: usize) -> Totals {
    Totals { outcome: Outcome::Interrupted, receivers, ..Totals::default() }
}

/// The named receivers, without duplicates. This host must not be among them.
fn receivers(request: &Request, dialer: &MemberDialer) -> Result<Vec<Name>, CastError> {
    let roster = dialer.roster().map_err(CastError::Roster)?;
    let to: BTreeSet<&Name> = request.to.iter().collect();
    for name in &to {
        if *name == dialer.me() {
            return Err(CastError::Here((*name).clone()));
        }
        let has_node = roster.by_name(name).is_some_and(|member| member.node.is_some());
        if !has_node {
            return Err(CastError::Member((*name).clone()));
        }
    }
    if to.is_empty() { Err(CastError::Nobody) } else { Ok(to.into_iter().cloned().collect()) }
}

/// Checks that all relays are members with a node, and not receivers.
fn check_relays(
    forwarding: &Forwarding,
    to: &[Name],
    dialer: &MemberDialer,
) -> Result<(), CastError> {
    let roster = dialer.roster().map_err(CastError::Roster)?;
    for name in &forwarding.via {
        if roster.by_name(name).is_none_or(|member| member.node.is_none()) {
            return Err(CastError::Member(name.clone()));
        }
        if to.contains(name) || name == dialer.me() {
            return Err(CastError::Via(name.clone()));
        }
    }
    Ok(())
}

struct DescribedObject {
    store: Arc<Store>,
    offer: Signed<Offer>,
    key: PrivateKey,
    failed_files: u64,
}

fn describe(
    request: &Request,
    key: PrivateKey,
    events: &dyn EventSink,
) -> Result<DescribedObject, CastError> {
    super::job::clear(&request.kept_in);
    let mut survey = survey::survey(&request.path, request.fidelity)?;
    report_left_out(&survey, events);
    let name = name(request, &survey)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = |time: Duration| {
        WallTime::from_unix_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    };
    let terms = describe::OfferTerms {
        name,
        open: request.open,
        valid: (at(now), at(now + OFFER_LIFETIME)),
    };
    let mut passes = 1;
    let store = loop {
        let geometry = geometry(request, survey.length)?;
        let total_bytes = survey.length;
        let passed = |done_bytes: u64| {
            if done_bytes.is_multiple_of(HASHING_STEP) && done_bytes < total_bytes {
                events.event(&Event::Hashing { done_bytes, total_bytes });
            }
        };
        let terms = terms.clone();
        match describe::describe(&survey, geometry, terms, &key, &request.kept_in, passed) {
            Err(DescribeError::Files(failed)) if passes < MAX_PASSES && !survey.is_file() => {
                passes += 1;
                let before = survey.unread.len();
                survey.leave_out(failed);
                report_failed_files(&survey.unread[before..], events);
            }
            done => break done.map_err(|why| why.below(&survey.place.name, &request.path))?,
        }
    };
    let offer = Signed::sign(store.known.offer.clone(), &key);
    Ok(DescribedObject { store, offer, key, failed_files: survey.unread.len() as u64 })
}

/// Reports what receivers will not get.
fn report_left_out(survey: &Survey, events: &dyn EventSink) {
    for path in survey.passed_over.iter().take(MAX_NAMED) {
        events.event(&Event::PassedOver { path: path.display().to_string() });
    }
    if let Some(count @ 1..) = survey.passed_over.len().checked_sub(MAX_NAMED) {
        events.event(&Event::MorePassedOver { count: count as u64 });
    }
    report_failed_files(&survey.unread, events);
    let special_bits = survey.count_special_bits();
    if special_bits > 0 {
        events.event(&Event::SpecialBits { count: special_bits });
    }
}

fn report_failed_files(unread: &[(PathBuf, std::io::Error)], events: &dyn EventSink) {
    for (path, why) in unread.iter().take(MAX_NAMED) {
        let file = path.display().to_string();
        events.event(&Event::FileFailed { file, why: why.to_string() });
    }
    if let Some(count @ 1..) = unread.len().checked_sub(MAX_NAMED) {
        events.event(&Event::MoreFailed { count: count as u64 });
    }
}

fn name(request: &Request, survey: &Survey) -> Result<FilePath, CastError> {
    let name = request.name.as_ref().unwrap_or(&survey.place.name);
    let is_plain = !name.is_empty() && !name.contains(&b'/') && !name.starts_with(b".thalweg");
    let refused = || CastError::Name(name.escape_ascii().to_string());
    FilePath::new(name.clone()).ok().filter(|_| is_plain && name.len() <= 255).ok_or_else(refused)
}

fn geometry(request: &Request, length: u64) -> Result<Geometry, GeometryError> {
    let default = Geometry::for_length(length)?;
    let (symbol, block) = request.shape;
    if symbol.is_none() && block.is_none() {
        return Ok(default);
    }
    let symbol = symbol.unwrap_or(default.symbol_bytes());
    block.map_or(Ok(()), Geometry::check_block)?;
    let block = block.unwrap_or(default.block_bytes());
    let symbols = u32::try_from(block / u64::from(symbol.max(1))).unwrap_or(u32::MAX);
    Geometry::new(length, symbol, symbols, (symbols / 4).max(8))
}

fn report_started(store: &Store, to: &[Name], events: &dyn EventSink) {
    let known = &store.known;
    events.event(&Event::Started {
        cast: known.id.to_string(),
        name: known.offer.name.to_string(),
        object: known.offer.object.to_string(),
        bytes: known.offer.length,
        symbol_bytes: known.geometry.symbol_bytes(),
        block_symbols: known.geometry.block_symbols(),
        receivers: to.to_vec(),
    });
}

fn report_plan(parts: &BTreeMap<Name, ReceiverPlan>, here: &Name, events: &dyn EventSink) {
    let name = |c: &Candidate| c.name.clone().unwrap_or_else(|| here.clone());
    let receiver = |(of, part): (&Name, &ReceiverPlan)| PlannedReceiver {
        name: of.clone(),
        parents: part.candidates.iter().map(name).collect(),
        min_hop_bps: part.min_hop_bps,
        expected_bps: part.expected_bps,
        predicted: part.predicted,
    };
    events.event(&Event::Planned { receivers: parts.iter().map(receiver).collect() });
}

/// Serves all members until each has the object or is given up.
async fn serve(
    casting: Arc<CastContext>,
    members: Vec<Arc<Member>>,
    relays: Vec<Arc<Member>>,
    stop: CancellationToken,
) -> Totals {
    let (mut serving, mut relaying) =
        (serve_each(&casting, &members), serve_each(&casting, &relays));
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut broken = casting.broken.subscribe();
    let is_stopped = loop {
        tokio::select! {
            ended = serving.join_next() => if ended.is_none() { break false },
            _ = ticks.tick() => progress::report(&casting, &members, &relays),
            () = stop.cancelled() => break true,
            why = broken.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| why.clone()).unwrap_or_default();
                casting.events.event(&Event::Broken { why });
                break false;
            }
        }
    };
    serving.shutdown().await;
    progress::report(&casting, &members, &relays);
    let totals = totals(&casting, &members, is_stopped);
    casting.events.event(&Event::Ended(totals.clone()));
    relaying.shutdown().await;
    totals
}

/// Serves each of these members in a task of its own.
fn serve_each(casting: &Arc<CastContext>, members: &[Arc<Member>]) -> JoinSet<bool> {
    let mut serving = JoinSet::new();
    for member in members {
        let (member, casting) = (Arc::clone(member), Arc::clone(casting));
        serving.spawn(async move { member.serve(&casting).await });
    }
    serving
}

/// The result of a cast that has ended. `is_stopped`: the user stopped it.
fn totals(casting: &CastContext, members: &[Arc<Member>], is_stopped: bool) -> Totals {
    let is_complete = |member: &&Arc<Member>| member.known().standing == ReceiverState::Complete;
    let complete = members.iter().filter(is_complete).count();
    let already = members.iter().filter(is_complete).filter(|m| m.known().already).count();
    let refused_links = members.iter().map(|member| member.known().refused_links).sum();
    let is_whole = casting.failed_files == 0 && refused_links == 0;
    let outcome = match complete {
        all if all == members.len() && is_whole => Outcome::Complete,
        _ if is_stopped => Outcome::Interrupted,
        0 => Outcome::Failed,
        _ => Outcome::Partial,
    };
    Totals {
        outcome,
        dry_run: false,
        bytes: casting.store.known.offer.length,
        complete,
        already,
        receivers: members.len(),
        failed_files: casting.failed_files,
        refused_links,
        seconds: casting.began.elapsed().as_secs_f64(),
        served_bytes: casting.served(),
        why: casting.broken.borrow().clone(),
    }
}
