//! One way to the node: direct, or by a relay.

use super::{super::Event, Present, SendError, Shared, queue::Piece};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use thalweg_files::remote::{Remote, RemoteError, hint};
use thalweg_wire::{mesh::Name, object::Failure};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// A piece is about a second's worth at the way's rate, between these.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 4 << 20;

/// Connections of a way: a lost packet stops one of them alone. With [`LARGEST`] it bounds the
/// memory of a `send`.
const CONNECTIONS: u32 = 2;

/// Pieces of a connection that are on their way or being stored: while the node writes one, the next comes.
const IN_FLIGHT: usize = 2;

/// Files that the node is asked about ahead of its answers.
const ASKED: usize = 256;

/// A way that broke off is tried again so often in a row.
const TRIES: u32 = 4;

/// Before the first of them; doubled before each other.
const PAUSE: Duration = Duration::from_millis(500);

/// A piece is sent by another way as well if it is out for longer, and nothing else waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// When it is seen what a way is good for: past slow start.
const TRIAL: Duration = Duration::from_secs(4);

/// A relayed way that brings less than this share of the sum costs the relay more than it is worth.
const SHARE: f64 = 0.1;

/// A way, and what it has brought.
#[derive(Debug)]
pub(super) struct Way {
    via: Vec<Name>,
    connections: u32,
    sent: AtomicU64,
    left: CancellationToken,
}

impl Way {
    /// The direct one; with its `several` connections if there is much to send.
    pub fn direct(several: bool) -> Self {
        let connections = if several { CONNECTIONS } else { 1 };
        Self { via: Vec::new(), connections, sent: AtomicU64::new(0), left: Default::default() }
    }

    /// By this relay.
    pub fn by(relay: Name) -> Self {
        let via = vec![relay];
        Self { via, connections: CONNECTIONS, sent: AtomicU64::new(0), left: Default::default() }
    }

    /// How many connections work on it.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Until nothing waits any more, or it fails for good; why, then.
    pub async fn work(&self, shared: &Arc<Shared>) -> Result<(), String> {
        tokio::select! {
            biased;
            () = self.left.cancelled() => Ok(()),
            ended = self.sessions(shared) => ended,
        }
    }

    async fn sessions(&self, shared: &Arc<Shared>) -> Result<(), String> {
        let (mut tries, mut pause) = (TRIES, PAUSE);
        loop {
            let before = self.sent.load(Relaxed);
            let Err(why) = self.session(shared).await else { return Ok(()) };
            if self.sent.load(Relaxed) > before {
                (tries, pause) = (TRIES, PAUSE);
            }
            tries -= 1;
            if tries == 0 {
                let (source, via) = (shared.reach.me().clone(), self.via.clone());
                let told = Event::WayClosed { source, via, why: why.clone(), failed: true };
                shared.events.event(told);
                return Err(why);
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// One connection's work; a piece that did not get there waits again.
    async fn session(&self, shared: &Arc<Shared>) -> Result<(), String> {
        let opened = Remote::open(&shared.reach, &shared.request.node, &self.via).await;
        let remote = opened.map_err(|e| format!("{e}{}", hint(&e)))?;
        let (source, via) = (shared.reach.me().clone(), self.via.clone());
        shared.events.event(Event::WayOpened { source, via });
        let mut line = Line { shared, remote, size: SMALLEST, out: VecDeque::new() };
        loop {
            line.fill().await?;
            if let Some(bytes) = line.settle().await? {
                self.sent.fetch_add(bytes, Relaxed);
            } else if shared.queue().is_finished() {
                line.remote.close().await;
                return Ok(());
            } else if line.out.is_empty() {
                // Others have the rest; it comes back if they fail, or take too long.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// A connection, and the pieces that are out on it.
struct Line<'a> {
    shared: &'a Arc<Shared>,
    remote: Remote,
    /// Bytes of the next piece.
    size: u64,
    /// Pieces without an answer, and when they were sent.
    out: VecDeque<(Guard<'a>, Instant)>,
}

impl Line<'_> {
    /// Sends pieces until there are enough under way, or nothing waits.
    async fn fill(&mut self) -> Result<(), String> {
        while self.out.len() < IN_FLIGHT {
            // What this connection has itself it does not send twice.
            let patience = if self.out.is_empty() { PATIENCE } else { Duration::MAX };
            let now = self.shared.began.elapsed();
            let taken = self.shared.queue().take(self.size, now, patience);
            let Some(piece) = taken else { return Ok(()) };
            let guard = Guard { shared: self.shared, piece: Some(piece.clone()) };
            if let Some(bytes) = self.read(&piece).await? {
                if let Some(limit) = &self.shared.limit {
                    sleep(limit.charge(bytes.len() as u64)).await;
                }
                let sent = Instant::now();
                let entry = &self.shared.files[piece.file].entry;
                let into = &self.shared.request.into;
                let asked =
                    self.remote.ask_store(into, entry, piece.range.start, bytes.into()).await;
                asked.map_err(|why| why.to_string())?;
                self.out.push_back((guard, sent));
            }
        }
        Ok(())
    }

    /// The piece's bytes, unless its file is given up.
    async fn read(&self, piece: &Piece) -> Result<Option<Vec<u8>>, String> {
        let (all, wanted) = (self.shared.clone(), piece.clone());
        let read = move || all.files[wanted.file].read(wanted.range.start, wanted.bytes());
        match spawn_blocking(read).await {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(why)) => {
                self.shared.queue().fail(piece.file, why);
                Ok(None)
            }
            Err(broken) => Err(broken.to_string()),
        }
    }

    /// Waits for the oldest answer; the bytes that are there by it. `None`: none is out.
    async fn settle(&mut self) -> Result<Option<u64>, String> {
        let Some((_, sent)) = self.out.front() else { return Ok(None) };
        let since = *sent;
        let stored = self.remote.stored().await;
        let Some((guard, _)) = self.out.pop_front() else { return Ok(None) };
        match stored {
            Ok(()) => {
                let bytes = guard.done();
                let second = bytes as f64 / since.elapsed().as_secs_f64().max(1e-3);
                self.size = (second as u64).clamp(SMALLEST, LARGEST);
                Ok(Some(bytes))
            }
            Err(why) if self.remote.is_whole() && is_final(&why) => {
                guard.fail(why.to_string());
                Ok(Some(0))
            }
            Err(why) => Err(why.to_string()),
        }
    }
}

/// Whether the file will not be taken, however it is sent.
fn is_final(why: &RemoteError) -> bool {
    why.is_final() || matches!(why, RemoteError::Refused { why: Failure::Full(_), .. })
}

/// Gives its piece back unless it is there: also when the work on it is cut off.
struct Guard<'a> {
    shared: &'a Shared,
    piece: Option<Piece>,
}

impl Guard<'_> {
    /// It is there; its bytes.
    fn done(mut self) -> u64 {
        let Some(piece) = self.piece.take() else { return 0 };
        self.shared.queue().done(&piece);
        piece.bytes()
    }

    /// Its file is given up.
    fn fail(mut self, why: String) {
        if let Some(piece) = self.piece.take() {
            self.shared.queue().fail(piece.file, why);
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.shared.queue().give_back(piece);
        }
    }
}

/// Ends relayed ways that bring little, once that can be seen.
pub(super) fn leave_useless(ways: &[Arc<Way>], shared: &Shared, began: Instant) {
    if began.elapsed() < TRIAL {
        return;
    }
    let all: u64 = ways.iter().map(|way| way.sent.load(Relaxed)).sum();
    let useless = |way: &&Arc<Way>| {
        let share = way.sent.load(Relaxed) as f64 / all.max(1) as f64;
        !way.via.is_empty() && !way.left.is_cancelled() && share < SHARE
    };
    for way in ways.iter().filter(useless) {
        way.left.cancel();
        let (source, via) = (shared.reach.me().clone(), way.via.clone());
        let why = "it brings less than a tenth of the sum".to_owned();
        shared.events.event(Event::WayClosed { source, via, why, failed: false });
    }
}

/// Asks the node which bytes it has, and puts the others into the queue.
///
/// # Errors
///
/// [`SendError`]: it cannot be reached at all, or takes nothing.
pub(super) async fn ask_what_is_there(shared: &Shared) -> Result<Present, SendError> {
    let request = &shared.request;
    let opened = Remote::open(&shared.reach, &request.node, &[]).await;
    let mut remote = opened.map_err(|e| SendError::Unreached(format!("{e}{}", hint(&e))))?;
    let mut present = Present::default();
    let mut asked = 0;
    for (index, file) in shared.files.iter().enumerate() {
        for ahead in shared.files.iter().take(index + ASKED).skip(asked) {
            let sent = remote.ask_held(&request.into, &ahead.entry).await;
            sent.map_err(|why| SendError::Unreached(why.to_string()))?;
            asked += 1;
        }
        let held = match remote.holds().await {
            Ok(held) => held,
            Err(RemoteError::Refused { node, why }) if is_refusal(&why) => {
                let into = String::from_utf8_lossy(&request.into).into_owned();
                return Err(SendError::NotAccepted { node, into, me: shared.reach.me().clone() });
            }
            Err(why @ RemoteError::Refused { .. }) => {
                shared.queue().fail(index, why.to_string());
                continue;
            }
            Err(why) => return Err(SendError::Unreached(why.to_string())),
        };
        let size = file.size();
        let there: u64 = held.iter().map(|range| range.end - range.start).sum();
        present.bytes += there;
        if there >= size && (size > 0 || !held.is_empty()) {
            present.files += 1;
            continue;
        }
        let mut queue = shared.queue();
        if size == 0 {
            queue.add(index, 0..0);
        }
        gaps(&held, size).for_each(|gap| queue.add(index, gap));
    }
    _ = timeout(Duration::from_secs(1), remote.close()).await;
    Ok(present)
}

fn is_refusal(why: &Failure) -> bool {
    matches!(why, Failure::NotOffered(_))
}

/// What is not in `held`, which is ascending.
fn gaps(held: &[std::ops::Range<u64>], size: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let ends = std::iter::once(0).chain(held.iter().map(|range| range.end));
    let starts = held.iter().map(|range| range.start).chain(std::iter::once(size));
    ends.zip(starts).map(|(from, to)| from..to).filter(|gap| gap.start < gap.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_is_not_held() {
        let of = |held: &[std::ops::Range<u64>], size| gaps(held, size).collect::<Vec<_>>();
        let all = |range| vec![range];
        assert_eq!(of(&[], 5), all(0..5));
        assert_eq!(of(&[0..2, 4..5], 9), [2..4, 5..9]);
        assert!(of(&all(0..5), 5).is_empty());
        assert!(of(&[], 0).is_empty());
    }
}
