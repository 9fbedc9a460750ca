//! The steps of a submission.

use crate::scene::{BEFORE, Client, Host, UNTIL, introduce, key, name, others, own, pair};
use std::io::Cursor;
use thalweg_dropbox::{
    BoxKey, Envelope,
    collect::{settle, sources},
    commit, find_nodes, new_keys, push,
};
use thalweg_net::Ed25519;
use thalweg_wire::{
    Signer as _,
    bistro::{Evidence, Refusal, Trust, TrustBasis},
};

#[tokio::test]
async fn a_submission_is_stamped_received_and_reported_to_the_destination() {
    let (one, two) = pair().await;
    let client = Client::member(&vec![7; 3_000_000]);
    let stamp = client.commit(&one).await.unwrap();
    let said = stamp.value();
    assert_eq!((said.number, said.client), (1, client.id()));
    assert!((BEFORE..UNTIL).contains(&said.time.as_unix_nanos()));

    let receipt = client.push(&two, &stamp).await.unwrap();
    assert_eq!((receipt.value().node.as_str(), receipt.signer()), ("n2", key(2).id()));
    // If it is pushed again, the receipt is the same, and nothing is sent.
    assert_eq!(client.push(&two, &stamp).await.unwrap(), receipt);

    let view = one.view(|view| view.arrivals.len() == 1).await;
    assert_eq!(view.missing().count(), 0);
    let sources = sources(&view);
    let arrival = &sources[0].arrivals[0];
    assert_eq!((sources[0].node.as_str(), &arrival.receipt), ("n2", &receipt));
    let kept = std::fs::read(String::from_utf8(sources[0].paths().remove(0)).unwrap()).unwrap();
    assert!(kept == client.data);

    // Data as `gather` would bring it is checked; no client of this version has encrypted it.
    let into = tempfile::tempdir().unwrap();
    let landed = into.path().join(arrival.id().text());
    let box_key = BoxKey::of(&key(1), &name("taxes")).unwrap();
    std::fs::write(&landed, &kept).unwrap();
    let plain = settle(arrival, into.path(), into.path(), &box_key).outcome.unwrap_err();
    assert!(plain.contains("not encrypted") && plain.contains("strike taxes 1"), "{plain}");
    std::fs::write(&landed, vec![8; 3_000_000]).unwrap();
    let other = settle(arrival, into.path(), into.path(), &box_key).outcome.unwrap_err();
    assert!(other.contains("does not match"), "{other}");
    assert_eq!(std::fs::read_dir(into.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn data_stored_by_a_node_is_readable_only_at_the_destination() {
    let (one, two) = pair().await;
    let data = [&b"the secret of the bid"[..], &[7; 200_000]].concat();
    let mut client = Client::member(&[]);
    let sheet = client.sheet(&one).await;
    let keys = new_keys(&sheet, &client.id()).unwrap();
    let (commitment, content) = commit(&data[..], &keys, &client.nonce, &client.id()).unwrap();
    let mut envelope = Envelope::new(Cursor::new(&data), keys, content, &commitment).unwrap();
    std::io::Read::read_to_end(&mut envelope, &mut client.data).unwrap();
    let stamp = client.commit(&one).await.unwrap();
    assert_eq!(stamp.value().commitment, commitment);
    client.push(&two, &stamp).await.unwrap();

    let view = one.view(|view| view.arrivals.len() == 1).await;
    let arrival = &view.arrivals[&1][0];
    let path = String::from_utf8(arrival.delivery.path.clone()).unwrap();
    let kept = std::fs::read(path).unwrap();
    assert!(!kept.windows(10).any(|bytes| bytes == &data[..10]));
    let into = tempfile::tempdir().unwrap();
    let landed = into.path().join(arrival.id().text());
    let settled = |key: &BoxKey| {
        std::fs::write(&landed, &kept).unwrap();
        settle(arrival, into.path(), into.path(), key).outcome
    };
    // The node that stores it has another key.
    let nodes_own = BoxKey::of(&key(2), &name("taxes")).unwrap();
    let refused = settled(&nodes_own).unwrap_err();
    assert!(refused.contains("not encrypted to this box's key"), "{refused}");
    let file = settled(&BoxKey::of(&key(1), &name("taxes")).unwrap()).unwrap();
    assert_eq!(file, into.path().join("000001-return.pdf"));
    assert!(std::fs::read(&file).unwrap() == data);
    assert!(!landed.exists());
    // The destination's receipt compares the data with the commitment, as the client's does.
    let receipt = std::fs::read_to_string(into.path().join("000001-return.pdf.receipt")).unwrap();
    let receipt = Evidence::read(&receipt, &Ed25519).unwrap();
    assert_eq!((receipt.keys, receipt.content), (Some(keys), Some(content)));
    assert_eq!(content.0, *blake3::hash(&data).as_bytes());
}

#[tokio::test]
async fn evidence_is_verifiable_with_the_destination_s_key() {
    let (one, two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let receipt = client.push(&two, &stamp).await.unwrap();
    let sheet = client.sheet(&one).await;
    let text = client.evidence(stamp, Some(receipt), Some(sheet)).to_string();
    let evidence = Evidence::read(&text, &Ed25519).unwrap();
    let mut trust = Trust::default();
    assert_eq!(evidence.judge(&trust).proven, [""; 0]);
    trust.add(&key(1).id().to_string()[..32]).unwrap();
    let verdict = evidence.judge(&trust);
    assert!(verdict.is_whole(), "{verdict:?}");
    assert_eq!((verdict.destination, verdict.node), (TrustBasis::Given, Some(TrustBasis::Sheet)));
    assert!(verdict.proven[0].contains("return.pdf"), "{verdict:?}");
}

#[tokio::test]
async fn simultaneous_submissions_get_distinct_numbers_and_times() {
    let (one, _two) = pair().await;
    let clients: Vec<_> = (0..50).map(|n| Client::member(&[n])).collect();
    let stamps = clients.iter().map(|client| client.commit(&one));
    let stamps = futures_util::future::join_all(stamps).await;
    let mut seen: Vec<_> =
        stamps.iter().map(|s| s.as_ref().unwrap().value()).map(|s| (s.time, s.number)).collect();
    seen.sort();
    seen.dedup_by_key(|(time, _)| *time);
    assert_eq!(seen.len(), 50);
    let mut numbers: Vec<_> = seen.iter().map(|(_, number)| *number).collect();
    numbers.sort();
    assert_eq!(numbers, (1..=50).collect::<Vec<u64>>());
    assert_eq!(one.view(|_| true).await.stamps.len(), 50);
}

#[tokio::test]
async fn the_destination_takes_data_itself_if_a_box_has_no_other_nodes() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(own(&[])).await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let sheet = client.sheet(&one).await;
    assert_eq!(sheet.value().nodes, [one.sheet_node()]);
    client.push(&one, &stamp).await.unwrap();
    let view = one.view(|view| view.arrivals.len() == 1).await;
    assert_eq!(sources(&view)[0].node, name("n1"));
}

#[tokio::test]
async fn the_client_finds_a_node_that_answers_and_has_room() {
    let (mut one, mut two, mut three) =
        (Host::new(1).await, Host::new(2).await, Host::new(3).await);
    introduce(&[&one, &two, &three]);
    one.start(own(&["n2", "n3", "n9"])).await;
    let small = thalweg_units::ByteSize::from_bytes(10);
    let two_s = thalweg_dropbox::Settings { max_total: small, ..others() };
    two.start(two_s).await;
    three.start(others()).await;
    let client = Client::member(&[1; 1000]);
    let stamp = client.commit(&one).await.unwrap();
    let sheet = client.sheet(&one).await;
    let (mut offers, others) = find_nodes(&client.connector, sheet.value(), 1000, 0.0).await;
    let offer = offers.first_mut().unwrap();
    assert_eq!((offer.node.name.as_str(), others.len()), ("n3", 2));
    assert!(others.iter().any(|(name, why)| name.as_str() == "n2" && why.contains("no room")));
    let data = &mut Cursor::new(&client.data);
    let pushed = push((&mut offer.line, &offer.node), &stamp, client.nonce, data).await;
    assert_eq!(pushed.unwrap().value().node, name("n3"));
    assert_eq!(client.refused(&two, &stamp).await, Refusal::NoRoom(1000));
}
