//! Tests of changed, lost and revoked parents.

use crate::{
    members::{member, name, signed},
    scene::{Node, frame, next, nodes, place, publisher, stream, subscribe_request, subscriber},
};
use thalweg_stream::{
    ParentRoute, Plan, StreamPlan,
    local::{ReceivedItem, StreamError},
};
use thalweg_wire::{
    mesh::{Member, Role},
    stream::leg::{Ending, ParentMessage},
};

fn plan(parent: u8) -> Plan {
    let stream_plan =
        StreamPlan { parent: Some(ParentRoute::direct(name(parent))), ..StreamPlan::default() };
    Plan { version: parent.into(), streams: [(stream(), stream_plan)].into() }
}

/// Waits until the node receives the stream from this parent.
async fn takes_from(node: &Node, parent: u8) {
    let parent = name(parent);
    node.soon("it has the parent", |report| report["streams"][0]["parent"] == parent.as_str())
        .await;
}

#[tokio::test]
async fn a_new_parent_resumes_where_the_last_one_stopped() {
    let nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    // n1 has the stream too.
    let mut near = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    let mut viewer = subscriber(&nodes[2], subscribe_request(Some(0))).await;
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
async fn a_dead_parent_is_replaced_by_the_one_in_the_next_plan() {
    let mut nodes = nodes(3, |_, settings| settings.relay = true).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let _near = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    nodes[2].streams.set_plan(plan(1));
    let mut viewer = subscriber(&nodes[2], subscribe_request(None)).await;
    takes_from(&nodes[2], 1).await;
    assert_eq!(place(&next(&mut viewer).await.0), 0);
    nodes[1].kill().await;
    source.send(&frame(1)).await.unwrap();
    nodes[2].streams.set_plan(plan(0));
    takes_from(&nodes[2], 0).await;
    source.send(&frame(2)).await.unwrap();
    for expected in [1, 2] {
        assert_eq!(place(&next(&mut viewer).await.0), expected, "n0 still has the frame");
    }
}

#[tokio::test]
async fn a_revoked_member_receives_nothing_more() {
    let nodes = nodes(2, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewer = subscriber(&nodes[1], subscribe_request(Some(0))).await;
    next(&mut viewer).await;
    nodes[0].offer(&signed(2, vec![member(0, Some(([127, 0, 0, 1], 9).into()), &[Role::Relay])]));
    nodes[0]
        .soon("its leg is gone", |report| {
            report["streams"][0]["legs"].as_array().is_some_and(Vec::is_empty)
        })
        .await;
    source.send(&frame(1)).await.unwrap();
    // Its own node still has the old roster and retries for a while.
    let ended = loop {
        match viewer.next().await {
            Ok(ReceivedItem::Message(ParentMessage::End(why))) => break why,
            Ok(ReceivedItem::Message(_)) => {}
            Ok(ReceivedItem::Frame(_, frame)) => panic!("frame {}", place(&frame)),
            Err(StreamError::Broken(why)) => panic!("{why}"),
            Err(why) => panic!("{why}"),
        }
    };
    assert!(matches!(ended, Ending::Failed(_)), "{ended}");
}

#[tokio::test]
async fn a_member_that_loses_its_tag_loses_the_stream_and_no_other_does() {
    let nodes = nodes(3, |_, settings| settings.subscribe = vec!["@viewer".parse().unwrap()]).await;
    let mut source = publisher(&nodes[0]).await;
    source.send(&frame(0)).await.unwrap();
    nodes[0].soon("a frame is there", |report| report["streams"][0]["next"] == 1).await;
    let mut viewers = [
        subscriber(&nodes[1], subscribe_request(Some(0))).await,
        subscriber(&nodes[2], subscribe_request(Some(0))).await,
    ];
    for viewer in &mut viewers {
        next(viewer).await;
    }
    let roster = nodes[0].roster();
    let without = |n: u8, mut member: Member| {
        member.tags.retain(|_| member.name != name(n));
        member
    };
    let members = roster.members.iter().map(|member| without(1, member.clone())).collect();
    nodes[0].offer(&signed(2, members));
    let [first, second] = &mut viewers;
    let ended = loop {
        match first.next().await.unwrap() {
            ReceivedItem::Message(ParentMessage::End(why)) => break why,
            ReceivedItem::Message(_) => {}
            ReceivedItem::Frame(_, frame) => panic!("frame {}", place(&frame)),
        }
    };
    assert_eq!(ended, Ending::Revoked);
    source.send(&frame(1)).await.unwrap();
    assert_eq!(place(&next(second).await.0), 1);
}

#[tokio::test]
async fn a_publisher_hears_that_its_node_stops() {
    let mut nodes = nodes(1, |_, _| {}).await;
    let mut source = publisher(&nodes[0]).await;
    nodes[0].streams.end();
    let ended = source.ended().await;
    assert!(matches!(ended, Some(Ending::Failed(_))), "{ended:?}");
    nodes[0].kill().await;
}
