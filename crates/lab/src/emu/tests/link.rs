//! Exact times of one link, and changes at run time.

use super::super::Link;
use super::{KIND, arrivals, config, link, ms, us};
use crate::topology::{LinkChange, LinkConfig, Loss, Probability, Queue, Reorder, Steps};
use std::time::Duration;
use thalweg_units::{ByteSize, Rate, Time};

const MS: u64 = 1_000_000;

#[test]
fn a_packet_leaves_after_its_own_time_and_arrives_after_the_delay() {
    // 1000 bytes at 8 Mbit/s take 1 ms.
    let mut link = link(&config(8.0, 10, 10_000));
    for packet in 0..3 {
        assert!(link.enter(us(500), 1000, KIND, packet));
    }
    assert_eq!(link.next_arrival(), Some(us(11_500)));
    let half = MS / 2;
    assert_eq!(arrivals(&mut link, ms(12)), [(11 * MS + half, 0)]);
    link.enter(ms(20), 1000, KIND, 3);
    let rest = [(12 * MS + half, 1), (13 * MS + half, 2), (31 * MS, 3)];
    assert_eq!(arrivals(&mut link, ms(100)), rest);
    assert_eq!(link.next_arrival(), None);
}

#[test]
fn the_queue_limit_is_exact_to_the_byte() {
    let mut link = link(&config(8.0, 0, 3000));
    let accepted: Vec<_> = (0..4).map(|i| link.enter(ms(0), 1000, KIND, i)).collect();
    assert_eq!(accepted, [true, true, true, false]);
    // After 0.5 ms 500 bytes have left: 500 fit, 501 do not.
    assert!(!link.enter(us(500), 501, KIND, 4));
    assert!(link.enter(us(500), 500, KIND, 5));
    assert_eq!(link.backlog(us(500)), 3000);
    let truth = link.truth(ms(10), false);
    assert_eq!((truth.packets, truth.bytes, truth.queue_drops), (4, 3500, 2));
    assert_eq!((truth.queue_max_bytes, truth.queue_limit_bytes), (3000, Some(3000)));
}

#[test]
fn without_a_rate_there_is_no_queue() {
    let free = LinkConfig { delay: Duration::from_millis(7), ..LinkConfig::default() };
    let mut link = link(&free);
    for i in 0..1000 {
        assert!(link.enter(ms(1), 65_535, KIND, i));
    }
    assert_eq!(link.in_flight(), 1000);
    assert!(arrivals(&mut link, ms(8)).iter().all(|a| a.0 == 8 * MS));
    assert_eq!(link.truth(ms(8), false).queue_limit_bytes, None);
}

#[test]
fn a_late_caller_gets_the_same_times() {
    let mut link = link(&config(8.0, 10, 10_000));
    link.enter(ms(1), 1000, KIND, ());
    assert_eq!(link.pop(ms(5_000)).map(|a| a.at), Some(ms(12)));
}

#[test]
fn queued_packets_are_served_at_a_new_rate() {
    let mut link = link(&config(8.0, 10, 100_000));
    for packet in 0..4 {
        link.enter(ms(0), 1000, KIND, packet);
    }
    // At 1.5 ms one and a half packets have left; 2.5 ms of work at 8 Mbit/s take 10 ms at 2 Mbit/s.
    link.set(us(1500), &LinkChange::rate(Rate::from_mbps(2.0)));
    assert_eq!(link.backlog(us(1500)), 2500);
    let times: Vec<_> = arrivals(&mut link, ms(100)).iter().map(|a| a.0 / 1000).collect();
    assert_eq!(times, [11_000, 13_500, 17_500, 21_500]);
    assert_eq!(link.rate(), Some(Rate::from_mbps(2.0)));
    link.enter(ms(100), 1000, KIND, 4);
    link.set(ms(101), &LinkChange::rate(Rate::from_mbps(8.0)));
    assert_eq!(arrivals(&mut link, ms(200)), [(111 * MS + MS * 3 / 4, 4)]);
}

#[test]
fn a_link_that_gets_a_rate_gets_a_queue() {
    let mut link = link(&LinkConfig::default());
    link.set(ms(1), &LinkChange::rate(Rate::from_mbps(8.0)));
    assert_eq!(link.queue_limit(), 100_000);
    let queue = Some(Queue::bdp(1.0, Duration::from_millis(40)));
    link.set(ms(2), &LinkChange { queue, ..LinkChange::default() });
    assert_eq!(link.queue_limit(), 40_000);
    link.set(ms(3), &LinkChange::rate(Rate::from_mbps(80.0)));
    assert_eq!(link.queue_limit(), 40_000);
    link.enter(ms(4), 1000, KIND, ());
    assert_eq!(link.pop(ms(5)).map(|a| a.at), Some(us(4100)));
}

#[test]
fn a_queue_in_packets_takes_a_number_of_packets_of_any_size() {
    let queue = Queue::Packets(3);
    let mut link = link(&LinkConfig { queue, ..config(8.0, 10, 0) });
    let entered = |link: &mut Link<u32>, at, len| link.enter(at, len, KIND, len);
    assert_eq!(
        [1500, 40, 40, 40].map(|len| entered(&mut link, ms(0), len)),
        [true, true, true, false]
    );
    // The first one has departed after 1.5 ms.
    assert_eq!([40, 40].map(|len| entered(&mut link, us(1510), len)), [true, false]);
    assert_eq!(link.truth(ms(2), false).queue_drops, 2);
}

#[test]
fn a_link_that_goes_down_loses_packets_in_flight() {
    let mut link = link(&config(8.0, 10, 10_000));
    for packet in 0..4 {
        link.enter(ms(0), 1000, KIND, packet);
    }
    assert_eq!(arrivals(&mut link, us(11_500)), [(11 * MS, 0)]);
    link.set(us(11_500), &LinkChange::up(false));
    assert_eq!(link.next_arrival(), None);
    assert!(!link.enter(ms(12), 1000, KIND, 4));
    link.set(ms(20), &LinkChange::up(true));
    assert!(link.enter(ms(20), 1000, KIND, 5));
    assert_eq!(arrivals(&mut link, ms(100)), [(31 * MS, 5)]);
    let truth = link.truth(ms(100), false);
    // All four packets had left the queue; three of them were in the delay line.
    assert_eq!((truth.packets, truth.down_drops, truth.drops()), (5, 4, 4));
    assert_eq!(truth.episodes.len(), 1);
}

#[test]
fn a_shorter_delay_does_not_reorder() {
    let mut link = link(&config(8.0, 50, 10_000));
    link.enter(ms(0), 1000, KIND, 0);
    let delay = Some(Duration::from_millis(5));
    link.set(ms(2), &LinkChange { delay, ..LinkChange::default() });
    link.enter(ms(2), 1000, KIND, 1);
    assert_eq!(arrivals(&mut link, ms(100)), [(51 * MS, 0), (51 * MS, 1)]);
    link.enter(ms(200), 1000, KIND, 2);
    assert_eq!(arrivals(&mut link, ms(300)), [(206 * MS, 2)]);
}

#[test]
fn a_trace_changes_the_rate_by_itself() {
    let step = |at, mbps| (Duration::from_millis(at), Rate::from_mbps(mbps));
    let trace =
        Steps { steps: vec![step(0, 8.0), step(10, 1.0)], every: Some(Duration::from_millis(20)) };
    let mut link = link(&LinkConfig {
        trace: Some(trace),
        queue: Queue::Bytes(ByteSize::from_bytes(100_000)),
        ..LinkConfig::default()
    });
    // The first packet: 9.5 to 10 ms at 8 Mbit/s serve 500 bytes, and 4 ms at 1 Mbit/s the rest.
    for packet in 0..4 {
        link.enter(us(9_500), 1000, KIND, packet);
    }
    let mut seen = Vec::new();
    while let Some(at) = link.next_arrival() {
        seen.extend(arrivals(&mut link, at).iter().map(|a| a.0 / 1000));
    }
    // The second packet: 14 to 20 ms at 1 Mbit/s serve 750 bytes, and 0.25 ms at 8 Mbit/s the rest.
    assert_eq!(seen, [14_000, 20_250, 21_250, 22_250]);
    link.set(ms(30), &LinkChange::rate(Rate::from_mbps(4.0)));
    link.enter(ms(45), 1000, KIND, 9);
    assert_eq!(arrivals(&mut link, ms(100)), [(47 * MS, 9)]);
}

#[test]
fn a_held_packet_is_overtaken() {
    let reorder = Reorder { probability: Probability::ALWAYS, by: Duration::from_millis(5) };
    let mut link = link(&LinkConfig { reorder, ..config(8.0, 10, 10_000) });
    link.enter(ms(0), 1000, KIND, 0);
    link.set(ms(0), &LinkChange { reorder: Some(Reorder::default()), ..LinkChange::default() });
    for packet in 1..7 {
        link.enter(ms(0), 1000, KIND, packet);
    }
    let order: Vec<_> = arrivals(&mut link, ms(100)).iter().map(|a| a.1).collect();
    // It arrives at 16 ms, together with packet 5; a packet in order goes first.
    assert_eq!(order, [1, 2, 3, 4, 5, 0, 6]);
    assert_eq!(link.truth(ms(100), false).reordered, 1);
}

#[test]
fn copies_and_flipped_bits_are_made_and_counted() {
    let mut link = link(&LinkConfig {
        duplicate: Probability::ALWAYS,
        corrupt: Probability::ALWAYS,
        ..config(8.0, 0, 10_000)
    });
    link.enter(ms(0), 1000, KIND, 'a');
    let first = link.pop(ms(9)).unwrap();
    assert_eq!(link.pop(ms(9)), Some(first.clone()));
    assert!(first.corrupt.is_some() && link.pop(ms(9)).is_none());
    let truth = link.truth(ms(9), false);
    assert_eq!((truth.packets, truth.duplicated, truth.corrupted), (1, 1, 1));
}

#[test]
fn random_loss_happens_after_the_queue() {
    let mut link = link(&LinkConfig { loss: Loss::random(1.0), ..config(8.0, 0, 2000) });
    let accepted: Vec<_> = (0..3).map(|i| link.enter(ms(0), 1000, KIND, i)).collect();
    assert_eq!(accepted, [true, true, false]);
    assert_eq!(link.next_arrival(), None);
    let truth = link.truth(ms(9), false);
    assert_eq!((truth.packets, truth.random_losses, truth.queue_drops), (2, 2, 1));
}

#[test]
fn an_earlier_time_counts_as_the_latest_one() {
    let mut link = link(&config(8.0, 0, 10_000));
    link.enter(ms(5), 1000, KIND, 0);
    link.enter(ms(3), 1000, KIND, 1);
    assert_eq!(arrivals(&mut link, Time::MAX), [(6 * MS, 0), (7 * MS, 1)]);
}
