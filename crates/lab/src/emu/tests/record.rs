//! The record of a link: bins, queue over time, episodes, bounds.

use super::{KIND, config, ms, us};
use crate::{
    emu::{ClassId, Link, LinkTruth},
    topology::{LinkChange, LinkConfig, Loss},
};
use std::time::Duration;
use thalweg_units::{Rate, Time};

fn recorded(config: &LinkConfig, bin_ms: u64) -> Link<()> {
    Link::new(config, 1, Time::ZERO).with_series(Duration::from_millis(bin_ms), 3)
}

#[test]
fn bins_hold_capacity_bytes_by_class_and_the_queue() {
    let mut link = recorded(&config(8.0, 10, 100_000), 10);
    // 20 kB at once at 5 ms: the queue over time is a triangle of 20 ms.
    for i in 0..20 {
        link.enter(ms(5), 1000, ClassId(i % 2), ());
    }
    let truth = link.truth(ms(40), true);
    assert_eq!(truth.bin_s, 0.01);
    let capacity: Vec<_> = truth.bins.iter().map(|b| b.capacity_bits).collect();
    assert_eq!(capacity, [Some(80_000); 4]);
    let bytes: Vec<_> = truth.bins.iter().map(|b| b.bytes.clone()).collect();
    // Departures at 6, 7 … 25 ms; one on the edge of a bin counts in the next.
    assert_eq!(bytes, [[2000, 2000, 0], [5000, 5000, 0], [3000, 3000, 0], [0, 0, 0]]);
    let max: Vec<_> = truth.bins.iter().map(|b| b.queue_max_bytes).collect();
    assert_eq!(max, [20_000, 0, 0, 0]);
    let mean: Vec<_> = truth.bins.iter().map(|b| b.queue_mean_bytes.round() as u64).collect();
    // (20 + 15)/2 kB for half of the first bin; 15 to 5 kB in the second; 5 to 0 kB for half of the third.
    assert_eq!(mean, [8750, 10_000, 1250, 0]);
}

#[test]
fn bins_add_up_to_the_totals() {
    let mut link = recorded(&config(3.0, 10, 20_000), 7);
    for i in 0..5000_u64 {
        link.enter(us(i * 370), 40 + (i * 7919 % 1461) as u32, ClassId((i % 2) as u16), ());
    }
    let truth = link.truth(ms(2500), true);
    let bytes: u64 = truth.bins.iter().flat_map(|b| &b.bytes).sum();
    assert_eq!(bytes, truth.bytes);
    assert!(
        truth
            .bins
            .iter()
            .all(|b| 8 * b.bytes.iter().sum::<u64>() <= b.capacity_bits.unwrap() + 8 * 1500)
    );
    let capacity: u64 = truth.bins.iter().filter_map(|b| b.capacity_bits).sum();
    assert!((capacity as f64 - 3e6 * 2.5).abs() < 400.0, "{capacity}");
    let most = truth.bins.iter().map(|b| b.queue_max_bytes).max();
    assert_eq!(most, Some(truth.queue_max_bytes));
}

#[test]
fn capacity_follows_rate_and_state() {
    let mut link = recorded(&config(8.0, 0, 10_000), 1000);
    link.set(ms(500), &LinkChange::rate(Rate::from_mbps(4.0)));
    link.set(ms(1500), &LinkChange::up(false));
    link.set(ms(2750), &LinkChange::up(true));
    let truth = link.truth(ms(3000), true);
    let capacity: Vec<_> = truth.bins.iter().map(|b| b.capacity_bits).collect();
    assert_eq!(capacity, [Some(6_000_000), Some(2_000_000), Some(1_000_000)]);
    let mut free = recorded(&LinkConfig::default(), 1000);
    free.enter(ms(1), 100, KIND, ());
    assert_eq!(free.truth(ms(10), true).bins[0].capacity_bits, None);
}

#[test]
fn an_idle_link_stores_no_bins_until_its_first_use() {
    let mut link = recorded(&config(8.0, 0, 10_000), 100);
    link.advance(ms(5000));
    assert!(link.truth(ms(5000), true).bins.is_empty());
    link.enter(ms(5050), 1000, KIND, ());
    let truth = link.truth(ms(5100), true);
    assert_eq!(truth.bins.len(), 51);
    assert!(truth.bins.iter().all(|b| b.capacity_bits == Some(800_000)));
}

#[test]
fn the_history_is_bounded_by_doubling_the_width() {
    let mut link = recorded(&config(8.0, 0, 10_000), 1);
    for t in 0..10_000 {
        link.enter(ms(t), 100, ClassId((t % 2) as u16), ());
    }
    let truth = link.truth(ms(10_000), true);
    assert_eq!((truth.bin_s, truth.bins.len()), (0.004, 2500));
    let bytes: u64 = truth.bins.iter().flat_map(|b| &b.bytes).sum();
    assert_eq!(bytes, 1_000_000);
    assert!(truth.bins.iter().all(|b| b.capacity_bits == Some(32_000)));
    assert!(truth.bins.iter().all(|b| b.bytes == [200, 200, 0]), "{:?}", truth.bins[0]);
}

#[test]
fn drops_close_together_are_one_episode() {
    let mut link = recorded(&LinkConfig { loss: Loss::random(1.0), ..LinkConfig::default() }, 100);
    for t in [0, 50, 149, 249, 1000, 1099] {
        link.enter(ms(t), 100, KIND, ());
    }
    let truth = link.truth(ms(2000), false);
    let seen: Vec<_> = truth.episodes.iter().map(|e| (e.start_s, e.end_s, e.drops)).collect();
    assert_eq!(seen, [(0.0, 0.149, 3), (0.249, 0.249, 1), (1.0, 1.099, 2)]);
    // Asking twice lists the last one once.
    assert_eq!(link.truth(ms(2000), false).episodes.len(), 3);
}

#[test]
fn episodes_past_the_bound_are_counted() {
    let mut link = recorded(&LinkConfig { loss: Loss::random(1.0), ..LinkConfig::default() }, 100);
    for t in 0..10_005 {
        link.enter(ms(t * 200), 100, KIND, ());
    }
    let truth = link.truth(ms(10_005 * 200), false);
    assert_eq!((truth.episodes.len(), truth.episodes_unlisted), (10_000, 5));
}

#[test]
fn packets_that_never_left_the_queue_do_not_count_as_traffic() {
    let mut link = recorded(&config(8.0, 0, 10_000), 100);
    for _ in 0..4 {
        link.enter(ms(0), 1000, KIND, ());
    }
    link.set(us(1500), &LinkChange::up(false));
    let truth = link.truth(ms(100), true);
    assert_eq!((truth.packets, truth.down_drops), (1, 4));
    assert_eq!(truth.bins[0].bytes[0], 1000);
}

#[test]
fn a_record_survives_json() {
    let mut link = recorded(&config(8.0, 0, 2000), 100);
    for _ in 0..4 {
        link.enter(ms(0), 1000, KIND, ());
    }
    let truth = link.truth(ms(250), true);
    let json = serde_json::to_string(&truth).unwrap();
    assert_eq!(serde_json::from_str::<LinkTruth>(&json).unwrap(), truth);
}
