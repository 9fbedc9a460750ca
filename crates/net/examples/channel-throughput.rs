//! Measures the throughput of channels on loopback: `channel-throughput [CONNECTIONS] [MEBIBYTES]`.
//!
//! One thread seals, one opens. Prints the total rate of all connections and the processor time of both ends, for
//! comparison also with plain TCP and the same reads and writes.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::{env, sync::Arc, thread, time::Instant};
use thalweg_net::{
    PrivateKey,
    channel::{Acceptor, Admission, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// The size of each read and write.
const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn send(mut to: impl AsyncWrite + Unpin, bytes: usize) {
    let chunk = vec![7; CHUNK];
    for _ in 0..bytes / CHUNK {
        to.write_all(&chunk).await.unwrap();
    }
    to.shutdown().await.unwrap();
}

async fn receive(mut from: impl AsyncRead + Unpin) {
    let mut chunk = vec![0; CHUNK];
    while from.read(&mut chunk).await.unwrap() > 0 {}
}

fn main() {
    let mut args = env::args().skip(1).map(|a| a.parse::<usize>().unwrap());
    let (connections, mebibytes) = (args.next().unwrap_or(1), args.next().unwrap_or(4096));
    let each = mebibytes * 1024 * 1024 / connections;
    for sealed in [false, true] {
        let (seconds, cpu) = run(connections, each, sealed);
        let gbit = (each * connections) as f64 * 8e-9;
        let what = if sealed { "sealed" } else { "plain " };
        println!(
            "{what} {connections:4} connections: {:6.2} Gbit/s, {:.3} CPU s per Gbit",
            gbit / seconds,
            cpu / gbit
        );
    }
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .filter_map(|f| f.parse().ok())
        .collect();
    // Fields 14 and 15, in ticks of a hundredth of a second.
    (fields[10] + fields[11]) / 100.0
}

fn run(connections: usize, each: usize, sealed: bool) -> (f64, f64) {
    let [server, client] = [1, 2].map(|seed| PrivateKey::from_seed(&[seed; 32]));
    let key = server.id();
    let acceptor = Acceptor::new(&server, Arc::new(Everybody), &[Protocol::Relay]).unwrap();
    let connector = Connector::new(&client).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let (start, before) = (Instant::now(), cpu_seconds());
    let receiver = thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let mut all = JoinSet::new();
            for _ in 0..connections {
                let (tcp, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                all.spawn(async move {
                    if sealed {
                        receive(acceptor.accept(tcp).await.unwrap()).await;
                    } else {
                        receive(tcp).await;
                    }
                });
            }
            all.join_all().await;
        });
    });
    runtime().block_on(async {
        let mut all = JoinSet::new();
        for _ in 0..connections {
            let connector = connector.clone();
            all.spawn(async move {
                let tcp = TcpStream::connect(at).await.unwrap();
                if sealed {
                    send(connector.connect(tcp, key, Protocol::Relay).await.unwrap(), each).await;
                } else {
                    send(tcp, each).await;
                }
            });
        }
        all.join_all().await;
    });
    receiver.join().unwrap();
    (start.elapsed().as_secs_f64(), cpu_seconds() - before)
}
