//! Lists all sources concurrently.

use super::{
    super::{Event, EventSink, IdleRemotes, landing::Listing},
    GatherError, Request,
    listing_memory::{ListingMemory, MemoryShare},
    participants,
    pending_sources::{ListingActivity, PendingSources},
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use thalweg_files::remote::{ListingPart, Remote, RemoteError};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_part::gives_away;
use thalweg_wire::{
    mesh::Name,
    object::{Entry, Failure, Keep, Kind, ListRequest, Owners},
};
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at},
};

/// Relays that are tried if a source does not answer directly; each may take the timeout of a dial.
const DETOURS: usize = 3;

/// How long sources may be silent before the user is told.
const SILENT: Duration = Duration::from_secs(2);

/// The minimum interval of checks for late sources.
const SOONEST: Duration = Duration::from_millis(10);

/// The maximum number of sources named in a message.
const NAMED: usize = 5;

/// The paths requested from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    pub node: Name,
    /// Absolute paths there; may contain wildcards.
    pub paths: Vec<Vec<u8>>,
}

/// The form used on the command line.
impl fmt::Display for SourceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{}:{}", self.node, path.escape_ascii())?;
        }
        Ok(())
    }
}

/// The listings of the sources.
#[derive(Default)]
pub(super) struct Listings {
    pub listed: Vec<Listing>,
    /// Indices of sources without a listing.
    pub failed: Vec<u32>,
    /// Round trips measured on the way.
    pub rtts: BTreeMap<Name, Duration>,
    /// The connections on which the listings came.
    pub idle_remotes: IdleRemotes,
}

/// Lists all sources. Sources that cannot be asked, or that are not done in time, are reported. Until one source has
/// listed everything there is nothing to continue with, so all are waited for.
///
/// # Errors
///
/// [`GatherError::NoSource`].
pub(super) async fn all(
    request: &Request,
    dialer: &MemberDialer,
    events: &Arc<dyn EventSink>,
) -> Result<Listings, GatherError> {
    let (mut asked, mut waiting) = begin(request, dialer);
    let mut listings = Listings::default();
    let (mut advised, mut first) = (false, None::<Instant>);
    let interval = SILENT.min(request.listing_patience).max(SOONEST);
    let mut ticks = interval_at(Instant::now() + interval, interval);
    while !waiting.is_empty() {
        let (source, answer) = tokio::select! {
            Some(answer) = asked.join_next() => match answer {
                Ok(answer) => answer,
                Err(given_up) if given_up.is_cancelled() => continue,
                Err(_) => return Err(GatherError::Broken),
            },
            _ = ticks.tick() => {
                // The patience counts from the end of the first complete listing.
                if first.is_some_and(|first| first.elapsed() > request.listing_patience) {
                    for (source, late) in waiting.give_up(request.listing_patience) {
                        listings.lose(request, source, late.to_string(), events);
                    }
                }
                report_waiting(request, &waiting, events);
                continue;
            }
        };
        // It may have ended just when it was given up.
        if !waiting.end(source) {
            continue;
        }
        match answer {
            Ok(answer) => {
                first.get_or_insert_with(Instant::now);
                listings.take(answer, events);
            }
            Err(why) => {
                let why = why.told(dialer.me(), !std::mem::replace(&mut advised, true));
                listings.lose(request, source, why, events);
            }
        }
    }
    if listings.listed.is_empty() {
        return Err(GatherError::NoSource);
    }
    // In the order of the participants, not of the answers.
    listings.listed.sort_by_key(|listed| listed.source);
    Ok(listings)
}

/// The answers of all sources, with their indices.
type Answers = JoinSet<(u32, Result<SourceListing, ListingFailure>)>;

/// Starts a task for each source.
fn begin(request: &Request, dialer: &MemberDialer) -> (Answers, PendingSources) {
    let others = participants::between(request, dialer);
    let room = ListingMemory::new(request.sources.len());
    let (mut asked, mut waiting) = (JoinSet::new(), PendingSources::default());
    for (source, wanted) in (0..).zip(&request.sources) {
        let (dialer, wanted) = (dialer.clone(), wanted.clone());
        let wanted = ListingRequest {
            asked: wanted,
            exclude: request.exclude.clone(),
            keep: request
                .fidelity
                .requested_fields(gives_away())
                .and(Keep::READABLE.only_if(request.dry_run)),
        };
        let others = others.clone();
        let (heard, share) = (ListingActivity::now(), room.share());
        let noted = (Arc::clone(&heard), share);
        let question = async move { ask(&dialer, source, wanted, &others, noted).await };
        let task = asked.spawn(async move { (source, question.await) });
        waiting.begin(source, heard, task);
    }
    (asked, waiting)
}

fn report_waiting(request: &Request, waiting: &PendingSources, events: &Arc<dyn EventSink>) {
    let names = waiting.sources().filter_map(|at| request.sources.get(at as usize));
    let mut names: Vec<&str> = names.map(|source| source.node.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("waiting for the listings of {}{more}", names.join(", "));
    events.event(Event::Note { text });
}

/// Why a source has no listing.
enum ListingFailure {
    /// It offers nothing of the requested paths; this is one of them.
    NotOffered(String),
    Other(String),
}

impl From<String> for ListingFailure {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl ListingFailure {
    /// The message; with `advice` it includes settings that would offer the path.
    fn told(self, me: &Name, advice: bool) -> String {
        match self {
            Self::NotOffered(path) if advice => how_to_offer(&path, me),
            Self::NotOffered(path) => format!("it does not offer `{path}` to this host"),
            Self::Other(why) => why,
        }
    }
}

impl Listings {
    /// Reports a source that is left out.
    fn lose(&mut self, request: &Request, source: u32, why: String, events: &Arc<dyn EventSink>) {
        let name = request.sources[source as usize].node.clone();
        events.event(Event::SourceFailed { source: name, why });
        self.failed.push(source);
    }

    fn take(&mut self, answer: SourceListing, events: &Arc<dyn EventSink>) {
        let SourceListing { listed, remote, rtt, took, is_older } = answer;
        if is_older {
            let text = format!(
                "{} runs an older version, which does not send extended attributes, access \
                 control lists, holes of files, names of owners, and times after the year 2262",
                listed.node
            );
            events.event(Event::Note { text });
        }
        if remote.stream().route().is_direct() {
            self.idle_remotes.keep(listed.source, remote);
        }
        let sizes = listed.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::File { snapshot } => Some(snapshot.size),
            _ => None,
        });
        let (files, bytes) =
            sizes.fold((0, 0), |(n, sum): (u64, u64), size| (n + 1, sum.saturating_add(size)));
        let (source, seconds) = (listed.node.clone(), took.as_secs_f64());
        events.event(Event::Listed { source, files, bytes, seconds });
        if let Some(rtt) = rtt {
            self.rtts.insert(listed.node.clone(), rtt);
        }
        self.listed.push(listed);
    }
}

/// What is requested from a source.
struct ListingRequest {
    asked: SourceRequest,
    exclude: Vec<Vec<u8>>,
    keep: Keep,
}

struct SourceListing {
    listed: Listing,
    remote: Remote,
    rtt: Option<Duration>,
    took: Duration,
    /// The node only supports the oldest listing request.
    is_older: bool,
}

async fn ask(
    dialer: &MemberDialer,
    source: u32,
    ListingRequest { asked, exclude, keep }: ListingRequest,
    others: &[Name],
    (heard, share): (Arc<ListingActivity>, MemoryShare),
) -> Result<SourceListing, ListingFailure> {
    let began = Instant::now();
    let mut remote = open(dialer, &asked.node, others).await?;
    heard.record();
    let mut said = PartialListing::begin(heard, share);
    let request = ListRequest { roots: asked.paths.clone(), exclude };
    let take = |part, bytes| said.take(part, bytes);
    let mut ended = remote.describe_while(request.clone(), keep, take).await;
    // An older node closes the channel at a request that it does not know.
    let is_older = matches!(ended, Err(RemoteError::Lost { .. })) && !said.has_any;
    if is_older {
        remote = open(dialer, &asked.node, others).await?;
        let take = |entries, bytes| said.take(ListingPart::Entries(entries), bytes);
        ended = remote.list_while(request, take).await;
    }
    let failed = ended.map_err(|e| e.to_string())?;
    let PartialListing { entries, owners, share, .. } = said;
    share.keep();
    let rtt = remote.stream().round_trip();
    let rtt = rtt.filter(|rtt| remote.stream().route().is_direct() && !rtt.is_zero());
    if let Some(path) = refused_all(&entries, &failed) {
        return Err(ListingFailure::NotOffered(path));
    }
    let listed = Listing { source, node: asked.node, roots: asked.paths, entries, failed, owners };
    Ok(SourceListing { listed, remote, rtt, took: began.elapsed(), is_older })
}

/// The listing of a source so far.
struct PartialListing {
    heard: Arc<ListingActivity>,
    share: MemoryShare,
    entries: Vec<Entry>,
    owners: Owners,
    has_any: bool,
}

impl PartialListing {
    fn begin(heard: Arc<ListingActivity>, share: MemoryShare) -> Self {
        Self { heard, share, entries: Vec::new(), owners: Owners::default(), has_any: false }
    }

    fn take(&mut self, part: ListingPart, bytes: u64) -> Result<(), String> {
        self.has_any = true;
        self.share.take(bytes)?;
        match part {
            ListingPart::Entries(more) => {
                if !more.is_empty() {
                    self.heard.record();
                }
                self.entries.extend(more);
            }
            ListingPart::Owners(more) => {
                self.owners.users.extend(more.users);
                self.owners.groups.extend(more.groups);
            }
        }
        Ok(())
    }
}

/// Connects directly, or through another host if that fails.
async fn open(dialer: &MemberDialer, node: &Name, others: &[Name]) -> Result<Remote, String> {
    let why = match Remote::open(dialer, node, &[]).await {
        Ok(remote) => return Ok(remote),
        Err(why) => why,
    };
    for other in others.iter().filter(|other| *other != node).take(DETOURS) {
        if let Ok(remote) = Remote::open(dialer, node, std::slice::from_ref(other)).await {
            return Ok(remote);
        }
    }
    Err(why.to_string())
}

/// Returns the first refused path if the source offers none of the requested ones.
fn refused_all(entries: &[Entry], failed: &[(Vec<u8>, Failure)]) -> Option<String> {
    let is_refused = |failed: &&(Vec<u8>, Failure)| matches!(failed.1, Failure::NotOffered(_));
    let first = failed.iter().find(is_refused)?;
    let all = entries.is_empty() && failed.iter().all(|failed| is_refused(&failed));
    all.then(|| String::from_utf8_lossy(&first.0).into_owned())
}

/// Suggests settings for a node that offers nothing: for this member only, and no more than was requested.
fn how_to_offer(path: &str, me: &Name) -> String {
    // The directory before the first wildcard.
    let fixed = path.split(['*', '?', '[']).next().unwrap_or_default();
    let directory = match fixed.len() == path.len() {
        true => fixed.trim_end_matches('/'),
        false => fixed.rsplit_once('/').map_or("", |(directory, _)| directory),
    };
    let directory = if directory.is_empty() { "/" } else { directory };
    format!(
        "it does not offer `{path}` to this host; to offer it, add this to that node's settings \
         (see `thalweg config`)\n  [files]\n  offer = [{{ path = {directory:?}, to = [\"{me}\"] \
         }}]\nand restart `thalweg node` there (for a single file, offer its parent directory)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_would_offer_a_path_are_suggested_once() {
        let asked =
            SourceRequest { node: "fra".parse().unwrap(), paths: vec![b"/data/x*/y".to_vec()] };
        assert_eq!(asked.to_string(), "fra:/data/x*/y");
        let no = |path: &str| (path.into(), Failure::NotOffered(path.into()));
        let me = "lap".parse().unwrap();
        let path = refused_all(&[], &[no("/data/x*/y")]).unwrap();
        let why = ListingFailure::NotOffered(path.clone()).told(&me, true);
        assert!(why.contains("offer = [{ path = \"/data\", to = [\"lap\"] }]"), "{why}");
        assert!(
            !ListingFailure::NotOffered(path).told(&me, false).contains("[files]"),
            "once is enough"
        );
        assert!(how_to_offer("/srv/a/", &me).contains("path = \"/srv/a\""));
        assert!(how_to_offer("/*", &me).contains("path = \"/\""));
        let gone = (b"/x".to_vec(), Failure::System("no such file".into()));
        assert_eq!(refused_all(&[], &[no("/a"), gone]), None, "the report names each");
    }
}
