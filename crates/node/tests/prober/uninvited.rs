//! Members that the oracle has not sent, or that do nothing with its order.

use crate::{
    flows::{ALL, greet, read, show},
    oracle::Fake,
    orders::order,
    scene::{Node, Set, introduce, key, signed_ticket, ticket},
};
use thalweg_net::cut_over;
use thalweg_units::WallTime;
use thalweg_wire::mesh::{
    measure::Outcome,
    measure_flow::{Answer, ReceiverMessage, Refusal},
    measure_ticket::{Ticket, TicketError},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn three() -> (Node, Node, Node) {
    let start = |n| Node::start(n, Set::default());
    let (one, two, three) = (start(1).await, start(2).await, start(3).await);
    introduce(&[&one, &two, &three]);
    (one, two, three)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flow_is_received_without_the_oracles_order_for_this_pair() {
    let (_one, two, _three) = three().await;
    let past = Ticket { expiry: WallTime::from_unix_nanos(1), ..ticket(5, 3, 2) };
    let never = Ticket { expiry: WallTime::from_unix_nanos(u64::MAX), ..ticket(6, 3, 2) };
    // The mesh's key is 200, as for the roster.
    for (shown, why) in [
        (String::new(), TicketError::Unsigned),
        (ticket(1, 3, 2).sign(&key(3)), TicketError::Unsigned),
        (signed_ticket(2, 1, 2), TicketError::AnotherPair),
        (signed_ticket(3, 3, 1), TicketError::AnotherPair),
        (signed_ticket(4, 2, 3), TicketError::AnotherPair),
        (past.sign(&key(200)), TicketError::Expired),
        (never.sign(&key(200)), TicketError::Future),
    ] {
        let (answer, _) = show(&two, 3, &shown, ALL).await;
        assert_eq!(answer, Answer::Refused(Refusal::Void(why)));
    }
    assert_eq!(two.spent(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_valid_for_one_flow_of_its_bytes() {
    let (_one, two, _three) = three().await;
    let small = Ticket { bytes: 100_000, ..ticket(7, 3, 2) }.sign(&key(200));
    let (answer, channel) = show(&two, 3, &small, ALL).await;
    let Answer::Accepted(limits) = answer else { panic!("{answer:?}") };
    assert_eq!(limits.bytes, 100_000);
    let (mut tcp, _) = cut_over(channel).await.unwrap();
    tcp.write_all(&[7; 1000]).await.unwrap();
    tcp.shutdown().await.unwrap();
    two.line("event=measured_by peer=n3").await;
    let (again, _) = show(&two, 3, &small, ALL).await;
    assert_eq!(again, Answer::Refused(Refusal::Void(TicketError::Used)));
    assert_eq!(two.spent(), 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_without_bytes_ends_by_itself() {
    let (_one, two, _three) = three().await;
    let (_, channel) = greet(&two, 3, ALL).await;
    let (mut tcp, _) = cut_over(channel).await.unwrap();
    // It gets its verdict and is left, although it never closes its end.
    loop {
        if let ReceiverMessage::Verdict(verdict) = read(&mut tcp).await.unwrap() {
            assert_eq!(verdict.bytes, 0);
            break;
        }
    }
    assert_eq!(tcp.read(&mut [0; 9]).await.unwrap(), 0);
    two.line("no data arrived").await;
    let (next, _) = greet(&two, 1, ALL).await;
    assert!(matches!(next, Answer::Accepted(_)), "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_hellos_neither_fill_the_log_nor_delay_others() {
    let (mut one, two, _three) = three().await;
    let oracle = Fake::start().await;
    one.obey(&oracle);
    for _ in 0..40 {
        let (answer, _) = show(&two, 3, "", ALL).await;
        assert_eq!(answer, Answer::Refused(Refusal::Void(TicketError::Unsigned)));
    }
    oracle.order(1, order(1, "n2"));
    let done = oracle.done().await;
    assert!(matches!(done.outcome, Outcome::Measured { .. }), "{done:?}");
    assert_eq!(two.lines_until("refused=", "order=1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_in_another_flow_is_reported_as_busy() {
    let (mut one, two, _three) = three().await;
    let oracle = Fake::start().await;
    one.obey(&oracle);
    // It lasts five seconds; on a machine that is slower than that, it is repeated.
    for id in 1.. {
        let (answer, channel) = greet(&two, 3, ALL).await;
        assert!(matches!(answer, Answer::Accepted(_)), "{answer:?}");
        let (mut tcp, _) = cut_over(channel).await.unwrap();
        tcp.write_all(&[7; 1000]).await.unwrap();
        oracle.order(1, order(id, "n2"));
        match oracle.done().await.outcome {
            Outcome::Busy => break,
            Outcome::Measured { .. } if id < 9 => two.line("peer=n3").await,
            other => panic!("{other:?}"),
        };
    }
}
