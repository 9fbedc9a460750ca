//! Cross traffic: mean rates, and the capacity that it leaves to other traffic.

use super::{KIND, config, ms, us};
use crate::{
    emu::{Link, LinkTruth},
    topology::{CrossConfig, CrossShape, LinkChange, LinkConfig, Steps},
};
use std::time::Duration;
use thalweg_units::{Rate, Time};

fn mbps(mbps: f64) -> Rate {
    Rate::from_mbps(mbps)
}

fn source(shape: CrossShape) -> CrossConfig {
    CrossConfig { shape, size: 1000, start: Duration::ZERO, stop: None }
}

/// The record of a fast link after `seconds` of this traffic alone.
fn alone(cross: &CrossConfig, seed: u64, seconds: u64) -> LinkTruth {
    let link = Link::<()>::new(&config(1000.0, 0, 1_000_000), 1, Time::ZERO);
    let mut link = link.with_cross(cross, seed).with_series(Duration::from_secs(1), 2);
    link.truth(ms(seconds * 1000), true)
}

fn pareto(shape: f64) -> CrossShape {
    let (on, off) = (Duration::from_millis(20), Duration::from_millis(60));
    CrossShape::Pareto { rate: mbps(8.0), on, off, shape }
}

#[test]
fn constant_traffic_is_exact() {
    // 4 Mbit/s in packets of 1000 bytes are 500 a second for any phase.
    let truth = alone(&source(CrossShape::Cbr(mbps(4.0))), 3, 100);
    assert_eq!((truth.cross_packets, truth.packets), (50_000, 0));
    assert!(truth.bins.iter().all(|b| b.bytes == [0, 500_000]), "one bin differs");
}

#[test]
fn poisson_traffic_has_its_mean_and_variance() {
    let seed = 4;
    let truth = alone(&source(CrossShape::Poisson(mbps(4.0))), seed, 1000);
    let counts: Vec<_> = truth.bins.iter().map(|b| b.bytes[1] as f64 / 1000.0).collect();
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n;
    eprintln!("seed {seed}: mean {mean:.2}, variance {variance:.1} for 500 and 500");
    // Standard errors: √(500/1000) = 0.71 and 500 · √(2/1000) = 22.
    assert!((mean - 500.0).abs() < 3.0 * 0.71, "seed {seed}: mean {mean}");
    assert!((variance - 500.0).abs() < 3.0 * 22.4, "seed {seed}: variance {variance}");
}

#[test]
fn pareto_traffic_has_its_mean_and_its_bursts() {
    // 20 of 80 ms at 8 Mbit/s: 2 Mbit/s, 250 packets a second. Light tails (3) average out; with 1.5 the variance is
    // infinite, so the bound is loose.
    for (seed, shape, tolerance) in [(5, 3.0, 0.03), (6, 1.5, 0.3)] {
        let truth = alone(&source(pareto(shape)), seed, 2000);
        let rate = truth.cross_packets as f64 / 2000.0;
        eprintln!("seed {seed}, shape {shape}: {rate:.1} packets/s for 250");
        assert!((rate / 250.0 - 1.0).abs() < tolerance, "seed {seed}: {rate}");
        let counts: Vec<_> = truth.bins.iter().map(|b| b.bytes[1] as f64 / 1000.0).collect();
        let variance = counts.iter().map(|c| (c - rate).powi(2)).sum::<f64>() / 2000.0;
        assert!(variance > 2.0 * rate, "seed {seed}: no burstier than Poisson ({variance})");
    }
}

#[test]
fn stepped_traffic_follows_its_steps() {
    let step = |at, rate| (Duration::from_secs(at), mbps(rate));
    let steps = Steps {
        steps: vec![step(0, 2.0), step(2, 8.0), step(4, 0.0)],
        every: Some(Duration::from_secs(5)),
    };
    let truth = alone(&source(CrossShape::Steps(steps)), 7, 10);
    let kilobytes: Vec<_> = truth.bins.iter().map(|b| b.bytes[1] / 1000).collect();
    // The packet that is complete exactly at the end of a step enters in the next bin.
    assert_eq!(kilobytes, [249, 250, 1000, 1000, 1, 249, 250, 1000, 1000, 1]);
}

#[test]
fn no_traffic_follows_a_last_step_of_zero() {
    let step = |at, rate| (Duration::from_secs(at), mbps(rate));
    for every in [None, Some(Duration::from_secs(9))] {
        let silent = Steps { steps: vec![step(0, 0.0)], every };
        assert_eq!(alone(&source(CrossShape::Steps(silent)), 1, 100).cross_packets, 0);
    }
    let steps = Steps { steps: vec![step(0, 8.0), step(1, 0.0)], every: None };
    assert_eq!(alone(&source(CrossShape::Steps(steps)), 1, 100).cross_packets, 1000);
}

#[test]
fn traffic_keeps_to_its_start_and_stop() {
    let cross = CrossConfig {
        start: Duration::from_secs(2),
        stop: Some(Duration::from_secs(5)),
        ..source(CrossShape::Cbr(mbps(8.0)))
    };
    let truth = alone(&cross, 8, 8);
    let kilobytes: Vec<_> = truth.bins.iter().map(|b| b.bytes[1] / 1000).collect();
    assert_eq!(kilobytes, [0, 0, 1000, 1000, 1000, 0, 0, 0]);
}

/// Runs a flow that keeps half the queue full for `seconds`. Returns its rate in Mbit/s and the record.
fn saturate(cross: &[CrossConfig], seconds: u64) -> (f64, LinkTruth) {
    let link = Link::new(&config(10.0, 5, 100_000), 1, Time::ZERO);
    let mut link = link.with_series(Duration::from_millis(100), 2);
    for (i, cross) in cross.iter().enumerate() {
        link = link.with_cross(cross, i as u64);
    }
    for t in 0..seconds * 2000 {
        let now = us(t * 500);
        while link.backlog(now) < 50_000 {
            link.enter(now, 1500, KIND, ());
        }
        while link.pop(now).is_some() {}
    }
    let truth = link.truth(ms(seconds * 1000), true);
    (truth.bytes as f64 * 8e-6 / seconds as f64, truth)
}

#[test]
fn a_saturating_flow_gets_what_cross_traffic_leaves() {
    let (rate, truth) = saturate(&[source(CrossShape::Cbr(mbps(4.0)))], 20);
    assert!((rate - 6.0).abs() < 0.01, "{rate}");
    assert_eq!((truth.cross_drops, truth.queue_drops), (0, 0));
    assert!((truth.residual(1.0, 19.0).unwrap().as_mbps() - 6.0).abs() < 0.01);
    let two = [source(CrossShape::Cbr(mbps(1.0))), source(CrossShape::Poisson(mbps(3.0)))];
    let (rate, truth) = saturate(&two, 60);
    let residual = truth.residual(0.0, 60.0).unwrap().as_mbps();
    // The standard deviation of the Poisson source over 60 s: √(375 · 60) packets of 8000 bits = 0.02 Mbit/s.
    assert!((rate - 6.0).abs() < 0.06 && (rate - residual).abs() < 0.01, "{rate} {residual}");
}

#[test]
fn cross_traffic_fills_the_queue_and_is_dropped_there() {
    let overload = source(CrossShape::Cbr(mbps(20.0)));
    let link = Link::new(&config(10.0, 0, 10_000), 1, Time::ZERO);
    let mut link = link.with_cross(&overload, 1);
    let mut dropped = 0;
    for t in 0..1000 {
        dropped += u64::from(!link.enter(ms(t), 1000, KIND, ()));
    }
    let truth = link.truth(ms(1000), false);
    assert_eq!(truth.queue_drops, dropped);
    assert!(truth.cross_drops > 1000 && dropped > 300, "{truth:?}");
    assert!((9.9..=10.0).contains(&((truth.bytes + truth.cross_bytes) as f64 * 8e-6)));
    assert_eq!(truth.episodes.len(), 1);
}

#[test]
fn cross_traffic_does_not_depend_on_other_packets() {
    let cross = source(CrossShape::Poisson(mbps(4.0)));
    let quiet = alone(&cross, 9, 20);
    let link = Link::new(&config(1000.0, 0, 1_000_000), 1, Time::ZERO);
    let mut link = link.with_cross(&cross, 9).with_series(Duration::from_secs(1), 2);
    for t in 0..20_000 {
        link.enter(ms(t), 1500, KIND, ());
    }
    assert_eq!(link.truth(ms(20_000), true).cross_packets, quiet.cross_packets);
    assert_ne!(alone(&cross, 10, 20).bins, quiet.bins);
}

#[test]
fn a_link_that_is_down_carries_no_cross_traffic() {
    let free = LinkConfig::default();
    let mut link =
        Link::<()>::new(&free, 1, Time::ZERO).with_cross(&source(CrossShape::Cbr(mbps(8.0))), 1);
    link.set(ms(1000), &LinkChange::up(false));
    link.set(ms(3000), &LinkChange::up(true));
    assert_eq!(link.truth(ms(4000), false).cross_packets, 2000);
}
