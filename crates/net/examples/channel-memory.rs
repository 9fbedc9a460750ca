//! Measures the user-space memory of idle channels: `channel-memory [CONNECTIONS]`.
//!
//! Opens the channels within this process, moves 100 kB through each, and prints by how much the resident set has grown
//! for each end.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measuring program")]

use std::{env, fs, sync::Arc};
use thalweg_net::{
    PrivateKey,
    channel::{Acceptor, Admission, Channel, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// The resident set, bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Moves bytes, then waits for more in a task of its own, like a relay's pump.
async fn idle(mut near: Channel<TcpStream>, mut far: Channel<TcpStream>, ready: Arc<Notify>) {
    let send = async {
        near.write_all(&[7; 100_000]).await.unwrap();
        near.flush().await.unwrap();
    };
    let receive = async {
        let mut left = 100_000;
        while left > 0 {
            left -= far.read(&mut [0; 256]).await.unwrap();
        }
    };
    tokio::join!(send, receive);
    ready.notify_one();
    let mut byte = [[0; 1]; 2];
    let [a, b] = &mut byte;
    // Nothing arrives, so both wait for ever.
    let _ = tokio::join!(near.read(a), far.read(b));
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let connections: usize = env::args().nth(1).map_or(2000, |n| n.parse().unwrap());
    let [server, client] = [1, 2].map(|seed| PrivateKey::from_seed(&[seed; 32]));
    let acceptor = Acceptor::new(&server, Arc::new(Everybody), &[Protocol::Relay]).unwrap();
    let connector = Connector::new(&client).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let mut before = 0;
    for i in 0..=connections {
        let (tcp, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (tcp, accepted) = (tcp.unwrap(), accepted.unwrap().0);
        tcp.set_nodelay(true).unwrap();
        accepted.set_nodelay(true).unwrap();
        let connect = connector.connect(tcp, server.id(), Protocol::Relay);
        let (near, far) = tokio::join!(connect, acceptor.accept(accepted));
        let ready = Arc::new(Notify::new());
        tokio::spawn(idle(near.unwrap(), far.unwrap(), Arc::clone(&ready)));
        ready.notified().await;
        if i == 0 {
            before = resident();
        }
    }
    let each = (resident() - before) / connections / 2;
    println!("{connections} connections: {each} bytes for each end of an idle channel");
}
