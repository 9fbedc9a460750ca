//! Memory for the requests of peers: little before a place is held, and one budget of the process for all of them.
//!
//! The first [`FREE`] bytes of a request are read at once. Before more is read, the whole request is charged to its peer,
//! with what it may take when it is decoded. A peer has a share of the budget; beyond it its requests wait. When the budget
//! is used up, the peer that holds the most loses its oldest request.

use super::{
    budget::PeerKey,
    crowd::{Bounds, Crowd, Seat},
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

/// Memory that a decoded request takes for each of its bytes: a list of empty lists has one byte an entry, and each takes
/// the 24 bytes of a `Vec`.
const GROWTH: usize = 24;

/// The memory of all requests of a process: far more than honest peers need, and less than a small host has.
const ALL: usize = 192 << 20;

/// Of one peer: two of the longest requests (1 MiB).
const EACH: usize = ALL / 4;

/// A request that is over its peer's share waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// The same of bytes that follow requests, which were authorised then: eight of the longest (4 MiB) of one peer. Apart, since
/// a request keeps its memory while its bytes wait for theirs.
const BYTES: Bounds = Bounds { all: 128 << 20, each: 32 << 20, grace: None };

static FOLLOWING: LazyLock<Crowd<PeerKey>> = LazyLock::new(|| Crowd::new(BYTES));

static REQUESTS: LazyLock<Crowd<PeerKey>> =
    LazyLock::new(|| Crowd::new(Bounds { all: ALL, each: EACH, grace: None }));

/// A request's bytes, and their charge. The charge is kept while the decoded request is.
#[derive(Debug)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// None for a short request.
    pub charge: Option<Charge>,
}

/// Memory that is charged to a peer until this is dropped.
#[derive(Debug)]
pub struct Charge(Seat<PeerKey>);

impl Charge {
    /// Whether the memory went to another peer's request.
    pub fn is_lost(&self) -> bool {
        self.0.is_evicted()
    }
}

/// Reads a request of so many bytes.
///
/// # Errors
/// The connection's; `QuotaExceeded` if the peer has too many requests, or if others needed their memory.
pub async fn body(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
    who: PeerKey,
) -> io::Result<Body> {
    body_within(&REQUESTS, from, (length, GROWTH), who).await
}

/// Reads so many bytes that follow a request of a peer that may send them.
///
/// # Errors
/// As [`body`].
pub async fn bytes(
    from: &mut (impl AsyncRead + Unpin),
    length: usize,
    who: PeerKey,
) -> io::Result<Body> {
    body_within(&FOLLOWING, from, (length, 1), who).await
}

async fn body_within(
    requests: &Crowd<PeerKey>,
    from: &mut (impl AsyncRead + Unpin),
    (length, growth): (usize, usize),
    who: PeerKey,
) -> io::Result<Body> {
    let mut bytes = vec![0; length.min(FREE)];
    from.read_exact(&mut bytes).await?;
    if length <= FREE {
        return Ok(Body { bytes, charge: None });
    }
    let seat = charge(requests, length.saturating_mul(growth), who).await?;
    bytes.resize(length, 0);
    tokio::select! {
        biased;
        read = from.read_exact(&mut bytes[FREE..]) => { read?; }
        () = seat.evicted() => return Err(crowded("others needed the memory of this request")),
    }
    Ok(Body { bytes, charge: Some(Charge(seat)) })
}

async fn charge(
    requests: &Crowd<PeerKey>,
    weight: usize,
    who: PeerKey,
) -> io::Result<Seat<PeerKey>> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(seat) = requests.enter(who, weight, Instant::now()) {
            return Ok(seat);
        }
        if tokio::time::Instant::now() >= end {
            return Err(crowded("this peer has too many long requests at a time"));
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

    fn requests(of: usize) -> Crowd<PeerKey> {
        let longest = (1 << 20) * GROWTH;
        Crowd::new(Bounds { all: of * longest, each: 2 * longest, grace: None })
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

    #[tokio::test]
    async fn the_peer_that_holds_the_most_loses_what_it_does_not_send() {
        let requests = requests(3);
        // Two requests that never end, and one that is served.
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
