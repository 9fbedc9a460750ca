//! A false oracle with the oracle's stolen key, but without the mesh's key, cannot readmit a member.

use super::{
    super::report::Report,
    add,
    probe::{self, Identity},
    test_mesh::{TestMesh, TestNode},
};
use anyhow::{Context as _, ensure};
use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_mesh::State;
use thalweg_net::{
    Ed25519, PrivateKey,
    channel::{Acceptor, Admission, Channel, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{Signed, mesh::Roster};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// The longest wait until a node has asked its oracle and logged its verdict.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest head of a request that is read.
const HEAD: usize = 8192;

#[derive(Debug)]
struct AdmitAll;

impl Admission for AdmitAll {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// Offers a relay an older roster, and a roster that another key has signed, both with a member that was revoked.
/// Reports the bytes that this member then gets, and whether the relay logged an alert.
///
/// # Errors
/// When the mesh cannot be founded, or the relay logs no alert in time.
pub async fn run(report: &mut Report) -> anyhow::Result<()> {
    let test_mesh = TestMesh::new()?;
    let fra = test_mesh.create_mesh("fra", "")?;
    let daemon = fra.start()?;
    let nyc = test_mesh.join(&fra, "nyc", &["--role", "relay"])?;
    let mut nyc_daemon = nyc.start()?;
    let gone = test_mesh.join(&fra, "gone", &[])?;
    wait_until("nyc has not received the new member", || {
        Ok(nyc.thalweg(&["mesh", "members"])?.contains("gone"))
    })
    .await?;
    let older = fs::read(nyc.state().join("roster"))?;
    fra.thalweg(&["mesh", "revoke", "gone", "--wait", "60s"])?;
    drop(daemon);
    let identity = Identity::from_seed(&gone.client_seed()?);
    for (name, bytes) in
        [("rolled_back_roster", older.clone()), ("forged_roster", forge_roster(&older)?)]
    {
        drop(nyc_daemon);
        let oracle = false_oracle(&fra, bytes).await?;
        nyc_daemon = nyc.start()?;
        let alert = |line: &str| line.contains("roster_rejected") && line.contains("level=alert");
        wait_until("no alert", || Ok(nyc.log()?.lines().any(alert))).await?;
        add(report, name, &probe::handshake(nyc.address(), &identity, b"thalweg/relay/1").await?);
        report.add(format!("alerts_{name}"), "1", 1.0);
        oracle.abort();
        _ = oracle.await;
    }
    Ok(())
}

async fn wait_until(what: &str, is: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is()? {
        ensure!(begun.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The same members in a higher version, signed with another key.
fn forge_roster(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let signed = Signed::<Roster>::open(bytes, &Ed25519).ok().context("a roster is corrupt")?;
    let mut roster = signed.into_value();
    roster.version += 100;
    Ok(Signed::sign(roster, &PrivateKey::from_seed(&[7; 32])).encode())
}

async fn false_oracle(
    of: &TestNode,
    bytes: Vec<u8>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let key = State::open(of.state())?.node_key()?;
    let acceptor = Acceptor::new(&key, Arc::new(AdmitAll), &[Protocol::Api])?;
    let listener =
        TcpListener::bind(of.address()).await.context("cannot listen on the oracle's address")?;
    let bytes: Arc<[u8]> = bytes.into();
    Ok(tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            if let Ok(channel) = acceptor.accept(tcp).await {
                tokio::spawn(answer(channel, Arc::clone(&bytes)));
            }
        }
    }))
}

/// Sends the same answer to each request; requests have no bodies.
async fn answer(mut channel: Channel<TcpStream>, bytes: Arc<[u8]>) {
    let mut head = Vec::new();
    while let Ok(byte) = channel.read_u8().await {
        head.push(byte);
        if head.len() > HEAD {
            return;
        }
        if head.ends_with(b"\r\n\r\n") {
            let length = bytes.len();
            let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let reply = [reply.as_bytes(), &bytes].concat();
            if channel.write_all(&reply).await.is_err() || channel.flush().await.is_err() {
                return;
            }
            head.clear();
        }
    }
}
