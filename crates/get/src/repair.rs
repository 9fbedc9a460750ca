//! Wrong bytes: which relay brought them, and the right ones in their place.
//!
//! Digests of the whole say that something is wrong, not what. What relays and mirrors
//! brought is therefore fetched again by a witness, the direct path if it works, and
//! compared. Where it differs the witness's bytes replace it, and the whole is verified
//! again. Each byte is fetched again at most once.

use super::{
    GetError, Halt, PathError, Stop,
    ending::verify,
    paths::Paths,
    resource::Resource,
    run::{Run, blocking},
    worker::{Report, Start},
};
use bytes::Bytes;
use std::{ops::Range, sync::Arc, time::Duration};
use thalweg_base::budget::{Purpose, Scope};
use thalweg_part::{ADOPTED, Part, PartError, Ranges};
use thalweg_paths::candidates::Candidate;
use thalweg_units::{ByteSize, PathId};
use tokio::time::{sleep, timeout};

/// What bytes are called that came in an earlier session by a path that is no candidate now.
const EARLIER: &str = "a path of an earlier session";

/// Bytes to be doubted, by who brought them.
struct Suspect {
    name: String,
    /// It is a relay or a mirror that can be named.
    path: bool,
    ranges: Ranges,
}

/// What one suspect's bytes were found to be.
struct Found {
    name: String,
    path: bool,
    /// How many bytes differ, and where the first.
    bytes: u64,
    first: u64,
}

/// Mends `part`, which is complete and fails its digests as `wrong` says.
///
/// # Errors
/// [`GetError::Mismatch`] if it fails still, after which nothing is kept; `wrong` if there
/// is nothing to doubt; or an interruption, after which what is there is kept.
pub(super) async fn mend(
    run: &mut Run<'_>,
    part: Part,
    resource: &Arc<Resource>,
    wrong: PartError,
    stop: &mut Stop,
) -> Result<Part, Halt> {
    let suspects = suspects(run, &part, resource);
    if suspects.is_empty() {
        return Err(run.discard(part, wrong.into()).await);
    }
    let mut repair =
        Repair { run, resource, part: Some(part), found: Vec::new(), fetched: 0, unseen: 0 };
    let done = tokio::select! {
        done = repair.work(suspects) => done,
        () = stop.requested() => Err(Halt::Failed(GetError::Interrupted)),
    };
    let Repair { run, part, found, fetched, unseen, .. } = repair;
    // It is only away while the disk works on it, and lost if that failed.
    let Some(part) = part else { return Err(done.err().unwrap_or_else(lost)) };
    match done {
        Ok(true) => {
            for f in found.into_iter().filter(|f| f.path) {
                let why = format!("{} bytes differ, from byte {} on", f.bytes, f.first);
                run.note_corrupt(&f.name, f.bytes, why);
            }
            Ok(part)
        }
        Ok(false) => {
            let tried = tried(&found, fetched, unseen);
            Err(run.discard(part, GetError::Mismatch { wrong: Box::new(wrong), tried }).await)
        }
        Err(halt) => {
            run.close(part).await?;
            Err(halt)
        }
    }
}

/// Who may have brought wrong bytes, most bytes first. Only what came from the object's own
/// server without relays, or through TLS, is beyond doubt.
fn suspects(run: &Run<'_>, part: &Part, resource: &Resource) -> Vec<Suspect> {
    let sealed = resource.url.is_https();
    let doubtful = |c: &Candidate| c.mirror.is_some() || !(c.route.is_direct() || sealed);
    let mut rest = Ranges::default();
    rest.insert(0..resource.length);
    let mut suspects = Vec::new();
    for candidate in &run.request.paths {
        let ranges = part.delivered_by(&candidate.name);
        ranges.iter().for_each(|r| rest.remove(r));
        if doubtful(candidate) {
            suspects.push(Suspect { name: candidate.name.clone(), path: true, ranges });
        }
    }
    let adopted = part.delivered_by(ADOPTED);
    adopted.iter().for_each(|r| rest.remove(r));
    suspects.push(Suspect { name: ADOPTED.to_owned(), path: false, ranges: adopted });
    suspects.push(Suspect { name: EARLIER.to_owned(), path: false, ranges: rest });
    suspects.retain(|s| !s.ranges.is_empty());
    suspects.sort_by_key(|s| std::cmp::Reverse(s.ranges.total()));
    suspects
}

fn tried(found: &[Found], fetched: u64, unseen: u64) -> String {
    let n = ByteSize::from_bytes(fetched);
    let not_all = ByteSize::from_bytes(unseen);
    let Some(list) = found
        .iter()
        .map(|f| format!("{} ({} bytes)", f.name, f.bytes))
        .reduce(|a, b| format!("{a}, {b}"))
    else {
        if unseen > 0 {
            return format!(
                "{not_all} that came by relays or from mirrors could not be fetched by another path to be compared, so who is wrong is not known: try again"
            );
        }
        return format!(
            "{n} that came by relays or from mirrors were fetched again and are the same, so it is the file on the server, or the digest that was given, that is wrong"
        );
    };
    format!("bytes of {list} were wrong and replaced, {n} were fetched again, and still it differs")
}

fn lost() -> Halt {
    Halt::Failed(GetError::System(std::io::Error::other("the file was lost to a dead thread")))
}

struct Repair<'a, 'r> {
    run: &'a mut Run<'r>,
    resource: &'a Arc<Resource>,
    part: Option<Part>,
    found: Vec<Found>,
    fetched: u64,
    /// Bytes that nobody else could be asked for.
    unseen: u64,
}

impl Repair<'_, '_> {
    /// Whether the part passes in the end.
    async fn work(&mut self, suspects: Vec<Suspect>) -> Result<bool, Halt> {
        for suspect in suspects {
            let mut found =
                Found { name: suspect.name.clone(), path: suspect.path, bytes: 0, first: 0 };
            self.compare(&suspect, &mut found).await?;
            if found.bytes == 0 {
                continue;
            }
            self.found.push(found);
            if self.passes().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn passes(&mut self) -> Result<bool, Halt> {
        let part = self.part.take().ok_or_else(lost)?;
        let (verified, part) = verify(part, self.resource.length).await?;
        self.part = Some(part);
        Ok(verified.is_ok())
    }

    /// Fetches the suspect's bytes by one witness after the other until all are compared.
    async fn compare(&mut self, suspect: &Suspect, found: &mut Found) -> Result<(), Halt> {
        let mut left = suspect.ranges.clone();
        for witness in self.witnesses(suspect) {
            match self.ask(&witness, &mut left, found).await {
                Ok(()) => return Ok(()),
                Err(Ask::Halt(halt)) => return Err(halt),
                Err(Ask::Path(error)) => {
                    let (path, why) = (witness.name.clone(), error.to_string());
                    self.run.sink.event(&thalweg_base::job::Event::PathFailed { path, why });
                }
            }
        }
        self.unseen += left.total();
        Ok(())
    }

    /// Who may say what is right: paths without relays to the object's own server; after them
    /// the other relays, which at least are not the same one.
    fn witnesses(&self, suspect: &Suspect) -> Vec<Candidate> {
        let known = |name: &str| self.found.iter().any(|f| f.name == name);
        let mut others: Vec<Candidate> = self.run.request.paths.clone();
        others.retain(|c| c.mirror.is_none() && c.name != suspect.name && !known(&c.name));
        others.sort_by_key(|c| !c.route.is_direct());
        others
    }

    /// Fetches `left` by `witness`, compares, and takes out of `left` what was compared.
    async fn ask(
        &mut self,
        witness: &Candidate,
        left: &mut Ranges,
        found: &mut Found,
    ) -> Result<(), Ask> {
        let path = PathId(0);
        let ranges: Vec<Range<u64>> = left.iter().cloned().collect();
        let mut paths = Paths::start(self.run.shared(), std::slice::from_ref(witness), Start::Wait);
        paths.fetch(path, &ranges, self.resource);
        let patience = self.run.request.patience;
        while !left.is_empty() {
            let report = timeout(patience, paths.next()).await;
            let (message, _) = report.map_err(|_| Ask::Path(PathError::Silent(patience)))?;
            match message.report {
                Report::Data(at, data) | Report::Verified(at, data) => {
                    let end = at + data.len() as u64;
                    self.charge(witness, data.len() as u64).await;
                    self.take(witness, at, data, found).await.map_err(Ask::Halt)?;
                    left.remove(&(at..end));
                }
                Report::Failed(error) => return Err(Ask::Path(error)),
                _ => {}
            }
        }
        paths.release();
        Ok(())
    }

    async fn charge(&mut self, witness: &Candidate, n: u64) {
        self.fetched += n;
        self.run.fetched += n;
        let interface = witness.route.interface();
        let scope = Scope { interface, purpose: Some(Purpose::Duplicate), ..Scope::ALL };
        self.run.request.budget.charge(scope, ByteSize::from_bytes(n));
        let wait = self.run.request.limit.as_ref().map(|limit| limit.charge(n));
        if let Some(wait) = wait.filter(|w| *w > Duration::ZERO) {
            sleep(wait).await;
        }
    }

    /// Compares bytes with what is there, and replaces what differs.
    async fn take(
        &mut self,
        witness: &Candidate,
        at: u64,
        data: Bytes,
        found: &mut Found,
    ) -> Result<(), Halt> {
        let mut part = self.part.take().ok_or_else(lost)?;
        let from = witness.name.clone();
        let compared = blocking(move || {
            let there = part.read(at..at + data.len() as u64)?;
            let differs = |(a, b): (&u8, &u8)| a != b;
            let first = there.iter().zip(data.iter()).position(&differs);
            let bytes = there.iter().zip(data.iter()).filter(|pair| differs(*pair)).count() as u64;
            if bytes > 0 {
                part.replace(&from, at, &data)?;
            }
            Ok((part, first, bytes))
        });
        let (part, first, bytes) = compared.await?;
        self.part = Some(part);
        if let Some(first) = first {
            let first = at + first as u64;
            found.first = if found.bytes == 0 { first } else { found.first.min(first) };
            found.bytes += bytes;
        }
        Ok(())
    }
}

/// Why a witness did not say all.
enum Ask {
    Path(PathError),
    Halt(Halt),
}
