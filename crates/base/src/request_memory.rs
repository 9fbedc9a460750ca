//! Memory for the requests of peers: a small free part for each request, and one budget of the process for the rest.
//!
//! The first [`FREE`] bytes of a request are read without a charge. Before more is read, the request is charged to its
//! peer with the memory that it may take once decoded. Each peer has a share of the budget; a request beyond that share
//! waits. When the budget is used up, the peer that holds the most loses its oldest request.

use super::{
    budget::PeerKey,
    fair_slots::{Bounds, FairSlots, Slot},
};
use std::{
    io,
    sync::LazyLock,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::sleep,
};

/// Bytes of a request that are read without a charge.
pub const FREE: usize = 4 << 10;

/// Memory that a decoded request may take for each encoded byte. The worst case is a list of empty lists: one byte
/// encodes an entry, which takes the 24 bytes of a `Vec`.
const GROWTH: usize = 24;

/// The memory for all requests of a process: more than well-behaved peers need, and less than a small host has.
const ALL: usize = 192 << 20;

/// The share of one peer: two requests of the maximum length (1 MiB).
const EACH: usize = ALL / 4;

/// The part of [`ALL`] for peers that are identified only by their addresses; members have the rest. The longest
/// requests of such peers have 256 KiB.
const STRANGERS: Bounds = Bounds { all: ALL / 4, each: ALL / 16, grace: None };
const MEMBERS: Bounds = Bounds { all: ALL - ALL / 4, each: EACH, grace: None };

/// How long a request over its peer's share waits for memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a waiting request tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// Memory for bytes that follow a request, when the peer is already authorised; one peer's share is eight pieces of the
/// maximum length (4 MiB). A separate budget, since a request keeps its memory while its bytes wait for theirs.
const BYTES: Bounds = Bounds { all: 128 << 20, each: 32 << 20, grace: None };

static FOLLOWING: LazyLock<FairSlots<PeerKey>> = LazyLock::new(|| FairSlots::new(BYTES));

/// Strangers have a separate budget, so that members' requests never wait for them.
static REQUESTS: LazyLock<RequestBudgets> = LazyLock::new(|| RequestBudgets {
    members: FairSlots::new(MEMBERS),
    strangers: FairSlots::new(STRANGERS),
});

/// The budgets of members and of strangers.
#[derive(Debug)]
struct RequestBudgets {
    members: FairSlots<PeerKey>,
    strangers: FairSlots<PeerKey>,
}

impl RequestBudgets {
    fn for_peer(&self, who: PeerKey) -> &FairSlots<PeerKey> {
        match who {
            PeerKey::Node(_) => &self.members,
            PeerKey::Address(_) => &self.strangers,
        }
    }
}

/// A request's bytes and their charge. Callers keep the charge as long as the decoded request.
#[derive(Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// `None` for a short request.
    pub charge: Option<Charge>,
}

/// Memory that is charged to a peer until the value is dropped.
#[derive(Debug)]
pub struct Charge(Slot<PeerKey>);

impl Charge {
    /// Reduces the charge once the size of the decoded request is known.
    pub fn shrink(&self, memory: usize) {
        self.0.shrink(memory);
    }

    /// Whether the memory was taken for another peer's request.
    pub fn is_lost(&self) -> bool {
        self.0.is_evicted()
    }
}

/// A message whose first bytes were read.
#[derive(Debug)]
pub struct PartialMessage {
    bytes: Vec<u8>,
    length: usize,
}

/// Reads the part of a message of this length that needs no charge.
///
/// # Errors
/// If the connection fails.
pub async fn begin(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<PartialMessage> {
    let mut bytes = vec![0; length.min(FREE)];
    from.read_exact(&mut bytes).await?;
    Ok(PartialMessage { bytes, length })
}

impl PartialMessage {
    /// Charges a request to its peer with the memory that it takes decoded. Waits for memory; the caller can use the
    /// connection meanwhile. Returns `None` for a short request.
    ///
    /// # Errors
    /// `QuotaExceeded` if the peer has too many requests at a time.
    pub async fn charge_request(&self, who: PeerKey) -> io::Result<Option<Charge>> {
        self.charge(REQUESTS.for_peer(who), GROWTH, who).await
    }

    /// Charges bytes that follow a request of an authorised peer.
    ///
    /// # Errors
    /// As [`Self::charge_request`].
    pub async fn charge_bytes(&self, who: PeerKey) -> io::Result<Option<Charge>> {
        self.charge(&FOLLOWING, 1, who).await
    }

    async fn charge(
        &self,
        slots: &FairSlots<PeerKey>,
        growth: usize,
        who: PeerKey,
    ) -> io::Result<Option<Charge>> {
        if self.length <= FREE {
            return Ok(None);
        }
        charge(slots, self.length.saturating_mul(growth), who).await.map(|slot| Some(Charge(slot)))
    }

    /// Reads the rest of the message.
    ///
    /// # Errors
    /// If the connection fails; `QuotaExceeded` if the memory was taken for another peer.
    pub async fn finish(
        self,
        from: &mut (impl AsyncRead + Unpin),
        charge: Option<Charge>,
    ) -> io::Result<Body> {
        let Self { mut bytes, length } = self;
        let Some(charge) = charge else { return Ok(Body { bytes, charge: None }) };
        bytes.resize(length, 0);
        tokio::select! {
            biased;
            read = from.read_exact(&mut bytes[FREE..]) => { read?; }
            () = charge.0.evicted() => {
                return Err(crowded("the memory of this request was given to another peer; try again"));
            }
        }
        Ok(Body { bytes, charge: Some(charge) })
    }
}

/// Reads a request of this length.
///
/// # Errors
/// If the connection fails; `QuotaExceeded` if the peer has too many requests or its memory was taken.
pub async fn body(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
    who: PeerKey,
) -> io::Result<Body> {
    body_within(REQUESTS.for_peer(who), from, (length, GROWTH), who).await
}

async fn body_within(
    requests: &FairSlots<PeerKey>,
    from: &mut (impl AsyncRead + Unpin),
    (length, growth): (usize, usize),
    who: PeerKey,
) -> io::Result<Body> {
    let begun = begin(from, length).await?;
    let charge = begun.charge(requests, growth, who).await?;
    begun.finish(from, charge).await
}

async fn charge(
    requests: &FairSlots<PeerKey>,
    weight: usize,
    who: PeerKey,
) -> io::Result<Slot<PeerKey>> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(slot) = requests.enter(who, weight, Instant::now()) {
            return Ok(slot);
        }
        if tokio::time::Instant::now() >= end {
            return Err(crowded(
                "this peer has too many large requests at a time; try again when they have ended",
            ));
        }
        sleep(AGAIN).await;
    }
}

fn crowded(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::io::{AsyncWriteExt as _, duplex};

    fn peer(n: u8) -> PeerKey {
        PeerKey::Address(Ipv4Addr::new(10, 0, 0, n).into())
    }

    fn requests(of: usize) -> FairSlots<PeerKey> {
        let longest = (1 << 20) * GROWTH;
        FairSlots::new(Bounds { all: of * longest, each: 2 * longest, grace: None })
    }

    #[tokio::test]
    async fn a_short_request_costs_nothing_and_a_long_one_its_memory() {
        let requests = requests(3);
        let (mut near, mut far) = duplex(1 << 21);
        far.write_all(&[7; 1 << 20]).await.unwrap();
        let short = body_within(&requests, &mut near, (FREE, GROWTH), peer(1)).await.unwrap();
        assert!(short.charge.is_none() && short.bytes == [7; FREE]);
        let long = body_within(&requests, &mut near, (100_000, GROWTH), peer(1)).await.unwrap();
        assert_eq!((long.bytes.len(), requests.weight_of(peer(1))), (100_000, 2_400_000));
        drop(long);
        assert!(requests.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_with_too_many_long_requests_waits_and_is_refused() {
        let requests = requests(3);
        let (mut near, mut far) = duplex(1 << 22);
        far.write_all(&[7; 1 << 21]).await.unwrap();
        let first = body_within(&requests, &mut near, (1 << 20, GROWTH), peer(1)).await.unwrap();
        let _second = body_within(&requests, &mut near, (1 << 20, GROWTH), peer(1)).await.unwrap();
        far.write_all(&[7; 1 << 20]).await.unwrap();
        let (mut other, mut end) = duplex(1 << 21);
        end.write_all(&[7; 1 << 20]).await.unwrap();
        assert!(body_within(&requests, &mut other, (1 << 20, GROWTH), peer(2)).await.is_ok());
        let refused =
            body_within(&requests, &mut near, (1 << 20, GROWTH), peer(1)).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        drop(first);
    }

    #[test]
    fn strangers_take_no_memory_from_members() {
        let now = Instant::now();
        let held: Vec<_> = (0..100)
            .filter_map(|n| REQUESTS.for_peer(peer(n)).enter(peer(n), STRANGERS.each, now))
            .collect();
        assert!(held.len() >= STRANGERS.all / STRANGERS.each);
        let member = PeerKey::Node(thalweg_units::NodeId::from_bytes([7; 32]));
        let held = [1, 2].map(|_| REQUESTS.for_peer(member).enter(member, EACH / 2, now).unwrap());
        assert!(held.iter().all(|slot| !slot.is_evicted()));
        let sum = REQUESTS.strangers.bounds().all + REQUESTS.members.bounds().all;
        assert_eq!(sum, ALL, "one budget of the process");
    }

    #[tokio::test]
    async fn the_peer_that_holds_the_most_loses_an_incomplete_request() {
        let requests = requests(3);
        // Two requests that are never completed, and one that is served.
        let (mut slow, mut far) = duplex(1 << 21);
        far.write_all(&[7; FREE]).await.unwrap();
        let lost = tokio::spawn({
            let requests = requests.clone();
            async move { body_within(&requests, &mut slow, (1 << 20, GROWTH), peer(1)).await }
        });
        while requests.is_empty() {
            tokio::task::yield_now().await;
        }
        let _held = requests.enter(peer(1), (1 << 20) * GROWTH, Instant::now()).unwrap();
        let _other = requests.enter(peer(2), (1 << 20) * GROWTH, Instant::now()).unwrap();
        let (mut near, mut end) = duplex(1 << 21);
        end.write_all(&[7; 1 << 20]).await.unwrap();
        assert!(body_within(&requests, &mut near, (1 << 20, GROWTH), peer(3)).await.is_ok());
        assert_eq!(lost.await.unwrap().unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }
}
