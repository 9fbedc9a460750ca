//! Repairs a file with wrong bytes: finds the relay that delivered them, and replaces them.
//!
//! A digest of the whole file shows that something is wrong, but not where. The bytes that came through relays or
//! mirrors are therefore fetched again by a witness, the direct path if it works, and compared. Where they differ, the
//! witness's bytes replace them, and the whole file is verified again. Each byte is fetched again at most once.

use super::{
    AttemptError, GetError, PathError, Stop,
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

/// The name for bytes of an earlier session that came over a path that is not a candidate now.
const EARLIER: &str = "a path of an earlier session";

/// Doubtful bytes, and the path that delivered them.
struct Suspect {
    name: String,
    /// Whether it is a relay or a mirror that can be named.
    path: bool,
    ranges: Ranges,
}

/// The result of comparing one suspect's bytes.
struct Comparison {
    name: String,
    path: bool,
    /// The number of bytes that differ.
    bytes: u64,
    first: u64,
}

/// Repairs `part`, which is complete and does not match its digests, as `wrong` says.
///
/// # Errors
/// [`GetError::Mismatch`] if it still does not match, in which case nothing is kept; `wrong` if no bytes are doubtful;
/// or an interruption, in which case the bytes are kept.
pub(super) async fn repair_file(
    run: &mut Run<'_>,
    part: Part,
    resource: &Arc<Resource>,
    wrong: PartError,
    stop: &mut Stop,
) -> Result<Part, AttemptError> {
    let suspects = suspects(run, &part, resource);
    if suspects.is_empty() {
        return Err(run.discard(part, wrong.into()).await);
    }
    let mut repair =
        Repair { run, resource, part: Some(part), found: Vec::new(), fetched: 0, unseen: 0 };
    let done = tokio::select! {
        done = repair.work(suspects) => done,
        () = stop.requested() => Err(AttemptError::Failed(GetError::Interrupted)),
    };
    let Repair { run, part, found, fetched, unseen, .. } = repair;
    // The part is only absent while the disk works on it, and lost if that work failed.
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

/// The paths that may have delivered wrong bytes, most bytes first. Only bytes that came from the object's own server
/// without relays, or over TLS, are beyond doubt.
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

fn tried(found: &[Comparison], fetched: u64, unseen: u64) -> String {
    let n = ByteSize::from_bytes(fetched);
    let not_all = ByteSize::from_bytes(unseen);
    let Some(list) = found
        .iter()
        .map(|f| format!("{} ({} bytes)", f.name, f.bytes))
        .reduce(|a, b| format!("{a}, {b}"))
    else {
        if unseen > 0 {
            return format!(
                "{not_all} received through relays or from mirrors could not be fetched over another path for \
                 comparison, so the source of the wrong bytes is unknown: try again"
            );
        }
        return format!(
            "{n} received through relays or from mirrors were fetched again and are identical, so the file on the \
             server or the given digest is wrong"
        );
    };
    format!(
        "wrong bytes from {list} were replaced, {n} were fetched again, and the file still does not match"
    )
}

fn lost() -> AttemptError {
    AttemptError::Failed(GetError::System(std::io::Error::other("the file that it held was lost")))
}

struct Repair<'a, 'r> {
    run: &'a mut Run<'r>,
    resource: &'a Arc<Resource>,
    part: Option<Part>,
    found: Vec<Comparison>,
    fetched: u64,
    /// Bytes that no other path could fetch for comparison.
    unseen: u64,
}

impl Repair<'_, '_> {
    /// Compares the suspects one by one. Returns whether the part finally matches its digests.
    async fn work(&mut self, suspects: Vec<Suspect>) -> Result<bool, AttemptError> {
        for suspect in suspects {
            let mut found =
                Comparison { name: suspect.name.clone(), path: suspect.path, bytes: 0, first: 0 };
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

    async fn passes(&mut self) -> Result<bool, AttemptError> {
        let part = self.part.take().ok_or_else(lost)?;
        let (verified, part) = verify(part, self.resource.length).await?;
        self.part = Some(part);
        Ok(verified.is_ok())
    }

    /// Fetches the suspect's bytes from one witness after the other until all are compared.
    async fn compare(
        &mut self,
        suspect: &Suspect,
        found: &mut Comparison,
    ) -> Result<(), AttemptError> {
        let mut left = suspect.ranges.clone();
        for witness in self.witnesses(suspect) {
            match self.ask(&witness, &mut left, found).await {
                Ok(()) => return Ok(()),
                Err(WitnessError::Attempt(halt)) => return Err(halt),
                Err(WitnessError::Path(error)) => {
                    let (path, why) = (witness.name.clone(), error.to_string());
                    self.run.sink.event(&thalweg_base::job::Event::PathFailed { path, why });
                }
            }
        }
        self.unseen += left.total();
        Ok(())
    }

    /// The paths that can serve as witnesses: first the paths without relays to the object's own server, then the other
    /// relays, which at least are not the same one.
    fn witnesses(&self, suspect: &Suspect) -> Vec<Candidate> {
        let known = |name: &str| self.found.iter().any(|f| f.name == name);
        let mut others: Vec<Candidate> = self.run.request.paths.clone();
        others.retain(|c| c.mirror.is_none() && c.name != suspect.name && !known(&c.name));
        others.sort_by_key(|c| !c.route.is_direct());
        others
    }

    /// Fetches `left` from `witness`, compares the bytes, and removes the compared ranges from `left`.
    async fn ask(
        &mut self,
        witness: &Candidate,
        left: &mut Ranges,
        found: &mut Comparison,
    ) -> Result<(), WitnessError> {
        let path = PathId(0);
        let ranges: Vec<Range<u64>> = left.iter().cloned().collect();
        let mut paths = Paths::start(self.run.shared(), std::slice::from_ref(witness), Start::Wait);
        paths.fetch(path, &ranges, self.resource);
        let patience = self.run.request.patience;
        while !left.is_empty() {
            let report = timeout(patience, paths.next()).await;
            let (message, _) =
                report.map_err(|_| WitnessError::Path(PathError::Silent(patience)))?;
            match message.report {
                Report::Data(at, data) | Report::Verified(at, data) => {
                    let end = at + data.len() as u64;
                    self.charge(witness, data.len() as u64).await;
                    self.take(witness, at, data, found).await.map_err(WitnessError::Attempt)?;
                    left.remove(&(at..end));
                }
                Report::Failed(error) => return Err(WitnessError::Path(error)),
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

    /// Compares bytes with those of the part, and replaces bytes that differ.
    async fn take(
        &mut self,
        witness: &Candidate,
        at: u64,
        data: Bytes,
        found: &mut Comparison,
    ) -> Result<(), AttemptError> {
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

/// Why a witness did not deliver all bytes.
enum WitnessError {
    Path(PathError),
    Attempt(AttemptError),
}
