//! Case 29: a roster that is older, forged, or altered on disk is rejected.

use super::{
    host::{Host, by_socks, until},
    member,
};
use std::{
    fs,
    net::TcpListener as Blocking,
    sync::{Arc, Mutex},
};
use thalweg_mesh::State;
use thalweg_net::{
    Ed25519, PrivateKey,
    channel::{Acceptor, Admission, Channel, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, Signed,
    mesh::{LegKind, Roster},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// An attacker who has the oracle's own key, but not the mesh's: it answers every request for a roster with these
/// bytes.
async fn false_oracle(of: &Host, bytes: Arc<Mutex<Vec<u8>>>) {
    let key = State::open(&of.state()).unwrap().node_key().unwrap();
    let acceptor = Acceptor::new(&key, Arc::new(Everybody), &[Protocol::Api]).unwrap();
    let listener = TcpListener::bind(of.address()).await.unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(channel) = acceptor.accept(tcp).await {
                tokio::spawn(answer(channel, Arc::clone(&bytes)));
            }
        }
    });
}

async fn answer(mut channel: Channel<TcpStream>, bytes: Arc<Mutex<Vec<u8>>>) {
    let mut head = Vec::new();
    while let Ok(byte) = channel.read_u8().await {
        head.push(byte);
        if head.ends_with(b"\r\n\r\n") {
            let body = bytes.lock().unwrap().clone();
            let kind = "content-type: application/octet-stream";
            let reply =
                format!("HTTP/1.1 200 OK\r\n{kind}\r\ncontent-length: {}\r\n\r\n", body.len());
            let reply = [reply.as_bytes(), &body].concat();
            if channel.write_all(&reply).await.is_err() || channel.flush().await.is_err() {
                return;
            }
            head.clear();
        }
    }
}

/// The roster with the same members, a higher version, and another mesh's signature.
fn forged(bytes: &[u8]) -> Vec<u8> {
    let mut roster = Signed::<Roster>::open(bytes, &Ed25519).unwrap().into_value();
    roster.version += 100;
    Signed::sign(roster, &PrivateKey::from_seed(&[7; 32])).encode()
}

/// The roster with one bit of the content flipped.
fn altered(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_oracle_readmits_no_member() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let mut nyc_runs = nyc.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    until("nyc knows lap", || nyc.ok(&["mesh", "members"]).contains("lap"));
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to: Destination = echo.local_addr().unwrap().into();
    member::dial(&lap, &nyc, LegKind::Sealed, &to).await.unwrap();
    let with_lap = fs::read(nyc.state().join("roster")).unwrap();
    fra.ok(&["mesh", "revoke", "lap", "--wait", "60s"]);
    let newest = nyc.json(&["mesh", "members", "--json"])["version"].clone();
    fra_runs.end();

    let served = Arc::new(Mutex::new(with_lap.clone()));
    false_oracle(&fra, Arc::clone(&served)).await;
    let line = nyc_runs.log_until("event=roster_rejected");
    assert!(line.contains("level=alert") && line.contains("older"), "{line}");
    member::dial(&lap, &nyc, LegKind::Sealed, &to).await.unwrap_err();
    // A lasting fault is reported again only after ten minutes; a restart reports it at once.
    for bytes in [forged(&with_lap), altered(&with_lap)] {
        *served.lock().unwrap() = bytes;
        nyc_runs.end();
        nyc_runs = nyc.start();
        let line = nyc_runs.log_until("event=roster_rejected");
        assert!(line.contains("level=alert"), "{line}");
        member::dial(&lap, &nyc, LegKind::Sealed, &to).await.unwrap_err();
        assert_eq!(nyc.json(&["mesh", "members", "--json"])["version"], newest);
    }
}

#[test]
fn a_roster_altered_on_disk_is_reported_and_fetched_again() {
    let echo = Blocking::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let _fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let file = nyc.state().join("roster");
    fs::write(&file, altered(&fs::read(&file).unwrap())).unwrap();
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\"]\n";
    let mut nyc_runs = nyc.start_with(socks, None);
    let line = nyc_runs.log_until("event=roster_damaged");
    assert!(line.contains(&file.display().to_string()), "{line}");
    nyc_runs.log_until("event=roster_updated");
    by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    // The roster is in force before it is on disk.
    until("the new roster is on disk", || file.exists());
    assert!(Signed::<Roster>::open(&fs::read(&file).unwrap(), &Ed25519).is_ok());
}
