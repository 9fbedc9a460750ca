//! One path to the receiver: direct, or through a relay.

use super::{
    super::{Event, WatchedPath},
    SendState,
    local::LocalItem,
    queue::SendPiece,
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_wire::{mesh::Name, object::Failure};
use tokio::{task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

/// The minimum and maximum size of a piece, bytes. A piece holds about a second of the path's rate.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 4 << 20;

/// The number of connections of a path: a lost packet delays only one of them. Together with [`LARGEST`] it bounds the
/// memory of a `send`.
const CONNECTIONS: u32 = 2;

/// The maximum number of pieces of a connection that are under way or being stored: while the node writes one, the next
/// arrives.
const IN_FLIGHT: usize = 2;

/// The number of consecutive attempts on a path that broke.
const TRIES: u32 = 4;

/// The pause before the first of them; it doubles before each further one.
const PAUSE: Duration = Duration::from_millis(500);

/// A piece is also sent over another path if it is out for longer than this and nothing else waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// When the usefulness of paths is judged: after slow start.
const TRIAL: Duration = Duration::from_secs(4);

/// A relayed path with less than this share of the total costs the relay more than it is worth.
const SHARE: f64 = 0.1;

/// A path, and the bytes it has delivered.
#[derive(Debug)]
pub(super) struct SendPath {
    via: Vec<Name>,
    connections: u32,
    sent: AtomicU64,
    left: CancellationToken,
}

impl SendPath {
    /// Creates the direct path; with `several` connections if there is much to send.
    pub fn direct(several: bool) -> Self {
        let connections = if several { CONNECTIONS } else { 1 };
        Self { via: Vec::new(), connections, sent: AtomicU64::new(0), left: Default::default() }
    }

    /// Creates the path through a relay.
    pub fn through_relay(relay: Name) -> Self {
        let via = vec![relay];
        Self { via, connections: CONNECTIONS, sent: AtomicU64::new(0), left: Default::default() }
    }

    /// The number of connections on this path.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Sends until nothing waits or the path fails for good; in that case returns the reason.
    pub async fn run(&self, shared: &Arc<SendState>) -> Result<(), String> {
        tokio::select! {
            biased;
            () = self.left.cancelled() => Ok(()),
            ended = self.sessions(shared) => ended,
        }
    }

    async fn sessions(&self, shared: &Arc<SendState>) -> Result<(), String> {
        let (mut tries, mut pause) = (TRIES, PAUSE);
        loop {
            let before = self.sent.load(Relaxed);
            let Err(why) = self.session(shared).await else { return Ok(()) };
            shared.has_lost_connection.store(true, Relaxed);
            if self.sent.load(Relaxed) > before {
                (tries, pause) = (TRIES, PAUSE);
            }
            tries -= 1;
            if tries == 0 {
                let (source, via) = (shared.dialer.me().clone(), self.via.clone());
                let told = Event::WayClosed { source, via, why: why.clone(), failed: true };
                shared.events.event(told);
                return Err(why);
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Sends over one connection. Pieces that do not arrive wait again.
    async fn session(&self, shared: &Arc<SendState>) -> Result<(), String> {
        let idle = if self.via.is_empty() { shared.idle().take() } else { None };
        let remote = match idle {
            Some(remote) => remote,
            None => {
                let opened = Remote::open(&shared.dialer, &shared.request.node, &self.via).await;
                opened.map_err(|e| e.to_string())?
            }
        };
        let (source, via) = (shared.dialer.me().clone(), self.via.clone());
        let path = WatchedPath { member: shared.request.node.clone(), via: via.clone() };
        shared.facts.connections.watch(path, remote.stream().monitor());
        shared.events.event(Event::WayOpened { source, via });
        let mut line = PathConnection { shared, remote, size: SMALLEST, out: VecDeque::new() };
        loop {
            line.fill().await?;
            if let Some(bytes) = line.settle().await? {
                self.sent.fetch_add(bytes, Relaxed);
            } else if shared.queue().is_finished() {
                if self.via.is_empty() {
                    shared.idle().replace(line.remote);
                } else {
                    line.remote.close().await;
                }
                return Ok(());
            } else if line.out.is_empty() {
                // The remaining pieces are out on other connections; they return if those fail or take too long.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A connection with its outstanding pieces.
struct PathConnection<'a> {
    shared: &'a Arc<SendState>,
    remote: Remote,
    /// The size of the next piece, bytes.
    size: u64,
    /// Pieces without an answer, and when they were sent.
    out: VecDeque<(PieceGuard<'a>, Instant)>,
}

impl PathConnection<'_> {
    /// Sends pieces until enough are under way or nothing waits.
    async fn fill(&mut self) -> Result<(), String> {
        while self.out.len() < IN_FLIGHT {
            // A connection does not send copies of its own pieces.
            let patience = if self.out.is_empty() { PATIENCE } else { Duration::MAX };
            let now = self.shared.began.elapsed();
            let taken = self.shared.queue().take(self.size, now, patience);
            if taken.is_empty() {
                return Ok(());
            }
            let mut guard = PieceGuard { shared: self.shared, pieces: taken };
            let reading = self.shared.facts.disk.begin();
            let Some(bytes) = self.read(&mut guard).await? else { continue };
            drop(reading);
            if let Some(limit) = &self.shared.limit {
                let _waiting = self.shared.facts.limit.begin();
                sleep(limit.charge(bytes.len() as u64)).await;
            }
            let sent = Instant::now();
            self.send(&guard.pieces, bytes).await.map_err(|why| why.to_string())?;
            self.out.push_back((guard, sent));
        }
        Ok(())
    }

    /// Reads the pieces' bytes, concatenated. Unreadable files are given up; `None` if no piece is left.
    async fn read(&self, guard: &mut PieceGuard<'_>) -> Result<Option<Bytes>, String> {
        let (all, wanted) = (self.shared.clone(), guard.pieces.clone());
        let read = move || read_all(&all.items, &wanted);
        let (bytes, failed) = spawn_blocking(read).await.map_err(|broken| broken.to_string())?;
        for (file, why) in failed {
            guard.pieces.retain(|piece| piece.file != file);
            self.shared.queue().fail(file, why);
        }
        Ok((!guard.pieces.is_empty()).then(|| bytes.into()))
    }

    async fn send(&mut self, pieces: &[SendPiece], bytes: Bytes) -> Result<(), RemoteError> {
        let shared = self.shared;
        let (into, rules) = (&shared.request.into, shared.rules);
        let entry = |piece: &SendPiece| &shared.items[piece.file].entry;
        match pieces {
            [part] if part.whole.is_none() => {
                let (entry, from) = (entry(part), part.range.start);
                match shared.is_old() {
                    true => self.remote.ask_store(into, entry, from, bytes).await,
                    false => {
                        let options = (rules, shared.owners_of([entry]));
                        self.remote.ask_store_part(into, entry, options, from, bytes).await
                    }
                }
            }
            whole => {
                let these: Vec<usize> = whole.iter().map(|piece| piece.file).collect();
                self.remote.ask_put(shared.delivery(&these), bytes).await
            }
        }
    }

    /// Waits for the oldest answer. Returns the bytes that it confirms; `None` if no piece is out.
    async fn settle(&mut self) -> Result<Option<u64>, String> {
        let Some((guard, sent)) = self.out.front() else { return Ok(None) };
        let (since, whole) = (*sent, guard.pieces.iter().all(|piece| piece.whole.is_some()));
        let answer = match whole {
            true => self.remote.receive_delivery_result().await.map(Some),
            false => self.remote.receive_stored().await.map(|()| None),
        };
        let Some((mut guard, _)) = self.out.pop_front() else { return Ok(None) };
        match answer {
            Ok(undone) => {
                let undone = undone.iter().flat_map(|undone| undone.failures());
                guard.fail(undone.map(|(number, why)| (number as usize, why.to_string())));
                let bytes = guard.complete();
                let second = bytes as f64 / since.elapsed().as_secs_f64().max(1e-3);
                self.size = (second as u64).clamp(SMALLEST, LARGEST);
                Ok(Some(bytes))
            }
            Err(why) if self.remote.is_usable() && is_final(&why) => {
                let all = 0..guard.pieces.len();
                guard.fail(all.map(|number| (number, why.to_string())));
                Ok(Some(0))
            }
            Err(why) => Err(why.to_string()),
        }
    }
}

/// Reads the bytes of pieces. Also returns the files that cannot be read. Blocks.
fn read_all(items: &[LocalItem], pieces: &[SendPiece]) -> (Vec<u8>, Vec<(usize, String)>) {
    let (mut bytes, mut failed) = (Vec::new(), Vec::new());
    for piece in pieces {
        let item = &items[piece.file];
        let read = match piece.whole {
            Some(_) => item.read_all(&mut bytes),
            None => item.read(piece.range.start, piece.bytes()).map(|read| bytes = read),
        };
        failed.extend(read.err().map(|why| (piece.file, why)));
    }
    (bytes, failed)
}

/// Whether the receiver will not accept the file on any path.
fn is_final(why: &RemoteError) -> bool {
    why.is_final() || matches!(why, RemoteError::Refused { why: Failure::Full(_), .. })
}

/// Returns its pieces to the queue unless they have arrived, even if its task is cancelled.
struct PieceGuard<'a> {
    shared: &'a SendState,
    pieces: Vec<SendPiece>,
}

impl PieceGuard<'_> {
    /// Marks the pieces as arrived. Returns their bytes, plus the cost of the names of small files, which count towards
    /// the rate.
    fn complete(mut self) -> u64 {
        let pieces = std::mem::take(&mut self.pieces);
        let mut queue = self.shared.queue();
        pieces.iter().for_each(|piece| queue.done(piece));
        let said = |piece: &SendPiece| u64::from(piece.whole.unwrap_or(0));
        pieces.iter().map(|piece| piece.bytes() + said(piece)).sum()
    }

    /// Gives up some of the pieces.
    fn fail(&mut self, failed: impl Iterator<Item = (usize, String)>) {
        let mut gone = std::collections::BTreeSet::new();
        for (number, why) in failed {
            let Some(piece) = self.pieces.get(number) else { continue };
            gone.insert(piece.file);
            self.shared.queue().fail(piece.file, why);
        }
        self.pieces.retain(|piece| !gone.contains(&piece.file));
    }
}

impl Drop for PieceGuard<'_> {
    fn drop(&mut self) {
        for piece in self.pieces.drain(..) {
            self.shared.queue().give_back(piece);
        }
    }
}

/// Ends relayed paths that deliver little, once that can be judged.
pub(super) fn stop_useless_paths(ways: &[Arc<SendPath>], shared: &SendState, began: Instant) {
    if began.elapsed() < TRIAL {
        return;
    }
    let all: u64 = ways.iter().map(|way| way.sent.load(Relaxed)).sum();
    let useless = |way: &&Arc<SendPath>| {
        let share = way.sent.load(Relaxed) as f64 / all.max(1) as f64;
        !way.via.is_empty() && !way.left.is_cancelled() && share < SHARE
    };
    for way in ways.iter().filter(useless) {
        way.left.cancel();
        let (source, via) = (shared.dialer.me().clone(), way.via.clone());
        let why = "the path carries less than a tenth of the data".to_owned();
        shared.events.event(Event::WayClosed { source, via, why, failed: false });
    }
}

/// Returns the gaps between the ascending ranges `held`, up to `size`.
pub(super) fn gaps(
    held: &[std::ops::Range<u64>],
    size: u64,
) -> impl Iterator<Item = std::ops::Range<u64>> {
    let ends = std::iter::once(0).chain(held.iter().map(|range| range.end));
    let starts = held.iter().map(|range| range.start).chain(std::iter::once(size));
    ends.zip(starts).map(|(from, to)| from..to).filter(|gap| gap.start < gap.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_cover_exactly_the_ranges_not_held() {
        let of = |held: &[std::ops::Range<u64>], size| gaps(held, size).collect::<Vec<_>>();
        let all = |range| vec![range];
        assert_eq!(of(&[], 5), all(0..5));
        assert_eq!(of(&[0..2, 4..5], 9), [2..4, 5..9]);
        assert!(of(&all(0..5), 5).is_empty());
        assert!(of(&[], 0).is_empty());
    }
}
