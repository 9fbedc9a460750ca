//! All sources are asked at once what they have.

use super::{
    super::{Event, EventSink, Greeted, Reach, Remote, landing::Listed},
    GatherError, Request, participants,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_wire::{
    mesh::Name,
    object::{Entry, Failure, Kind, ListRequest},
};
use tokio::task::JoinSet;

/// The most entries of a source: some 2 GB of memory.
const MOST_ENTRIES: usize = 10_000_000;

/// Relays that are tried where a source does not answer directly; each may take a dial's deadline.
const DETOURS: usize = 3;

/// What a source is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The source.
    pub node: Name,
    /// Absolute paths there, with wildcards.
    pub paths: Vec<Vec<u8>>,
}

/// As the command line has it.
impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.paths.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{}:{}", self.node, path.escape_ascii())?;
        }
        Ok(())
    }
}

/// What the sources said.
#[derive(Default)]
pub(super) struct Listings {
    pub listed: Vec<Listed>,
    /// Indices of those that said nothing.
    pub failed: Vec<u32>,
    /// Round trips that were seen on the way.
    pub rtts: BTreeMap<Name, Duration>,
    /// The connections that they came by.
    pub greeted: Greeted,
}

/// Asks all; whoever cannot be asked is told.
///
/// # Errors
///
/// [`GatherError::NoSource`].
pub(super) async fn all(
    request: &Request,
    reach: &Reach,
    events: &Arc<dyn EventSink>,
) -> Result<Listings, GatherError> {
    let others = participants::between(request, reach);
    let mut asked = JoinSet::new();
    for (source, wanted) in (0..).zip(&request.sources) {
        let (reach, wanted) = (reach.clone(), wanted.clone());
        let (exclude, others) = (request.exclude.clone(), others.clone());
        let question = async move { ask(&reach, source, wanted, exclude, &others).await };
        asked.spawn(async move { (source, question.await) });
    }
    let mut listings = Listings::default();
    let mut reasons = Vec::new();
    while let Some(answer) = asked.join_next().await {
        let (source, answer) = answer.map_err(|_| GatherError::Broken)?;
        match answer {
            Ok(answer) => listings.take(answer, events),
            Err(why) => {
                let name = request.sources[source as usize].node.clone();
                events.event(Event::SourceFailed { source: name, why: why.clone() });
                listings.failed.push(source);
                reasons.push(why);
            }
        }
    }
    if listings.listed.is_empty() {
        return Err(GatherError::NoSource(reasons.join("; ")));
    }
    // By their numbers, not by who was quickest.
    listings.listed.sort_by_key(|listed| listed.source);
    Ok(listings)
}

impl Listings {
    fn take(&mut self, answer: Answer, events: &Arc<dyn EventSink>) {
        let Answer { listed, remote, rtt, took } = answer;
        if remote.stream().route().is_direct() {
            self.greeted.keep(listed.source, remote);
        }
        let sizes = listed.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::File { snapshot } => Some(snapshot.size),
            _ => None,
        });
        let (files, bytes) = sizes.fold((0, 0), |(n, sum), size| (n + 1, sum + size));
        let (source, seconds) = (listed.node.clone(), took.as_secs_f64());
        events.event(Event::Listed { source, files, bytes, seconds });
        if let Some(rtt) = rtt {
            self.rtts.insert(listed.node.clone(), rtt);
        }
        self.listed.push(listed);
    }
}

struct Answer {
    listed: Listed,
    remote: Remote,
    rtt: Option<Duration>,
    took: Duration,
}

async fn ask(
    reach: &Reach,
    source: u32,
    asked: Asked,
    exclude: Vec<Vec<u8>>,
    others: &[Name],
) -> Result<Answer, String> {
    let began = Instant::now();
    let mut remote = open(reach, &asked.node, others).await?;
    let mut entries: Vec<Entry> = Vec::new();
    let request = ListRequest { roots: asked.paths.clone(), exclude };
    let part = |more| {
        if entries.len() <= MOST_ENTRIES {
            entries.extend(more);
        }
    };
    let failed = remote.list(request, part).await.map_err(|e| e.to_string())?;
    if entries.len() > MOST_ENTRIES {
        let node = &asked.node;
        return Err(format!(
            "node {node} lists more than {MOST_ENTRIES} files: collect them in several calls"
        ));
    }
    let rtt = remote.stream().tcp_info().ok().map(|info| info.rtt);
    let rtt = rtt.filter(|rtt| remote.stream().route().is_direct() && !rtt.is_zero());
    let refused = refused_all(&asked, &entries, &failed);
    if let Some(why) = refused {
        return Err(why);
    }
    let listed = Listed { source, node: asked.node, roots: asked.paths, entries, failed };
    Ok(Answer { listed, remote, rtt, took: began.elapsed() })
}

/// Directly; where that fails, through one of the others.
async fn open(reach: &Reach, node: &Name, others: &[Name]) -> Result<Remote, String> {
    let why = match reach.open(node, &[]).await {
        Ok(remote) => return Ok(remote),
        Err(why) => why,
    };
    for other in others.iter().filter(|other| *other != node).take(DETOURS) {
        if let Ok(remote) = reach.open(node, std::slice::from_ref(other)).await {
            return Ok(remote);
        }
    }
    Err(why.to_string())
}

/// Why nothing at all is offered there, with the lines that would offer it.
fn refused_all(asked: &Asked, entries: &[Entry], failed: &[(Vec<u8>, Failure)]) -> Option<String> {
    let is_refused = |failed: &&(Vec<u8>, Failure)| matches!(failed.1, Failure::NotOffered(_));
    let first = failed.iter().find(is_refused)?;
    let all = entries.is_empty() && failed.iter().all(|failed| is_refused(&failed));
    let path = String::from_utf8_lossy(&first.0);
    all.then(|| format!("node {}: {}", asked.node, how_to_offer(&path)))
}

/// What to write into the settings of a node that offers nothing.
fn how_to_offer(path: &str) -> String {
    // The directory before the first wildcard.
    let fixed = path.split(['*', '?', '[']).next().unwrap_or_default();
    let directory = match fixed.len() == path.len() {
        true => fixed.trim_end_matches('/'),
        false => fixed.rsplit_once('/').map_or("", |(directory, _)| directory),
    };
    let directory = if directory.is_empty() { "/" } else { directory };
    format!(
        "it does not offer `{path}` to this host; its settings (`thalweg config`) would, with\n  \
         [files]\n  offer = [{{ path = {directory:?}, to = [\"*\"] }}]\nand `thalweg node` started anew"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_offers_nothing_is_told_the_lines_that_would() {
        let asked = Asked { node: "fra".parse().unwrap(), paths: vec![b"/data/x*/y".to_vec()] };
        assert_eq!(asked.to_string(), "fra:/data/x*/y");
        let no = |path: &str| (path.into(), Failure::NotOffered(path.into()));
        let why = refused_all(&asked, &[], &[no("/data/x*/y")]).unwrap();
        assert!(why.contains("offer = [{ path = \"/data\", to = [\"*\"] }]"), "{why}");
        assert!(how_to_offer("/srv/a/").contains("path = \"/srv/a\""));
        assert!(how_to_offer("/*").contains("path = \"/\""));
        let gone = (b"/x".to_vec(), Failure::System("no such file".into()));
        assert_eq!(refused_all(&asked, &[], &[no("/a"), gone]), None, "the report names each");
    }
}
