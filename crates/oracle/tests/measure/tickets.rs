//! The signed tickets that receivers check before they accept a flow.

use crate::fake::{BYTES, Fake, number, rate, settings};
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{
        Roster,
        measure_ticket::{Ticket, TicketError},
    },
};

#[tokio::test]
async fn an_order_is_signed_with_the_meshs_key_for_its_pair() {
    let mesh = Fake::start(3, settings()).await;
    mesh.work(1..3, u64::MAX, rate);
    let order = mesh.order(0).await;
    let shown = Ticket::bytes_of(&order.ticket).unwrap();
    let key = |n: usize| -> NodeId { mesh.hosts[n].node.id() };
    let to = number(order.to.as_str());
    let by = |mesh_key: &NodeId, from: usize, to: usize| {
        Ticket::admit(&shown, (mesh_key, &Ed25519), (&key(from), &key(to)), mesh.hand.now())
    };
    let bytes = mesh.oracle.roster().borrow().clone();
    let roster = Signed::<Roster>::open(&bytes, &Ed25519).unwrap().into_value();
    let signing = roster.signing_key(mesh.oracle.mesh());
    let ticket = by(&signing, 0, to).unwrap();
    assert_eq!((ticket.order, ticket.bytes), (order.id, BYTES));
    assert_eq!(order.max_bytes, BYTES);
    assert_eq!(by(&signing, 0, 3 - to), Err(TicketError::AnotherPair));
    assert_eq!(by(&signing, 3 - to, to), Err(TicketError::AnotherPair));
    assert_eq!(by(&key(0), 0, to), Err(TicketError::Unsigned), "a node's key is not the mesh's");
    mesh.stop().await;
}
