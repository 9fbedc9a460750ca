//! Checks that the relay leaks no descriptors, in a process where nothing else opens any.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{net::SocketAddr, sync::mpsc::Receiver};
use thalweg_base::log::{Event, Log};
use thalweg_net::{Destination, Dialer, Route};
use thalweg_relay::{EgressPolicy, Relay, RelayConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn relay() -> (SocketAddr, Receiver<Event>) {
    let mut config = RelayConfig::new("127.0.0.1:0".parse().unwrap());
    let loopback = vec!["127.0.0.0/8".parse().unwrap()];
    config.egress = EgressPolicy::new(loopback, vec!["1-65535".parse().unwrap()]);
    let (log, queue) = Log::to_queue();
    let relay = Relay::bind(config, log).await.unwrap();
    let at = relay.local_addr().unwrap();
    tokio::spawn(relay.run(std::future::pending()));
    (at, queue)
}

/// How a connection is ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Well,
    ByReset,
}

/// Makes one connection that moves enough bytes to be spliced.
async fn connection(at: SocketAddr, listener: &TcpListener, end: End) {
    let to: Destination = listener.local_addr().unwrap().into();
    let route = Route::through([at.into()]).unwrap();
    let dialer = Dialer::default();
    let (client, accepted) = tokio::join!(dialer.dial(&route, &to), listener.accept());
    let (mut client, mut server): (_, TcpStream) = (client.unwrap(), accepted.unwrap().0);
    let bytes = vec![7; 3_000_000];
    let sending = async {
        server.write_all(&bytes).await.unwrap();
        if matches!(end, End::ByReset) {
            server.set_zero_linger().unwrap();
        }
        drop(server);
    };
    let reading = async {
        let mut got = Vec::new();
        let read = client.read_to_end(&mut got).await;
        assert_eq!(read.is_ok(), matches!(end, End::Well), "{read:?}");
    };
    tokio::join!(sending, reading);
}

/// Waits for the last log lines of this many connections.
fn wait_for_ends(log: &Receiver<Event>, connections: usize) {
    let last = |e: &Event| ["closed", "broken"].iter().any(|k| is(e, k));
    assert_eq!(log.iter().filter(last).take(connections).count(), connections);
}

fn is(event: &Event, kind: &str) -> bool {
    event.to_string().starts_with(&format!("event={kind} "))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

// Two threads: one waits for the log's lines while the other writes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_descriptor_is_left_behind() {
    let (at, log) = relay().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let round = async || {
        for end in [End::Well, End::ByReset, End::Well] {
            connection(at, &listener, end).await;
        }
        wait_for_ends(&log, 3);
    };
    // The first round opens the pool's pipes, which stay open.
    round().await;
    let before = descriptors();
    for _ in 0..20 {
        round().await;
    }
    // Three connections one after the other need two pipes at most.
    assert!(descriptors() <= before + 4, "{} descriptors, {before} before", descriptors());
}
