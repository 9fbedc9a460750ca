//! Sends files of this host to a directory of another node, over several paths if they are faster than one.
//!
//! ```text
//! local::find ─► receiver_survey ─► directories ─► SendQueue ─► SendPath: direct, through relays ─► completion
//!                                                   small items, many at a time: Put
//!                                                   large files, in pieces: StorePart
//! ```
//!
//! Every path takes the next piece as soon as it can. A piece holds about a second of the path's rate, so that shares
//! follow rates without a plan. A relayed path is kept if it delivers a sufficient share of the total. When nothing
//! waits any more, an idle path sends copies of pieces that are late on other paths.

mod completion;
mod local;
mod owners;
mod path;
mod queue;
mod receiver_survey;

pub use local::{LocalError, NameClash};

use super::{
    Changes, Event, EventSink, FileListed, Outcome, Progress, SourceProgress, SourceTotals, Totals,
    facts::TransferFacts, failures, run::Via,
};
use completion::{LinkReport, Removal};
use local::{LocalItem, SearchResult};
use owners::OwnerNames;
use parking_lot::{Mutex, MutexGuard};
use path::SendPath;
use queue::SendQueue;
use receiver_survey::ReceiverState;
use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use thalweg_base::{
    job::JobId, rate_limit::RateLimit, rate_timetable::RateTimetable, verdict::Verdict,
};
use thalweg_files::{Excludes, remote::Remote};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_mesh::{Names, RouteNameError};
use thalweg_part::{Fidelity, special_bits_note};
use thalweg_paths::{estimates::Estimates, transfer_counters::Way};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    mesh::{Name, Terms},
    object::{Delivery, DescribedEntry, Entry, FilePath, FileTime, Kind, Owners, Rules},
};
use thiserror::Error;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::interval,
};
use tokio_util::sync::CancellationToken;

/// Less data than this goes over the direct path alone: it arrives before another path is open and past slow start.
const WORTH_WAYS: u64 = 16 << 20;

/// The maximum number of relayed paths: more gained nothing in any measured mesh.
const WAYS: usize = 3;

/// The interval of progress reports and of checks of the paths.
const EVERY: Duration = Duration::from_millis(250);

/// The input of a `send`.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Files of this host, and directories with all of their contents.
    pub files: Vec<PathBuf>,
    /// The receiving node.
    pub node: Name,
    /// The absolute target directory there; for a single file it may be the file's name there.
    pub into: Vec<u8>,
    /// Whether `into` is always the single file's name.
    pub as_name: bool,
    /// Patterns of paths to leave out, as in `rsync --exclude`.
    pub exclude: Vec<Vec<u8>>,
    /// Metadata to keep besides modes and times.
    pub fidelity: Fidelity,
    /// Compare files of the same size by their whole content.
    pub checksum: bool,
    /// Replace other files of the same name, if the node's settings allow it.
    pub replace: bool,
    /// Remove items that are in directories there and not here, if the node's settings allow it.
    pub delete: bool,
    /// Send nothing, only report what would be sent.
    pub dry_run: bool,
    /// Report the files to send.
    pub list: bool,
    /// Hosts that may be used as relays.
    pub via: Via,
    /// The terms requested from relays.
    pub terms: Terms,
    /// Known rates of legs.
    pub estimates: Estimates,
    /// The maximum send rate of this host, bytes/s.
    pub limit: Option<RateTimetable>,
}

impl SendRequest {
    fn rules(&self) -> Rules {
        let Fidelity { xattrs, acls, owner, group, .. } = self.fidelity;
        let all = [
            (Rules::REPLACE, self.replace),
            // With patterns the node would remove files that the patterns protect.
            (Rules::REMOVE, self.delete && self.exclude.is_empty()),
            (Rules::WHOLE, self.checksum),
            (Rules::OWNER, owner),
            (Rules::GROUP, group),
            (Rules::XATTRS, xattrs),
            (Rules::ACLS, acls),
        ];
        all.into_iter().fold(Rules::default(), |rules, (rule, is)| rules.and(rule.only_if(is)))
    }

    /// Whether a missing target is more likely a file's name than a directory's: it has the same extension as the only
    /// file to send.
    fn looks_like_a_name(&self) -> bool {
        let end = |path: &[u8]| {
            let name = path.rsplit(|letter| *letter == b'/').next()?;
            let dot = name.iter().rposition(|letter| *letter == b'.').filter(|at| *at > 0)?;
            Some(name[dot..].to_ascii_lowercase()).filter(|end| end.len() > 1)
        };
        let [file] = &self.files[..] else { return false };
        let wanted = end(&self.into);
        wanted.is_some() && wanted == end(file.as_os_str().as_bytes())
    }
}

/// The data could not be sent.
#[derive(Debug, Error)]
pub enum SendError {
    #[error(transparent)]
    Name(#[from] RouteNameError),
    /// This host has no valid roster.
    #[error("{0}")]
    Roster(String),
    /// An error with a local file.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The node cannot be reached.
    #[error("{0}")]
    Unreached(String),
    #[error("--exclude: {0}")]
    Exclude(String),
    /// Two items would have the same name there.
    #[error("{}; nothing was sent: rename one, or send them to two directories", clash_text(.0))]
    NameClash(Vec<NameClash>),
    /// `--no-target-directory` with several items.
    #[error(
        "--no-target-directory needs exactly one file to send, not a directory or several files"
    )]
    NotOne,
    /// The node is too old for an option.
    #[error(
        "node {0} runs an older version, which does not support {1}; update it, or omit that option"
    )]
    Old(Name, &'static str),
    /// The node's settings do not accept files from this host.
    #[error(
        "node {node} does not accept files from {me} into {into}; to accept them, add this to its \
         settings and restart `thalweg node` there:\n  [files]\n  accept = [{{ path = {into:?}, \
         from = [\"{me}\"] }}]"
    )]
    NotAccepted {
        /// The receiving node.
        node: Name,
        into: String,
        /// The sending host.
        me: Name,
    },
}

fn clash_text(clashes: &[NameClash]) -> String {
    let Some(NameClash { path, one, other }) = clashes.first() else { return String::new() };
    let more = match clashes.len() {
        1 => String::new(),
        n => format!(" (and {} more names)", n - 1),
    };
    format!("{} and {} would both be {path} there{more}", one.display(), other.display())
}

/// Sends files. Events, and finally the result as [`Event::Ended`], go to `events`.
///
/// When `stop` is cancelled, the data received there is kept, and a later call continues.
///
/// # Errors
///
/// [`SendError`].
pub async fn send(
    request: SendRequest,
    dialer: MemberDialer,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
) -> Result<Totals, SendError> {
    let dialer = dialer.with_terms(request.terms.clone());
    let ways = ways(&request, &dialer)?;
    let excludes = Excludes::new(&request.exclude);
    let excludes = excludes.map_err(|why| SendError::Exclude(why.to_string()))?;
    let found = local::find(&request.files, &excludes, request.fidelity);
    let special_bits = found.count_special_bits();
    let SearchResult { items, mut failed, passed, ours, left, clashes, links, owners, named_links } =
        found;
    if items.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0).into());
    }
    if !clashes.is_empty() {
        return Err(SendError::NameClash(clashes));
    }
    report_passed_over(dialer.me(), &passed, &ours, &events);
    report_unkept(special_bits, &named_links, &events);
    let limit = request.limit.clone().map(RateLimit::scheduled);
    let sends_root = items.iter().any(|i| i.is_directory() && i.entry.path.as_bytes().is_empty());
    let mut shared = SendState {
        rules: request.rules().and(Rules::ROOT.only_if(sends_root)),
        request,
        dialer,
        items: Arc::new(items),
        links,
        owners: OwnerNames::of(owners),
        left,
        unread: failed,
        special_bits,
        events,
        stop,
        limit,
        queue: Mutex::new(SendQueue::default()),
        idle: Mutex::default(),
        is_old: AtomicBool::new(false),
        has_lost_connection: AtomicBool::new(false),
        facts: TransferFacts::begin(Way::Up),
        began: Instant::now(),
    };
    shared.resolve_target().await?;
    let shared = Arc::new(shared);
    let totals = shared.clone().run(ways).await?;
    if !shared.request.dry_run && matches!(totals.outcome, Outcome::Complete | Outcome::Partial) {
        shared.events.event(Event::Verdict(shared.verdict(&totals)));
    }
    shared.events.event(Event::Ended(totals.clone()));
    Ok(totals)
}

/// The maximum number of paths named in a report of items that are left out.
const TOLD: usize = 20;

/// Reports items that are not sent, so that the user learns of them here and not at the receiver.
fn report_passed_over(
    me: &Name,
    passed: &[PathBuf],
    ours: &[PathBuf],
    events: &Arc<dyn EventSink>,
) {
    if passed.is_empty() && ours.is_empty() {
        return;
    }
    let paths = passed.iter().chain(ours).take(TOLD);
    let paths = paths.map(|path| path.display().to_string()).collect();
    let (special, own) = (passed.len() as u64, ours.len() as u64);
    events.event(Event::PassedOver { source: me.clone(), special, own, paths });
}

/// Notes about bits that are not kept, and about links among the arguments.
fn report_unkept(special_bits: u64, named_links: &[PathBuf], events: &Arc<dyn EventSink>) {
    if let Some(text) = special_bits_note(special_bits) {
        events.event(Event::Note { text });
    }
    if let Some(first) = named_links.first() {
        let more = match named_links.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more)"),
        };
        let link = first.display();
        let text = format!(
            "{link}{more} is a symbolic link and is sent as a link; to send its target, name the target, or {link}/ for the content of a directory"
        );
        events.event(Event::Note { text });
    }
}

/// The entry of the target directory itself.
fn directory_itself() -> Entry {
    Entry {
        root: 0,
        path: FilePath::default(),
        kind: Kind::Directory,
        mode: 0o700,
        owner: 0,
        group: 0,
        modified: FileTime::default(),
        more: None,
    }
}

/// The relays that may be used, the best first.
fn ways(request: &SendRequest, dialer: &MemberDialer) -> Result<Vec<Name>, SendError> {
    let roster = dialer.roster().map_err(SendError::Roster)?;
    let names = Names { roster: Ok(&roster), me: Some(dialer.me()) };
    names.node(&request.node)?;
    let me = std::slice::from_ref(dialer.me());
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

/// State shared by all paths.
#[derive(Debug)]
struct SendState {
    request: SendRequest,
    dialer: MemberDialer,
    rules: Rules,
    items: Arc<Vec<LocalItem>>,
    /// Names that are not sent, by their directories at the receiver.
    left: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Hard links to create: the index of the item, and the path of the link.
    links: Vec<(usize, FilePath)>,
    owners: OwnerNames,
    /// Local items that cannot be read.
    unread: Vec<LocalError>,
    /// Files and directories with special bits, which inboxes do not keep.
    special_bits: u64,
    events: Arc<dyn EventSink>,
    stop: CancellationToken,
    limit: Option<RateLimit>,
    queue: Mutex<SendQueue>,
    /// An idle direct connection.
    idle: Mutex<Option<Remote>>,
    /// The node only accepts files one by one.
    is_old: AtomicBool,
    /// A connection broke while pieces were sent.
    has_lost_connection: AtomicBool,
    facts: TransferFacts,
    began: Instant,
}

impl SendState {
    /// The lock is held only briefly.
    fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock()
    }

    /// Bytes and files that have not arrived.
    fn left(&self) -> (u64, u64) {
        let queue = self.queue();
        (queue.left(), queue.unfinished() as u64)
    }

    /// The lock is held only briefly.
    fn idle(&self) -> MutexGuard<'_, Option<Remote>> {
        self.idle.lock()
    }

    /// The bound that it met.
    fn verdict(&self, totals: &Totals) -> Verdict {
        let limit = self.limit.as_ref().map(RateLimit::rate);
        let ends = (self.dialer.me(), &self.request.node);
        self.facts.of_send(totals, ends, limit, &self.request.estimates)
    }

    fn is_old(&self) -> bool {
        self.is_old.load(Relaxed)
    }

    /// Records that the node is an older one; an error if a requested option needs a newer one.
    fn record_old_node(&self, what_it_lacks: &str) -> Result<(), SendError> {
        if self.is_old.swap(true, Relaxed) {
            return Ok(());
        }
        let request = &self.request;
        let fidelity = request.fidelity;
        let wanted = [
            (fidelity.hard_links, "--hard-links"),
            (fidelity.xattrs, "--xattrs"),
            (fidelity.acls, "--acls"),
            (fidelity.owner, "--owner"),
            (fidelity.group, "--group"),
            (request.checksum, "--checksum"),
            (request.replace, "--replace"),
            (request.delete, "--delete"),
            (request.dry_run, "--dry-run"),
        ];
        if let Some((_, option)) = wanted.into_iter().find(|(wanted, _)| *wanted) {
            return Err(SendError::Old(request.node.clone(), option));
        }
        if self.items.iter().any(|item| !item.is_file()) {
            let text = format!("node {}: {what_it_lacks}", request.node);
            self.events.event(Event::Note { text });
        }
        Ok(())
    }

    /// The request that delivers these items.
    fn delivery(&self, these: &[usize]) -> Delivery {
        let entry = |index: &usize| DescribedEntry(self.items[*index].entry.clone());
        let entries = these.iter().map(entry).collect();
        let owners = self.owners_of(these.iter().map(|index| &self.items[*index].entry));
        Delivery { into: self.request.into.clone(), rules: self.rules, entries, owners }
    }

    /// The names of the users and groups whose ids are in these entries.
    fn owners_of<'e>(&self, entries: impl IntoIterator<Item = &'e Entry>) -> Owners {
        self.owners.for_entries(entries, self.rules)
    }

    fn not_accepted(&self) -> SendError {
        let into = String::from_utf8_lossy(&self.request.into).into_owned();
        let (node, me) = (self.request.node.clone(), self.dialer.me().clone());
        SendError::NotAccepted { node, into, me }
    }

    fn target(&self) -> String {
        format!("{}:{}", self.request.node, String::from_utf8_lossy(&self.request.into))
    }

    /// The name of a path below the target, for messages.
    fn below(&self, parts: &[&[u8]]) -> String {
        let parts: Vec<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        let path = parts.join(&b'/');
        let shown = String::from_utf8_lossy(&path).into_owned();
        let shown = FilePath::new(path).map_or(shown, |path| path.to_string());
        format!("{}/{shown}", self.target().trim_end_matches('/'))
    }

    fn receiver_path(&self, index: usize) -> String {
        self.below(&[self.items[index].entry.path.as_bytes()])
    }

    /// Splits a target that names a single file into directory and name.
    async fn resolve_target(&mut self) -> Result<(), SendError> {
        let is_one =
            matches!(&self.items[..], [one] if !one.is_directory() && self.unread.is_empty());
        if self.request.as_name && !is_one {
            return Err(SendError::NotOne);
        }
        let is_directory = self.request.into.ends_with(b"/");
        while self.request.into.len() > 1 && self.request.into.ends_with(b"/") {
            self.request.into.pop();
        }
        if !is_one || is_directory {
            return Ok(());
        }
        if !self.request.as_name {
            let mut remote = receiver_survey::open(self).await?;
            let is_name = receiver_survey::is_name(self, &mut remote).await?;
            if remote.is_usable() {
                self.idle().replace(remote);
            }
            if !is_name {
                return Ok(());
            }
        }
        let Some(end) = self.request.into.iter().rposition(|letter| *letter == b'/') else {
            return Ok(());
        };
        let Ok(name) = FilePath::new(self.request.into[end + 1..].to_vec()) else { return Ok(()) };
        self.request.into.truncate(end.max(1));
        if let Some(file) = Arc::get_mut(&mut self.items).and_then(|items| items.first_mut()) {
            file.entry.path = name;
        }
        Ok(())
    }

    async fn run(self: Arc<Self>, relays: Vec<Name>) -> Result<Totals, SendError> {
        let interrupted = Totals { outcome: Outcome::Interrupted, ..Totals::default() };
        let survey = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(interrupted),
            survey = receiver_survey::survey(&self) => survey?,
        };
        self.report_declined(&survey);
        if self.request.dry_run {
            return Ok(self.run_dry(survey).await);
        }
        let (missing, _) = self.left();
        self.report_start(&survey);
        let began = Instant::now();
        let directories = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(interrupted),
            made = receiver_survey::make_directories(&self, &survey) => made?,
        };
        let several = missing >= WORTH_WAYS;
        let relays = if several { relays } else { Vec::new() };
        let why = self.clone().send_until_complete(relays, several, began).await?;
        let (linked, attributes, late) = tokio::select! {
            biased;
            () = self.stop.cancelled() => Default::default(),
            ended = self.end(&survey) => ended,
        };
        let present = survey.present;
        let end = CallResult { missing, present, directories, attributes, linked, late };
        Ok(self.totals(end, began.elapsed(), why))
    }

    /// Performs the last steps once all files have arrived. Returns the hard links, the number of changed attributes,
    /// and the failures.
    async fn end(&self, survey: &ReceiverState) -> (LinkReport, u64, Vec<(String, String)>) {
        if !self.queue().is_finished() || self.is_old() {
            return Default::default();
        }
        let mut linked = completion::link(self, true).await;
        let mut failed = std::mem::take(&mut linked.failed);
        failed.extend(self.remove(true).await.failed);
        let undressed = completion::set_metadata(self, &survey.undressed).await;
        let attributes = survey.attributes().saturating_sub(undressed.len() as u64);
        failed.extend(undressed);
        (linked, attributes, failed)
    }

    /// Reports the rules that the node does not follow.
    fn report_declined(&self, survey: &ReceiverState) {
        let Some((rules, why)) = &survey.declined else { return };
        let what = match (rules.has(Rules::OWNER), rules.has(Rules::GROUP)) {
            (true, true) => "owners and groups",
            (true, false) => "owners",
            (false, true) => "groups",
            (false, false) => return,
        };
        let text = format!("{what} of files are not kept in {}: {why}", self.target());
        self.events.event(Event::Note { text });
    }

    /// Removes surplus items, but nothing if any item could not be read or sent: it might be kept there under another
    /// name.
    async fn remove(&self, remove: bool) -> Removal {
        if !self.request.delete {
            return Removal::default();
        }
        let has_failed = !self.unread.is_empty() || !self.queue().failed().is_empty();
        if has_failed {
            let verb = if remove { "is" } else { "would be" };
            let text =
                format!("nothing {verb} removed there, because some files could not be sent");
            self.events.event(Event::Note { text });
            return Removal::default();
        }
        let removal = completion::clear(self, remove).await;
        if removal.count > 0 {
            let what = if remove { "removed" } else { "would be removed" };
            let more = removal.count.saturating_sub(removal.names.len() as u64);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let text = format!("{what}: {}{more}", removal.names.join(", "));
            self.events.event(Event::Note { text });
        }
        removal
    }

    /// Reports what would be sent, and what would fail.
    async fn run_dry(self: &Arc<Self>, survey: ReceiverState) -> Totals {
        let shared = self.clone();
        let unopened = spawn_blocking(move || shared.unopened()).await.unwrap_or_default();
        for (index, why) in unopened {
            self.queue().fail(index, why);
        }
        self.fill(survey.room, survey.directories.len() as u64);
        let (missing, _) = self.left();
        self.report_start(&survey);
        if self.request.list {
            self.report_files();
        }
        let mut late = match self.is_old() {
            true => Vec::new(),
            false => completion::link(self, false).await.failed,
        };
        late.extend(self.remove(false).await.failed);
        let end = CallResult { missing, present: survey.present, late, ..CallResult::default() };
        let totals = self.totals(end, Duration::ZERO, None);
        let outcome = match totals.failed_files {
            0 => Outcome::Planned,
            _ => Outcome::Partial,
        };
        let (files, bytes, sources, changes) = (0, 0, Vec::new(), Changes::default());
        let unfinished_files = 0;
        Totals {
            outcome,
            files,
            bytes,
            unfinished_files,
            sources,
            changes,
            kept_bytes: 0,
            ..totals
        }
    }

    /// Finds files to send that cannot be opened. Blocks.
    fn unopened(&self) -> Vec<(usize, String)> {
        let wanted: Vec<usize> = self.queue().unfinished_files().collect();
        let opened = wanted.into_iter().map(|index| (index, self.items[index].try_open()));
        opened.filter_map(|(index, opened)| Some((index, opened.err()?))).collect()
    }

    /// Marks files as failed for which there is no space.
    fn fill(&self, room: Option<(u64, u64)>, directories: u64) {
        let Some((mut bytes, inodes)) = room else { return };
        let mut inodes = inodes.saturating_sub(directories);
        let wanted: Vec<usize> = self.queue().unfinished_files().collect();
        for index in wanted {
            let size = self.items[index].size();
            let why = match (size > bytes, inodes == 0) {
                (true, _) => format!(
                    "the disk there is full: {} more are needed, {} free",
                    ByteSize::from_bytes(size),
                    ByteSize::from_bytes(bytes)
                ),
                (_, true) => "the file system there has no inodes left".to_owned(),
                _ => {
                    bytes -= size;
                    inodes -= 1;
                    continue;
                }
            };
            self.queue().fail(index, why);
        }
    }

    fn report_files(&self) {
        let wanted: Vec<usize> = self.queue().unfinished_files().collect();
        for some in wanted.chunks(1000) {
            let listed = |index: &usize| FileListed {
                path: self.items[*index].here.display().to_string(),
                bytes: self.items[*index].size(),
                missing_bytes: self.items[*index].size(),
            };
            let (source, files) = (self.dialer.me().clone(), some.iter().map(listed).collect());
            self.events.event(Event::Files { source, files });
        }
    }

    fn report_start(&self, survey: &ReceiverState) {
        let (missing, files) = self.left();
        let present = &survey.present;
        let links = {
            let queue = self.queue();
            queue.unfinished_files().filter(|index| self.items[*index].is_link()).count() as u64
        };
        let (directories, attributes) = (survey.directories.len() as u64, survey.attributes());
        let changes = Changes { links, directories, attributes };
        let files = files - links;

        let target = match &self.items[..] {
            [one] if one.has_another_name() => self.receiver_path(0),
            _ => self.target(),
        };
        self.events.event(Event::Started {
            job: self.job(&target),
            into: target,
            files,
            bytes: missing,
            present_files: present.files,
            present_bytes: present.bytes,
            changes,
        });
    }

    /// The job id; equal for equal calls. The receiver keeps the record of data that has arrived.
    fn job(&self, target: &str) -> JobId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.dialer.me().as_str().as_bytes());
        hasher.update(&[0]).update(target.as_bytes());
        for file in &self.request.files {
            let whole = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            hasher.update(&[0]).update(whole.as_os_str().as_bytes());
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        JobId::from(id)
    }

    /// Moves all data as [`Self::send_all`] does. If a connection broke, the node may have restarted and lost parts
    /// that it had confirmed but not written to its journal. So it is asked again which data it has, until no
    /// connection breaks meanwhile.
    ///
    /// # Errors
    /// [`SendError::Unreached`]: the node cannot be asked.
    async fn send_until_complete(
        self: &Arc<Self>,
        relays: Vec<Name>,
        several: bool,
        began: Instant,
    ) -> Result<Option<String>, SendError> {
        loop {
            let why = self.clone().send_all(relays.clone(), several, began).await;
            let is_sent = self.queue().is_finished() && !self.stop.is_cancelled();
            if !is_sent || !self.has_lost_connection.swap(false, Relaxed) {
                return Ok(why);
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(why),
                asked = receiver_survey::ask_again(self) => asked?,
            }
            if self.queue().is_finished() {
                return Ok(why);
            }
        }
    }

    /// Sends pieces over all paths until everything has arrived or no path is left; in the latter case returns why.
    async fn send_all(
        self: Arc<Self>,
        relays: Vec<Name>,
        several: bool,
        began: Instant,
    ) -> Option<String> {
        let mut ways = vec![SendPath::direct(several)];
        ways.extend(relays.into_iter().map(SendPath::through_relay));
        let ways: Vec<Arc<SendPath>> = ways.into_iter().map(Arc::new).collect();
        let mut workers = JoinSet::new();
        for way in &ways {
            for _ in 0..way.connections() {
                let (shared, way) = (self.clone(), way.clone());
                workers.spawn(async move { way.run(&shared).await });
            }
        }
        let mut ticks = interval(EVERY);
        let mut why = None;
        let mut board = ProgressState::default();
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
                    self.facts.look();
                    board.tell(&self, began);
                    path::stop_useless_paths(&ways, &self, began);
                }
            }
        }
        board.tell(&self, began);
        // A path with an outstanding piece would only send data that has arrived by now.
        workers.shutdown().await;
        why.filter(|_| !self.queue().is_finished())
    }

    fn totals(&self, end: CallResult, took: Duration, why: Option<String>) -> Totals {
        let CallResult { missing, present, directories, attributes, linked, late } = end;
        let queue = self.queue();
        let (left, unfinished) = (queue.left(), queue.unfinished() as u64);
        let failed = (queue.failed().len() + self.unread.len() + late.len()) as u64;
        let bytes = missing.saturating_sub(left + queue.given_up());
        let outcome = match (queue.is_finished(), failed) {
            _ if self.stop.is_cancelled() => Outcome::Interrupted,
            (true, 0) => Outcome::Complete,
            (true, _) => Outcome::Partial,
            _ => Outcome::Failed,
        };
        let me = self.dialer.me();
        let unsent = queue.failed().iter().map(|(index, why)| {
            (me.clone(), self.items[*index].here.display().to_string(), why.clone())
        });
        let unread = self.unread.iter().map(LocalError::parts);
        let unread = unread.map(|(file, why)| (me.clone(), file.display().to_string(), why));
        let late = late.into_iter().map(|(file, why)| (me.clone(), file, why));
        failures::report(&*self.events, unsent.chain(unread).chain(late));
        let missing_items = || queue.failed().keys().copied().chain(queue.unfinished_files());
        // The number of items of a kind that this call delivered.
        let came = |is: fn(&LocalItem) -> bool, present: u64| {
            let all = self.items.iter().filter(|item| is(item)).count() as u64;
            let missing = missing_items().filter(|index| is(&self.items[*index])).count() as u64;
            all.saturating_sub(present + missing)
        };
        let links = if self.is_old() { 0 } else { came(LocalItem::is_link, present.links) };
        Totals {
            outcome,
            files: came(LocalItem::is_file, present.files) + linked.made,
            changes: Changes { links, directories, attributes },
            special_bits: self.special_bits,
            bytes,
            duplicate_bytes: queue.duplicate_bytes(),
            present_files: present.files + linked.present,
            failed_files: failed,
            unfinished_files: unfinished,
            kept_bytes: if left > 0 { bytes } else { 0 },
            seconds: took.as_secs_f64(),
            rate_bps: Rate::over(ByteSize::from_bytes(bytes), took).as_bps(),
            sources: vec![SourceTotals {
                source: self.dialer.me().clone(),
                bytes,
                seconds: took.as_secs_f64(),
            }],
            why,
            ..Totals::default()
        }
    }
}

/// The intermediate results of a call.
#[derive(Debug, Default)]
struct CallResult {
    /// Bytes missing at the start.
    missing: u64,
    present: ExistingCounts,
    /// Directories created.
    directories: u64,
    /// Existing items whose attributes changed.
    attributes: u64,
    linked: LinkReport,
    /// Failures of the last steps.
    late: Vec<(String, String)>,
}

/// Items that existed before.
#[derive(Clone, Copy, Debug, Default)]
struct ExistingCounts {
    files: u64,
    links: u64,
    bytes: u64,
}

/// The state of the progress reports.
#[derive(Debug, Default)]
struct ProgressState {
    total: u64,
    before: u64,
    at: f64,
    rate: Option<f64>,
}

impl ProgressState {
    fn tell(&mut self, shared: &SendState, began: Instant) {
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
            source: shared.dialer.me().clone(),
            done_bytes: done,
            total_bytes: self.total,
            rate_bps: (rate * 8.0) as u64,
            left_seconds,
        };
        let files = shared.items.iter().filter(|item| !item.is_directory()).count() as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_with_the_extension_of_the_file_is_its_name() {
        let request = |file: &str, into: &str| SendRequest {
            files: vec![file.into()],
            node: "fra".parse().unwrap(),
            into: into.into(),
            as_name: false,
            exclude: Vec::new(),
            fidelity: Fidelity::default(),
            checksum: false,
            replace: false,
            delete: false,
            dry_run: false,
            list: false,
            via: Via::Relays,
            terms: Terms::default(),
            estimates: Estimates::default(),
            limit: None,
        };
        for (file, into, is_name) in [
            ("a.bin", "/box/b.bin", true),
            ("x/a.BIN", "/box/b.bin", true),
            ("a.tar.gz", "/box/b.gz", true),
            ("a.bin", "/box/b.txt", false),
            ("a.bin", "/box/b", false),
            ("VERSION", "/box/two", false),
            (".bin", "/box/.bin", false),
            ("a.", "/box/b.", false),
            ("results.tar", "/box/2024.06", false),
        ] {
            assert_eq!(request(file, into).looks_like_a_name(), is_name, "{file} {into}");
        }
        let mut two = request("a.bin", "/box/b.bin");
        two.files.push("b.bin".into());
        assert!(!two.looks_like_a_name());
    }
}
