//! Other parents, and none.

use crate::{
    members::{member, name, signed},
    scene::{Node, ask, frame, next, nodes, place, publisher, stream, subscriber},
};
use thalweg_stream::{
    Plan, Planned, Way,
    local::{Coming, StreamError},
};
use thalweg_wire::{
    mesh::Role,
    stream::leg::{Ending, Said},
};

fn plan(parent: u8) -> Plan {
    let planned = Planned { parent: Some(Way::direct(name(parent))), ..Planned::default() };
    Plan { version: parent.into(), streams: [(stream(), planned)].into() }
}

/// Whether it takes the stream from that node.
async fn takes_from(node: &Node, parent: u8) {
    let parent = name(parent);
    node.soon("it takes the stream from there", |report| {
        report["streams"][0]["parent"] == parent.as_str()
    })
    .await;
}

#[tokio::test]
async fn another_parent_goes_on_where_the_last_one_was() {
    let nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // n1 has it, too.
    let mut near = subscriber(&nodes[1], ask(Some(0))).await;
    let mut viewer = subscriber(&nodes[2], ask(Some(0))).await;
    let (mut sent, mut seen) = (1, 0);
    for parent in [1, 0, 1] {
        nodes[2].streams.set_plan(plan(parent));
        takes_from(&nodes[2], parent).await;
        for _ in 0..20 {
            source.send(&frame(sent)).await.unwrap();
            sent += 1;
        }
        while seen < sent {
            let (frame, missing) = next(&mut viewer).await;
            assert_eq!((place(&frame), missing.len()), (seen, 0), "by {parent}");
            seen += 1;
        }
    }
    for place in 0..sent {
        assert_eq!(crate::scene::place(&next(&mut near).await.0), place);
    }
}

#[tokio::test]
async fn a_parent_that_dies_is_replaced_by_the_plans_next_one() {
    let mut nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let _near = subscriber(&nodes[1], ask(Some(0))).await;
    nodes[2].streams.set_plan(plan(1));
    let mut viewer = subscriber(&nodes[2], ask(None)).await;
    takes_from(&nodes[2], 1).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    nodes[1].kill().await;
    source.send(&frame(1)).await.unwrap();
    nodes[2].streams.set_plan(plan(0));
    takes_from(&nodes[2], 0).await;
    source.send(&frame(2)).await.unwrap();
    for expected in [1, 2] {
        assert_eq!(place(&next(&mut viewer).await.0), expected, "none is lost: n0 still had it");
    }
}

#[tokio::test]
async fn a_member_that_is_revoked_gets_nothing_more() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], ask(Some(0))).await;
    next(&mut viewer).await;
    nodes[0].offer(&signed(2, vec![member(0, Some(([127, 0, 0, 1], 9).into()), &[Role::Relay])]));
    nodes[0]
        .soon("its leg is gone", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    source.send(&frame(1)).await.unwrap();
    // Its own node still believes the old roster, and tries in vain for a while.
    let ended = loop {
        match viewer.next().await {
            Ok(Coming::Said(Said::End(why))) => break why,
            Ok(Coming::Said(_)) => {}
            Ok(Coming::Frame(_, frame)) => panic!("frame {}", place(&frame)),
            Err(StreamError::Broken(why)) => panic!("{why}"),
            Err(why) => panic!("{why}"),
        }
    };
    assert!(matches!(ended, Ending::Failed(_)), "{ended}");
}
