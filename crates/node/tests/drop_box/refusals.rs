//! What is refused, and with which errors.

use crate::scene::{BEFORE, Client, Host, UNTIL, introduce, key, name, others, own, pair};
use thalweg_dropbox::Settings;
use thalweg_dropbox::{NodeChannel, NodeChannelError, PushError};
use thalweg_net::{Ed25519, channel::ChannelError};
use thalweg_node::daemon::LocalClient;
use thalweg_units::{ByteSize, WallTime};
use thalweg_wire::{
    Signed, Signer as _,
    bistro::{
        Commitment, Denial, Intent, Nonce, Receipt, ReceiptDelivery, Refusal, StampId, StrikeReply,
        StrikeRequest, SubmitReply, SubmitRequest, envelope_size,
    },
};

#[tokio::test]
async fn a_late_client_is_told_the_time_and_the_deadline() {
    let (one, _two) = pair().await;
    let (early, late) = (Client::member(b"early"), Client::member(b"late"));
    let stamp = early.commit(&one).await.unwrap();
    one.set_clock(UNTIL);
    let until = WallTime::from_unix_nanos(UNTIL);
    let refused = late.commit(&one).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Late { now, until: u } if *now >= until && *u == until));
    let said = refused.to_string();
    assert!(said.contains("2033-05-18T03:33:20") && said.contains("too late"), "{said}");
    // The answer was lost: the same commitment gets its stamp however late it is requested.
    assert_eq!(early.commit(&one).await.unwrap(), stamp);
    assert!(matches!(late.commit(&one).await, Err(Refusal::Late { .. })));
}

#[tokio::test]
async fn one_wrong_reading_of_the_clock_does_not_close_a_box_for_ever() {
    let (one, _two) = pair().await;
    let before = Client::member(b"before").commit(&one).await.unwrap();
    // An hour too late for one request, by which nobody gets a stamp.
    one.set_clock(UNTIL + 3_600_000_000_000);
    let client = Client::member(b"in time");
    assert!(matches!(client.commit(&one).await, Err(Refusal::Late { .. })));
    one.set_clock(BEFORE + 5_000_000_000);
    let stamp = client.commit(&one).await.unwrap();
    assert_eq!(stamp.value().time.as_unix_nanos(), BEFORE + 5_000_000_000);
    // Earlier stamps remain earlier than later ones.
    one.set_clock(BEFORE - 5_000_000_000);
    let after = Client::member(b"after").commit(&one).await.unwrap();
    assert!(before.value().time < stamp.value().time && stamp.value().time < after.value().time);
}

#[tokio::test]
async fn strangers_get_no_channel_unless_the_settings_say_so() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    let stranger = Client::stranger(1, b"data");
    let mut listed = own(&[]);
    listed.keys = [stranger.id()].into();
    for (settings, admitted) in
        [(own(&[]), false), (Settings { open: true, ..own(&[]) }, true), (listed, true)]
    {
        one.start(settings).await;
        let mut line = stranger.line(&one).await.unwrap();
        let asked = line.ask(&SubmitRequest::Sheet(name("taxes"))).await;
        match admitted {
            true => assert!(matches!(asked, Ok(SubmitReply::Sheet(_))), "{asked:?}"),
            false => {
                let refused = matches!(
                    asked,
                    Err(NodeChannelError::Channel(ChannelError::NotAdmitted)
                        | NodeChannelError::Broken(_))
                );
                assert!(refused, "{asked:?}");
            }
        }
    }
    // A stranger other than the listed one.
    let mut line = Client::stranger(2, b"").line(&one).await.unwrap();
    line.ask(&SubmitRequest::Sheet(name("taxes"))).await.unwrap_err();
}

#[tokio::test]
async fn members_can_be_left_out() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(Settings { members: false, ..own(&[]) }).await;
    assert_eq!(Client::member(b"").commit(&one).await, Err(Refusal::NotAdmitted));
}

#[tokio::test]
async fn data_that_does_not_match_is_refused_and_named() {
    let (one, two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let other = |nonce: u8, data: &[u8]| {
        let mut other = Client::member(data);
        other.nonce = Nonce::from_bytes([nonce; 32]);
        other
    };
    let size = Refusal::Size { stamped: 4, came: 5 };
    assert_eq!(other(5, b"datum").refused(&two, &stamp).await, size);
    assert_eq!(other(5, b"date").refused(&two, &stamp).await, Refusal::Mismatch);
    assert_eq!(other(6, b"data").refused(&two, &stamp).await, Refusal::Mismatch);
    let settled = two.view(|_| true).await.here;
    assert_eq!((settled.held, settled.bytes), (0, 0));
    // None of this affects the right data.
    client.push(&two, &stamp).await.unwrap();
}

#[tokio::test]
async fn a_stamp_is_valid_only_for_its_key_box_and_destination() {
    let (one, two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let mut thief = Client::member(b"data");
    thief.connector = thalweg_net::channel::Connector::new(&key(1)).unwrap();
    assert_eq!(thief.refused(&two, &stamp).await, Refusal::NotYours);
    // A stamp signed by another key than the destination's.
    let own = Signed::sign(stamp.value().clone(), &key(109));
    assert!(
        matches!(client.refused(&two, &own).await, Refusal::Forged(why) if why.contains("not the destination's"))
    );
    let mut elsewhere = stamp.value().clone();
    elsewhere.drop_box = name("grants");
    let elsewhere = Signed::sign(elsewhere, &key(1));
    assert_eq!(client.refused(&two, &elsewhere).await, Refusal::NoBox(name("grants")));
    // The same hash under another key is another's commitment, which this data does not open.
    let mut intent = client.intent();
    let mut line = NodeChannel::open(&thief.connector, &one.target().port).await.unwrap();
    intent.label = "stolen".parse().unwrap();
    let stolen = one.target().commit(&mut line, key(1).id(), &[intent]).await.unwrap().remove(0);
    assert_eq!(thief.refused(&two, &stolen.unwrap()).await, Refusal::Mismatch);
}

#[tokio::test]
async fn the_wrong_node_refuses_and_names_the_right_one() {
    let (one, two) = pair().await;
    let client = Client::member(b"data");
    let (drop_box, destination) = (name("taxes"), name("n1"));
    assert_eq!(client.commit(&two).await, Err(Refusal::NotDestination { drop_box, destination }));
    let stamp = client.commit(&one).await.unwrap();
    assert!(
        matches!(client.refused(&one, &stamp).await, Refusal::Unable(why) if why.contains("other nodes"))
    );
    let mut line = client.line(&one).await.unwrap();
    let asked = line.ask(&SubmitRequest::Sheet(name("nothing"))).await.unwrap();
    assert_eq!(asked, SubmitReply::Refused(Refusal::NoBox(name("nothing"))));
}

/// An envelope of this many bytes as a node sees it: these bytes, and some around them.
fn envelope(size: u64, of: u8) -> Vec<u8> {
    vec![of; envelope_size(size) as usize]
}

#[tokio::test]
async fn the_contents_of_a_box_are_bounded() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    let bytes = ByteSize::from_bytes;
    let (whole, part) = (envelope_size(10), envelope_size(1));
    let settings = Settings {
        open: true,
        max_bytes: bytes(10),
        max_total: bytes(2 * whole + part + 20),
        max_per_key: 2,
        max_bytes_per_key: Some(bytes(whole + part)),
        max_submissions: 4,
        ..own(&[])
    };
    one.start(settings.clone()).await;
    let commit = |data: Vec<u8>| {
        let client = Client::member(&data);
        let one = &one;
        async move { client.commit(one).await.map(drop) }
    };
    assert_eq!(commit(envelope(11, 0)).await, Err(Refusal::TooLarge { size: 11, max: 10 }));
    assert_eq!((commit(envelope(10, 0)).await, commit(envelope(1, 0)).await), (Ok(()), Ok(())));
    assert_eq!(commit(b"2".to_vec()).await, Err(Refusal::TooMany(2)));
    assert_eq!(commit(envelope(1, 0)).await, Ok(()), "the same again is no third");
    let stranger = async |n, data: &[u8]| Client::stranger(n, data).commit(&one).await.map(drop);
    assert_eq!(stranger(1, &envelope(10, 1)).await, Ok(()));
    assert_eq!(
        stranger(1, &envelope(2, 1)).await,
        Err(Refusal::TooMuch(whole + part)),
        "a key's bytes"
    );
    assert_eq!(stranger(2, &[2; 21]).await, Err(Refusal::Full), "bytes");
    assert_eq!(stranger(2, b"").await, Ok(()));
    assert_eq!(stranger(3, b"").await, Err(Refusal::Full), "submissions");
}

#[tokio::test]
async fn one_key_fills_no_more_of_a_box_than_its_share() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    let bytes = ByteSize::from_bytes;
    let share = 2 * envelope_size(5);
    let settings = Settings {
        open: true,
        max_bytes: bytes(5),
        // As without a setting: a twentieth.
        max_total: bytes(20 * share),
        ..own(&[])
    };
    one.start(settings.clone()).await;
    let commit =
        async |one: &Host, n, data: &[u8]| Client::stranger(n, data).commit(one).await.map(drop);
    let less = &envelope(5, 1)[1..];
    assert_eq!(
        (commit(&one, 1, &envelope(5, 0)).await, commit(&one, 1, less).await),
        (Ok(()), Ok(()))
    );
    assert_eq!(commit(&one, 1, b"12").await, Err(Refusal::TooMuch(share)));
    assert_eq!(commit(&one, 1, b"1").await, Ok(()), "all of its share");
    assert_eq!(commit(&one, 2, &envelope(5, 0)).await, Ok(()), "another key's is untouched");
    // The count is still known after a restart.
    one.start(settings).await;
    assert_eq!(commit(&one, 1, b"2").await, Err(Refusal::TooMuch(share)));
    assert_eq!(commit(&one, 1, &envelope(5, 0)).await, Ok(()), "the same again is no more");
    // There is always room for one submission of the largest size.
    let large = Settings { max_total: bytes(900), max_bytes: bytes(50), ..own(&[]) };
    assert_eq!(
        (large.bytes_per_key(), own(&[]).bytes_per_key()),
        (envelope_size(50), 5_000_000_000)
    );
}

#[tokio::test]
async fn a_client_that_asks_too_often_is_told_when_to_retry() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(Settings { max_rate: 1, ..own(&[]) }).await;
    let mut refused = 0;
    for n in 0..12 {
        match Client::member(&[n]).commit(&one).await {
            Err(Refusal::Slower(ms)) => refused += usize::from((1..=1000).contains(&ms)),
            done => drop(done.unwrap()),
        }
    }
    assert!((1..=2).contains(&refused), "{refused}");
}

#[tokio::test]
async fn only_the_nodes_of_a_box_deliver_receipts_and_only_their_own() {
    let (one, _two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let receipt = |n: u8| {
        let receipt = Receipt {
            stamp: StampId::from_stamp(&stamp),
            node: name(&format!("n{n}")),
            time: stamp.value().time,
        };
        Signed::sign(receipt, &key(n)).encode()
    };
    let delivery = |receipt: Vec<u8>| {
        let (stamp, path) = (stamp.encode(), b"/data".to_vec());
        SubmitRequest::Deliver(vec![ReceiptDelivery { stamp, receipt, nonce: client.nonce, path }])
    };
    let bring = async |by: u8, receipt| {
        let connector = thalweg_net::channel::Connector::new(&key(by)).unwrap();
        let mut line = NodeChannel::open(&connector, &one.target().port).await.unwrap();
        match line.ask(&delivery(receipt)).await.unwrap() {
            SubmitReply::Delivered(mut answers) => answers.remove(0).map_err(|denial| {
                let about = StampId::from_stamp(&stamp);
                Denial::read(&denial, &key(1).id(), &about.0, &Ed25519).unwrap()
            }),
            SubmitReply::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    };
    assert!(
        matches!(bring(9, receipt(9)).await, Err(Refusal::Forged(why)) if why.contains("not a node"))
    );
    assert_eq!(bring(109, receipt(9)).await, Err(Refusal::NotAdmitted), "no node's key");
    assert!(matches!(bring(2, receipt(9)).await, Err(Refusal::Forged(_))));
    assert!(one.view(|_| true).await.arrivals.is_empty());
    assert_eq!(bring(2, receipt(2)).await, Ok(()));
    assert_eq!(bring(2, receipt(2)).await, Ok(()), "again");
    assert_eq!(one.view(|_| true).await.arrivals[&1].len(), 1);
}

#[tokio::test]
async fn only_the_destination_may_have_data_removed() {
    let (one, two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    client.push(&two, &stamp).await.unwrap();
    let ids = vec![StampId::from_stamp(&stamp)];
    let forget = async |by: u8| {
        let connector = thalweg_net::channel::Connector::new(&key(by)).unwrap();
        let mut line = NodeChannel::open(&connector, &two.target().port).await.unwrap();
        line.ask(&SubmitRequest::Forget(name("taxes"), ids.clone())).await.unwrap()
    };
    assert_eq!(forget(109).await, SubmitReply::Refused(Refusal::NotAdmitted));
    assert_eq!(forget(101).await, SubmitReply::Forgot(1), "the destination's command line");
    assert_eq!(forget(1).await, SubmitReply::Forgot(0));
    let here = two.view(|_| true).await.here;
    assert_eq!((here.held, here.bytes, here.gone), (0, 0, 1));
    // Its receipt is unchanged.
    client.push(&two, &stamp).await.unwrap();
}

#[tokio::test]
async fn a_box_of_another_key_is_not_continued() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(own(&[])).await;
    Client::member(b"data").commit(&one).await.unwrap();
    one.kill().await;
    let (log, _) = thalweg_base::log::Log::to_queue();
    let membership = thalweg_mesh::Membership::new(key(200).id(), None);
    let opened = thalweg_dropbox::DropBoxes::open(
        &[own(&[])],
        one.dir(),
        (name("n1"), key(3)),
        membership,
        log,
    );
    assert!(opened.unwrap_err().to_string().contains("another key"));
}

#[tokio::test]
async fn a_strangers_first_request_is_short() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(Settings { open: true, ..own(&[]) }).await;
    let intents = |client: &Client| {
        let one = |n: u8| Intent {
            label: format!("{n}-{}", "n".repeat(150)).parse().unwrap(),
            commitment: Commitment { hash: [n; 32], ..client.intent().commitment },
        };
        (0..40).map(one).collect::<Vec<_>>()
    };
    let stranger = Client::stranger(1, b"data");
    let long = SubmitRequest::Commit(name("taxes"), intents(&stranger));
    let mut line = stranger.line(&one).await.unwrap();
    line.ask(&long).await.unwrap_err();
    // A refused request does not lift the limit.
    let mut line = stranger.line(&one).await.unwrap();
    let asked = line.ask(&SubmitRequest::Sheet(name("nothing"))).await.unwrap();
    assert!(matches!(asked, SubmitReply::Refused(_)));
    line.ask(&long).await.unwrap_err();
    let mut line = stranger.line(&one).await.unwrap();
    assert!(matches!(
        line.ask(&SubmitRequest::Sheet(name("taxes"))).await.unwrap(),
        SubmitReply::Sheet(_)
    ));
    assert!(
        matches!(line.ask(&long).await.unwrap(), SubmitReply::Stamps(stamps) if stamps.len() == 40)
    );
    // The library's client keeps to the limit; a member may send long requests at once.
    let other = Client::stranger(2, b"data");
    let mut line = other.line(&one).await.unwrap();
    let stamps = one.target().commit(&mut line, other.id(), &intents(&other)).await.unwrap();
    assert!(stamps.len() == 40 && stamps.iter().all(Result::is_ok));
    let member = Client::member(b"data");
    let mut line = member.line(&one).await.unwrap();
    let long = SubmitRequest::Commit(name("taxes"), intents(&member));
    assert!(matches!(line.ask(&long).await.unwrap(), SubmitReply::Stamps(_)));
}

#[tokio::test]
async fn a_struck_submission_loses_its_data_and_its_key_cannot_submit() {
    let mut one = Host::new(1).await;
    introduce(&[&one]);
    one.start(Settings { open: true, ..own(&[]) }).await;
    let [first, second, third] = [1, 2, 3].map(|n| Client::stranger(n, b"data"));
    let mut stamps = Vec::new();
    for client in [&first, &second, &third] {
        let stamp = client.commit(&one).await.unwrap();
        client.push(&one, &stamp).await.unwrap();
        stamps.push(stamp);
    }
    one.view(|view| view.arrivals.len() == 3).await;
    let local = LocalClient::find(&one.dir().join("node.sock")).await.unwrap();
    let (numbers, keys) = (vec![1], vec![third.id()]);
    let request = StrikeRequest { drop_box: name("taxes"), numbers, keys };
    let struck = local.strike(&request).await.unwrap();
    assert_eq!(struck, StrikeReply { submissions: 2, bytes: 8 });
    let view = one.view(|view| view.stamps.len() == 1).await;
    assert_eq!((view.arrivals.len(), view.here.held, view.stamps[0].number), (1, 1, 2));
    assert_eq!(first.refused(&one, &stamps[0]).await, Refusal::NotAdmitted);
    assert_eq!(third.commit(&one).await, Err(Refusal::NotAdmitted));
    // Other submissions of a key are not affected if one of them is struck.
    assert!(Client::stranger(1, b"other").commit(&one).await.is_ok());
    let none = StrikeRequest { drop_box: name("nothing"), ..request };
    assert!(local.strike(&none).await.unwrap_err().to_string().contains("no drop box"));
}

/// The node in between cannot refuse in the destination's name: the signature would be missing.
#[tokio::test]
async fn a_node_passes_on_the_destination_s_refusal_with_its_signature() {
    let (one, mut two) = pair().await;
    let client = Client::member(b"data");
    let stamp = client.commit(&one).await.unwrap();
    let local = LocalClient::find(&one.dir().join("node.sock")).await.unwrap();
    let request = StrikeRequest { drop_box: name("taxes"), numbers: vec![1], keys: Vec::new() };
    local.strike(&request).await.unwrap();
    // The node does not know that yet.
    client.push(&two, &stamp).await.unwrap();
    two.view(|view| view.here.untold == 0).await;
    let denied = async |two: &Host| match client.push(two, &stamp).await {
        Err(PushError::Denied(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(denied(&two).await, Refusal::NotAdmitted);
    two.start(others()).await;
    assert_eq!(denied(&two).await, Refusal::NotAdmitted, "its book has it");
    assert!(one.view(|_| true).await.arrivals.is_empty());
}
