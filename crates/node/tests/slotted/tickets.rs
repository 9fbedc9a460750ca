//! Tickets lend what their owner may read, to the node that they name, and nothing else.

use crate::scene::{JOB, Scene, Sort, dialer, key, name};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_wire::object::{
    DeniedGrant, Failure, Grant, ReadRequest, Reply, Request, SpoolId, Ticket, TransferHash,
};

async fn tickets(
    remote: &mut Remote,
    to: u8,
    reads: Vec<ReadRequest>,
) -> Result<Ticket, DeniedGrant> {
    let request = Request::Tickets(vec![Grant { reads, to: name(to) }]);
    match remote.request(&request).await.unwrap() {
        Reply::Tickets(mut tickets) => tickets.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn reads(scene: &Scene) -> Vec<ReadRequest> {
    let inventory = scene.inventory().await;
    let read = |wanted: thalweg_files::inventory::MissingFile| {
        let bytes = wanted.file.snapshot.size;
        ReadRequest { file: wanted.file, from: 0, bytes }
    };
    inventory.files.into_iter().map(read).collect()
}

/// Redeems a ticket at the first node as node `n`, with that node's key.
async fn redeem(scene: &Scene, n: u8, ticket: Ticket) -> Result<Vec<u8>, Failure> {
    let dialer = dialer(n, &key(n), &scene.membership);
    let mut remote = Remote::open(&dialer, &name(0), &[]).await.unwrap();
    remote.ask(&Request::Redeem(ticket)).await.unwrap();
    let parts = match remote.parts().await {
        Ok(parts) => parts,
        Err(RemoteError::Refused { why, .. }) => return Err(why),
        Err(other) => panic!("{other}"),
    };
    let (mut all, mut part) = (Vec::new(), Vec::new());
    for _ in 0..parts {
        remote.part(&mut part).await.unwrap()?;
        all.extend_from_slice(&part);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_is_valid_once_for_one_node_and_its_owner_learns_what_was_sent() {
    // The node's files are only for the destination.
    let first = Sort::Honest { to: vec!["n3"], spool: 1 << 20 };
    let scene = Scene::new(&[first, Sort::open(), Sort::open()]).await;
    scene.nodes[0].put("a", b"secret");
    let reads = reads(&scene).await;
    let mut remote = Remote::open(&scene.dialer(), &name(0), &[]).await.unwrap();
    let ticket = tickets(&mut remote, 2, reads.clone()).await.unwrap();
    assert_eq!(redeem(&scene, 1, ticket).await, Err(Failure::Ticket), "it is for another node");
    let sent = |ticket| Request::Sent(vec![ticket]);
    let unsent = remote.request(&sent(ticket)).await.unwrap();
    assert_eq!(unsent, Reply::Checks(vec![None]));
    assert_eq!(redeem(&scene, 2, ticket).await, Ok(b"secret".to_vec()));
    assert_eq!(redeem(&scene, 2, ticket).await, Err(Failure::Ticket), "it is spent");
    let check = Some(TransferHash(*blake3::hash(b"secret").as_bytes()));
    // A ticket is recorded once its last byte has been sent, which may be a moment after that was read.
    let told = loop {
        let told = remote.request(&sent(ticket)).await.unwrap();
        if told != unsent {
            break told;
        }
    };
    assert_eq!(told, Reply::Checks(vec![Some(vec![check])]));
    // The intermediate may carry the ticket, but neither read the file nor lend it by itself.
    let own = dialer(2, &key(2), &scene.membership);
    let mut own = Remote::open(&own, &name(0), &[]).await.unwrap();
    let denied = tickets(&mut own, 1, reads.clone()).await.unwrap_err();
    assert!(matches!(denied, DeniedGrant { read: 0, why: Failure::NotOffered(_) }), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_data_is_open_to_its_owner_alone() {
    let scene = Scene::new(&[Sort::open(), Sort::open(), Sort::open()]).await;
    scene.nodes[0].put("a", b"data");
    let mut source = Remote::open(&scene.dialer(), &name(0), &[]).await.unwrap();
    let ticket = tickets(&mut source, 2, reads(&scene).await).await.unwrap();
    let mut node = Remote::open(&scene.dialer(), &name(2), &[]).await.unwrap();
    let id = SpoolId { job: JOB, number: 1 };
    let fetch = |bytes| {
        let (from, tickets) = (name(0), vec![ticket]);
        Request::Fetch { id, from, tickets, bytes, then: None, note: Vec::new() }
    };
    let short = node.request(&fetch(3)).await.unwrap_err().to_string();
    assert!(short.contains("no room for 1 more bytes"), "{short}");
    let spent = node.request(&fetch(4)).await.unwrap_err().to_string();
    assert!(spent.contains("n0: the ticket is not valid"), "{spent}");
    let ticket = tickets(&mut source, 2, reads(&scene).await).await.unwrap();
    let (from, tickets) = (name(0), vec![ticket]);
    let fetch = Request::Fetch { id, from, tickets, bytes: 4, then: None, note: Vec::new() };
    let Reply::Fetched { parts, most, ticket, .. } = node.request(&fetch).await.unwrap() else {
        panic!("it was not fetched")
    };
    assert_eq!((parts.len(), most, ticket), (1, 4, None));
    let other = dialer(1, &key(1), &scene.membership);
    let mut other = Remote::open(&other, &name(2), &[]).await.unwrap();
    let refused = other.request(&Request::Spooled(id)).await.unwrap_err().to_string();
    assert!(refused.contains("no entry with this name"), "{refused}");
    other.request(&Request::Drop(vec![id])).await.unwrap();
    node.ask(&Request::Spooled(id)).await.unwrap();
    assert_eq!(node.parts().await.unwrap(), 1, "another's drop is not for it");
}
