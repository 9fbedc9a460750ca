//! Tests of bulk transfers, slow readers, and the memory held meanwhile.

use super::*;
use std::time::Instant;

/// Sends `bytes` in both directions at once. Returns the digest that each end received.
async fn exchange(c: Carried, bytes: &Arc<Vec<u8>>) -> (Carried, [blake3::Hash; 2]) {
    let Carried { client, server, moved, pipes, cut, pump } = c;
    let side = |tcp: TcpStream| {
        let bytes = Arc::clone(bytes);
        async move {
            let (mut read, mut write) = tcp.into_split();
            let sending = async move {
                write.write_all(&bytes).await.unwrap();
                write.shutdown().await.unwrap();
                write
            };
            let reading = async move {
                let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 256 * 1024]);
                loop {
                    match read.read(&mut buffer).await.unwrap() {
                        0 => return (read, hasher.finalize()),
                        n => hasher.update(&buffer[..n]),
                    };
                }
            };
            let (write, (read, digest)) = tokio::join!(sending, reading);
            (read.reunite(write).unwrap(), digest)
        }
    };
    let sides = [tokio::spawn(side(client)), tokio::spawn(side(server))];
    let [near, far] = sides;
    let ((client, down), (server, up)) = (near.await.unwrap(), far.await.unwrap());
    (Carried { client, server, moved, pipes, cut, pump }, [down, up])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_million_bytes_each_way_arrive_as_they_were() {
    let bytes = Arc::new(pattern(100_000_000));
    let digest = blake3::hash(&bytes);
    for how in ALL {
        let (c, digests) = exchange(Carried::by(how).await, &bytes).await;
        assert_eq!(digests, [digest; 2], "{how:?}");
        assert_eq!(c.counts(), (100_000_000, 100_000_000), "{how:?}");
        assert_eq!(c.pipes.lent(), 0, "{how:?}");
        assert_eq!(c.pipes.open() > 0, how == How::Spliced, "{how:?}");
        c.pump.await.unwrap().unwrap();
    }
}

/// The period of the pattern that [`fill_up`] writes.
const PERIOD: usize = 64 * 1024;

/// Writes until the pump is stuck and the socket accepts nothing more. Returns the number of bytes.
pub async fn fill_up(tcp: &TcpStream) -> usize {
    let (chunk, mut written, mut since) = (pattern(PERIOD), 0, Instant::now());
    // Nobody reads, so a socket without room for this long stays full.
    while since.elapsed() < Duration::from_millis(100) {
        match tcp.try_write(&chunk[written % PERIOD..]) {
            Ok(n) => (written, since) = (written + n, Instant::now()),
            Err(_) => tokio::task::yield_now().await,
        }
    }
    written
}

#[tokio::test]
async fn a_reader_that_sleeps_long_gets_everything_and_an_idle_connection_holds_no_pipe() {
    for how in ALL {
        let mut c = Carried::by(how).await;
        let written = fill_up(&c.client).await;
        assert_eq!(c.pipes.lent(), usize::from(how == How::Spliced), "{how:?}");
        c.client.shutdown().await.unwrap();
        let got = read_all(&mut c.server).await.unwrap();
        assert_eq!(got.len(), written, "{how:?}");
        let period = pattern(PERIOD);
        assert!(got.chunks(PERIOD).all(|piece| period.starts_with(piece)), "{how:?}");
        // One direction is open and idle.
        assert_eq!(c.pipes.lent(), 0, "{how:?}");
        drop(c.server);
        c.pump.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn without_a_free_pipe_bytes_are_copied() {
    let pipes = Arc::new(PipePool::new(1));
    let shared = |how| Setup { pipes: Arc::clone(&pipes), ..Setup::new(how) };
    let stuck = shared(How::Spliced).start().await;
    fill_up(&stuck.client).await;
    assert_eq!(pipes.lent(), 1);
    let bytes = Arc::new(pattern(5_000_000));
    let (other, digests) = exchange(shared(How::Spliced).start().await, &bytes).await;
    assert_eq!(digests, [blake3::hash(&bytes); 2]);
    other.pump.await.unwrap().unwrap();
    assert_eq!((pipes.lent(), pipes.open()), (1, 1));
    drop(stuck);
}

#[tokio::test]
async fn small_messages_pass_at_once_and_need_no_pipe() {
    for how in ALL {
        let mut c = Carried::by(how).await;
        for length in [1, 1000, 15_000] {
            let message = pattern(length);
            for _ in 0..20 {
                c.client.write_all(&message).await.unwrap();
                let mut got = vec![0; length];
                c.server.read_exact(&mut got).await.unwrap();
                assert!(got == message, "{how:?}");
                c.server.write_all(&got).await.unwrap();
                c.client.read_exact(&mut got).await.unwrap();
                assert!(got == message, "{how:?}");
            }
        }
        assert_eq!(c.pipes.open(), 0, "{how:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_small() {
    let ((_client, near), (far, _server)) = (pair().await, pair().await);
    let moved = Moved::default();
    let terms = Terms::new(LIMITS, &moved);
    let (near, far) = (ResetOnDrop::new(near), ResetOnDrop::new(far));
    let pump = clear(near, Vec::new(), far, terms, pending());
    // A future contains all its state except buffers and pipes, which an idle connection does not have. The limit is a
    // third of the 16 kB that a connection may cost; the rest is the session's and tokio's.
    let bytes = size_of_val(&pump);
    assert!(bytes <= 5 * 1024, "{bytes} bytes");
}
