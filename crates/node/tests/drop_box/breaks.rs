//! Nodes that are killed, and connections that break, in between.

use crate::scene::{BEFORE, Client, Host, introduce, others, own, pair};
use std::io::Cursor;
use thalweg_dropbox::push;
use thalweg_wire::bistro::{StampId, SubmitReply, SubmitRequest};

#[tokio::test]
async fn a_killed_destination_knows_all_that_it_has_stamped() {
    let (mut one, _two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    // Its clock is an hour behind afterwards; dates continue to grow nevertheless.
    one.set_clock(BEFORE - 3_600_000_000_000);
    one.start(own(&["n2"])).await;
    assert_eq!(client.commit(&one).await.unwrap(), stamp);
    let next = Client::member(b"next").commit(&one).await.unwrap();
    assert!(next.value().time > stamp.value().time);
    assert_eq!(next.value().number, 2);
}

#[tokio::test]
async fn receipts_arrive_after_an_absence_of_the_destination_and_a_kill_of_the_node() {
    let (mut one, mut two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    one.kill().await;
    let receipt = client.push(&two, &stamp).await.unwrap();
    two.start(others()).await;
    assert_eq!(two.view(|_| true).await.here.untold, 1);
    one.start(own(&["n2"])).await;
    let view = one.view(|view| view.arrivals.len() == 1).await;
    assert_eq!(view.arrivals[&1][0].receipt, receipt);
    two.view(|view| view.here.untold == 0).await;
    // Not reported again after another start.
    two.start(others()).await;
    assert_eq!(two.view(|_| true).await.here.untold, 0);
    assert_eq!(client.push(&two, &stamp).await.unwrap(), receipt);
}

#[tokio::test]
async fn a_push_continues_where_it_broke() {
    let (one, mut two) = pair().await;
    let client = Client::member(&(0..5_000_000_u32).map(|n| n as u8).collect::<Vec<_>>());
    let stamp = client.commit(&one).await.unwrap();
    let ask = || SubmitRequest::Push {
        stamp: stamp.encode(),
        nonce: client.nonce,
        bytes: client.data.len() as u64,
    };
    let mut line = client.line(&two).await.unwrap();
    assert_eq!(line.ask(&ask()).await.unwrap(), SubmitReply::From(0));
    let mut sent = 0;
    let broken = line.send(|buffer| {
        if sent >= 3_000_000 {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        let n = buffer.len().min(client.data.len() - sent);
        buffer[..n].copy_from_slice(&client.data[sent..sent + n]);
        sent += n;
        Ok(n)
    });
    broken.await.unwrap_err();
    drop(line);
    // The node notices, and keeps what arrived; then it is killed.
    let part = two.files().data().join("part").join(StampId::from_stamp(&stamp).text());
    while std::fs::metadata(&part).map_or(0, |m| m.len()) < 2_000_000 {
        tokio::task::yield_now().await;
    }
    two.start(others()).await;
    let mut line = client.line(&two).await.unwrap();
    let SubmitReply::From(from) = line.ask(&ask()).await.unwrap() else {
        panic!("it has forgotten")
    };
    assert!(from >= 2_000_000, "{from}");
    drop(line);
    let receipt = loop {
        // Until the node has noticed that the last attempt is gone.
        match client.push(&two, &stamp).await {
            Err(thalweg_dropbox::PushError::Refused(thalweg_wire::bistro::Refusal::Busy)) => {}
            done => break done.unwrap(),
        }
    };
    let kept = two.files().data().join(&StampId::from_stamp(&stamp).text()[..2]);
    let kept = kept.join(StampId::from_stamp(&stamp).text());
    assert!(std::fs::read(kept).unwrap() == client.data && receipt.value().node.as_str() == "n2");
}

#[tokio::test]
async fn a_damaged_part_is_pushed_again() {
    let (one, two) = pair().await;
    let client = Client::member(&vec![3; 2_000_000]);
    let stamp = client.commit(&one).await.unwrap();
    let part = two.files().data().join("part").join(StampId::from_stamp(&stamp).text());
    // As a power failure leaves it: the right length of other bytes.
    std::fs::write(&part, vec![0; 1_000_000]).unwrap();
    let mut line = client.line(&two).await.unwrap();
    let node = two.sheet_node();
    let data = &mut Cursor::new(&client.data);
    push((&mut line, &node), &stamp, client.nonce, data).await.unwrap();
}

#[tokio::test]
async fn data_that_was_complete_when_the_node_was_killed_is_not_sent_again() {
    let (one, two) = pair().await;
    let client = Client::member(&[3; 100_000]);
    let stamp = client.commit(&one).await.unwrap();
    let id = StampId::from_stamp(&stamp).text();
    let shard = two.files().data().join(&id[..2]);
    std::fs::create_dir(&shard).unwrap();
    std::fs::write(shard.join(&id), &client.data).unwrap();
    let mut line = client.line(&two).await.unwrap();
    let ask = SubmitRequest::Push { stamp: stamp.encode(), nonce: client.nonce, bytes: 100_000 };
    assert_eq!(line.ask(&ask).await.unwrap(), SubmitReply::From(100_000));
    let answer = line.send(|_| Ok(0)).await.unwrap();
    assert!(matches!(answer, SubmitReply::Receipt(_)), "{answer:?}");
}

#[tokio::test]
async fn a_full_disk_at_a_node_is_reported_and_the_node_continues() {
    let (mut one, mut two) = (Host::new(1).await, Host::new(2).await);
    introduce(&[&one, &two]);
    one.start(own(&["n2"])).await;
    // A box of a quarter of a megabyte stands for a small file system: what is stored may not grow beyond it.
    let small = thalweg_units::ByteSize::from_bytes(250_000);
    let settings = || thalweg_dropbox::Settings { max_total: small, ..others() };
    two.start(settings()).await;
    let (first, second) = (Client::member(&[1; 200_000]), Client::member(&[2; 200_000]));
    let stamps = (first.commit(&one).await.unwrap(), second.commit(&one).await.unwrap());
    first.push(&two, &stamps.0).await.unwrap();
    let no_room = thalweg_wire::bistro::Refusal::NoRoom(200_000);
    assert_eq!(second.refused(&two, &stamps.1).await, no_room);
    // After a restart it knows what it holds.
    two.start(settings()).await;
    assert_eq!(second.refused(&two, &stamps.1).await, no_room);
    let third = Client::member(&[3; 50_000]);
    let stamp = third.commit(&one).await.unwrap();
    third.push(&two, &stamp).await.unwrap();
}
