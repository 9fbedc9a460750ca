//! Properties of a link under random steps, and a comparison with a model that serves bit by bit.

use super::{KIND, config};
use crate::{
    emu::Link,
    topology::{LinkChange, LinkConfig, Probability, Reorder},
};
use proptest::prelude::*;
use std::{collections::VecDeque, time::Duration};
use thalweg_units::{Rate, Time};

/// An event on the link; it follows a pause in microseconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(u32),
    Rate(u64),
    Delay(u64),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        20 => (40..1500_u32).prop_map(Step::Enter),
        1 => (100_000..50_000_000_u64).prop_map(Step::Rate),
        1 => (0..50_u64).prop_map(Step::Delay),
    ];
    prop::collection::vec((0..3000_u64, step), 1..200)
}

/// Plays the steps. Returns the arrivals (ns, step number) and the step numbers of accepted packets.
fn play(link: &mut Link<usize>, steps: &[(u64, Step)]) -> (Vec<(u64, usize)>, Vec<usize>) {
    let (mut now, mut out, mut accepted) = (0, Vec::new(), Vec::new());
    for (i, (pause, step)) in steps.iter().enumerate() {
        now += pause * 1000;
        let at = Time::from_nanos(now);
        out.extend(std::iter::from_fn(|| link.pop(at)).map(|a| (a.at.as_nanos(), a.packet)));
        match *step {
            Step::Enter(len) if link.enter(at, len, KIND, i) => accepted.push(i),
            Step::Enter(_) => {}
            Step::Rate(bps) => link.set(at, &LinkChange::rate(Rate::from_bps(bps))),
            Step::Delay(ms) => {
                let delay = Some(Duration::from_millis(ms));
                link.set(at, &LinkChange { delay, ..LinkChange::default() });
            }
        }
    }
    let rest = std::iter::from_fn(|| link.pop(Time::MAX));
    out.extend(rest.map(|a| (a.at.as_nanos(), a.packet)));
    (out, accepted)
}

/// A queue served bit by bit in the pauses. Returns the departures (ns, step number) and the step numbers of accepted
/// packets.
fn served(mut rate: f64, queue: f64, steps: &[(u64, Step)]) -> (Vec<(f64, usize)>, Vec<usize>) {
    let (mut now, mut out, mut accepted) = (0.0, Vec::new(), Vec::new());
    let mut waiting: VecDeque<(f64, usize)> = VecDeque::new();
    let serve = |waiting: &mut VecDeque<(f64, usize)>, rate: f64, now: &mut f64, until: f64| {
        let mut out = Vec::new();
        while let Some((bits, packet)) = waiting.front_mut() {
            let end = *now + *bits * 1e9 / rate;
            if end > until {
                *bits -= (until - *now) * rate / 1e9;
                break;
            }
            (*now, _) = (end, out.push((end, *packet)));
            waiting.pop_front();
        }
        *now = until;
        out
    };
    for (i, (pause, step)) in steps.iter().enumerate() {
        let until = now + *pause as f64 * 1000.0;
        out.extend(serve(&mut waiting, rate, &mut now, until));
        match *step {
            Step::Enter(len) => {
                let backlog: f64 = waiting.iter().map(|w| w.0 / 8.0).sum();
                if (backlog + 0.5).floor() + f64::from(len) <= queue {
                    waiting.push_back((f64::from(len) * 8.0, i));
                    accepted.push(i);
                }
            }
            Step::Rate(bps) => rate = bps as f64,
            Step::Delay(_) => {}
        }
    }
    out.extend(serve(&mut waiting, rate, &mut now, f64::INFINITY));
    (out, accepted)
}

proptest! {
    /// Departures and drops are those of a queue that is served bit by bit, for any changes of the rate, except for the
    /// nanoseconds that rounding may cost at each change.
    #[test]
    fn departures_are_those_of_a_queue_served_bit_by_bit(steps in steps(), mbps in 1..20_u32) {
        let steps: Vec<_> = steps.into_iter().filter(|s| !matches!(s.1, Step::Delay(_))).collect();
        let mbps = f64::from(mbps);
        let mut link = Link::new(&config(mbps, 0, 20_000), 1, Time::ZERO);
        let (out, accepted) = play(&mut link, &steps);
        let (want, want_accepted) = served(mbps * 1e6, 20_000.0, &steps);
        prop_assert_eq!(accepted, want_accepted);
        prop_assert_eq!(out.len(), want.len());
        for ((at, packet), (want_at, want_packet)) in out.iter().zip(&want) {
            prop_assert_eq!(packet, want_packet);
            prop_assert!((*at as f64 - want_at).abs() < 1000.0, "{} for {}", at, want_at);
        }
    }

    /// For any changes of rate and delay, order is kept and no packet is lost or duplicated.
    #[test]
    fn order_is_kept(steps in steps()) {
        let mut link = Link::new(&config(10.0, 5, 30_000), 1, Time::ZERO);
        let (out, accepted) = play(&mut link, &steps);
        let packets: Vec<_> = out.iter().map(|o| o.1).collect();
        prop_assert_eq!(packets, accepted);
        prop_assert!(out.windows(2).all(|w| w[0].0 <= w[1].0));
    }

    /// Between any two arrivals no more bits come out than the rate allows, and the queue only delays or drops.
    #[test]
    fn output_never_exceeds_the_rate(steps in steps(), mbps in 1..20_u32) {
        let steps: Vec<_> = steps.into_iter().filter(|s| matches!(s.1, Step::Enter(_))).collect();
        let config = config(f64::from(mbps), 7, 20_000);
        let mut link = Link::new(&config, 1, Time::ZERO);
        let (out, _) = play(&mut link, &steps);
        let len = |i: usize| match steps[i].1 { Step::Enter(len) => u64::from(len), _ => 0 };
        for window in out.windows(2) {
            let time = window[1].0 - window[0].0;
            let need = len(window[1].1) * 8_000 / u64::from(mbps);
            prop_assert!(time + 1 >= need, "{} ns for {} ns", time, need);
        }
        let offered: u64 = steps.iter().enumerate().map(|(i, _)| len(i)).sum();
        let delivered: u64 = out.iter().map(|o| len(o.1)).sum();
        let truth = link.truth(Time::MAX, false);
        prop_assert_eq!(delivered, truth.bytes);
        prop_assert!(truth.queue_max_bytes <= 20_000);
        prop_assert_eq!(offered == delivered, truth.queue_drops == 0);
    }

    /// With all impairments at once, every packet is counted exactly once.
    #[test]
    fn every_packet_is_accounted_for(steps in steps(), seed in any::<u64>()) {
        let p = Probability::new(0.2);
        let by = Duration::from_millis(9);
        let config = LinkConfig {
            loss: crate::topology::Loss::Random(p),
            reorder: Reorder { probability: p, by },
            duplicate: p,
            corrupt: p,
            ..config(5.0, 3, 10_000)
        };
        let mut link = Link::new(&config, seed, Time::ZERO);
        let (out, accepted) = play(&mut link, &steps);
        let truth = link.truth(Time::MAX, false);
        let entered = steps.iter().filter(|s| matches!(s.1, Step::Enter(_))).count() as u64;
        prop_assert_eq!(entered, truth.packets + truth.queue_drops);
        prop_assert_eq!(accepted.len() as u64, truth.packets);
        prop_assert_eq!(out.len() as u64, truth.packets - truth.random_losses + truth.duplicated);
        prop_assert!(out.windows(2).all(|w| w[0].0 <= w[1].0));
    }
}
