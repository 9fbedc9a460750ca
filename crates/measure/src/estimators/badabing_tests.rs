use super::*;
use crate::train::Stamp;
use thalweg_units::Time;

/// A path that loses everything in the last `long` of every `every` slots, and has a queue in as many slots before.
fn run(every: u64, long: u64, queue_ns: u32, seed: u64) -> Vec<Finding> {
    let lasts = Duration::from_secs(300);
    let mut tool = Badabing::new(BadabingSettings::new(0.3, lasts, seed));
    let mut now = 0;
    loop {
        match tool.next() {
            Step::Done(result) => return result.unwrap(),
            Step::Send { train, after } => {
                now += after.as_nanos() as u64;
                let mut flight = Flight::default();
                for probe in train.probes() {
                    now += probe.gap.as_nanos() as u64;
                    let place = now / 5_000_000 % every;
                    let queue = u64::from(queue_ns) * u64::from(place >= every - 2 * long);
                    let arrived = Stamp::from_unix_nanos(now + 20_000_000 + queue);
                    flight.sent.push(Some(Time::from_nanos(now)));
                    flight.arrived.push((place < every - long).then_some(arrived));
                }
                tool.record(&flight);
            }
        }
    }
}

#[test]
fn frequency_and_duration_of_episodes_are_found() {
    for (every, long) in [(200, 10), (400, 30)] {
        let found: Vec<_> = (0..4).map(|seed| run(every, long, 0, seed)).collect();
        let mean = |of: usize| found.iter().map(|one| one[of].value).sum::<f64>() / 4.0;
        let (truth, slots) = (long as f64 / every as f64, mean(1) / 0.005);
        println!("{every} {long}: {:.4}, {slots:.1} slots", mean(0));
        assert!((mean(0) / truth - 1.0).abs() < 0.05, "{found:?}");
        assert!((slots / long as f64 - 1.0).abs() < 0.2, "{found:?}");
    }
}

#[test]
fn a_long_queue_near_a_loss_counts_as_congested() {
    let [without, with] = [0, 1_000_000].map(|queue| run(400, 8, queue, 5)[0].value);
    assert!((1.7..2.2).contains(&(with / without)), "{without} {with}");
}

#[test]
fn slots_are_aligned_across_trains() {
    let mut tool = Badabing::new(BadabingSettings::new(0.1, Duration::from_secs(30), 2));
    let mut now = 0_u64;
    while let Step::Send { train, after } = tool.next() {
        now += after.as_nanos() as u64;
        let slots = tool.probed.clone();
        for (at, probe) in train.probes().iter().enumerate() {
            now += probe.gap.as_nanos() as u64;
            assert_eq!(now, slots[at / PACKETS] * 5_000_000);
        }
        tool.record(&Flight {
            sent: vec![None; slots.len() * 3],
            arrived: vec![None; slots.len() * 3],
            ..Flight::default()
        });
    }
}

#[test]
fn patterns_are_counted_as_in_rfc_6534() {
    let pattern = |text: &str| text.chars().map(|c| c == '1').collect::<Vec<bool>>();
    let of = |counts: &[(&str, u32)]| {
        let counts = counts.iter().map(|(text, n)| (pattern(text), *n)).collect();
        findings(&counts, Duration::from_millis(5), 9)
    };
    let basic = of(&[("00", 80), ("01", 5), ("10", 5), ("11", 10)]);
    assert!((basic[0].value - 0.15).abs() < 1e-9);
    assert!((basic[1].value - 0.005 * 3.0).abs() < 1e-9, "2 · 20 / 10 - 1");
    let improved = of(&[("00", 80), ("01", 10), ("11", 10), ("011", 4), ("001", 2)]);
    // R = 24, S = 14, V / U = 1/2.
    assert!((improved[1].value / 0.005 - (24.0 / 14.0 - 1.0 + 1.0)).abs() < 1e-9);
    assert_eq!(of(&[("00", 9)]).len(), 1, "without losses no duration");
}

/// A queue of 50 kB at 10 Mbit/s. Cross traffic has 16 Mbit/s for a tenth of each second, and 4 Mbit/s otherwise. One
/// stamp in five is late, by `late_s` on average.
fn overflowing(late_s: f64, seed: u64) -> (Vec<Finding>, f64, f64) {
    const LINK: f64 = 1.25e6;
    const FULL: f64 = 50e3;
    const STEP: f64 = 0.25e-3;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut tool = Badabing::new(BadabingSettings::new(0.5, Duration::from_secs(120), seed));
    let (mut at, mut queue, mut over, mut episodes, mut was_full) = (0.0, 0.0_f64, 0.0, 0.0, false);
    let mut now = 0.0;
    loop {
        let (train, after) = match tool.next() {
            Step::Done(result) => return (result.unwrap(), over / at, over / episodes),
            Step::Send { train, after } => (train, after),
        };
        now += after.as_secs_f64();
        let mut flight = Flight::default();
        for probe in train.probes() {
            now += probe.gap.as_secs_f64();
            while at < now {
                let others = if at % 1.0 > 0.9 { 2e6 } else { 0.5e6 };
                queue = (queue + (others - LINK) * STEP).clamp(0.0, FULL);
                let is_full = queue >= FULL;
                over += if is_full { STEP } else { 0.0 };
                episodes += f64::from(u8::from(is_full && !was_full));
                (at, was_full) = (at + STEP, is_full);
            }
            let is_lost = queue >= FULL && draw() < 0.375;
            let late = if draw() < 0.2 { -late_s * (1.0 - draw()).ln() } else { 0.0 };
            let nanos = |s: f64| (s * 1e9) as u64;
            let came = || Stamp::from_unix_nanos(nanos(now + 0.01 + queue / LINK + late));
            flight.sent.push(Some(Time::from_nanos(nanos(now))));
            flight.arrived.push((!is_lost).then(came));
        }
        tool.record(&flight);
    }
}

/// Slots beside an episode count if the queue is nearly full there: about one slot at each end of seven.
#[test]
fn an_overflowing_queue_is_detected_although_stamps_are_late() {
    for late in [0.0, 2e-3, 5e-3] {
        let mut all = Vec::new();
        for seed in 0..3 {
            let (found, frequency, duration) = overflowing(late, seed);
            all.push([found[0].value / frequency, found[1].value / duration]);
        }
        println!("{late}: {all:.2?}");
        let mean = |of: usize| all.iter().map(|one| one[of]).sum::<f64>() / 3.0;
        assert!((0..2).all(|of| (mean(of) - 1.0).abs() < 0.5), "{late} {all:?}");
    }
}

/// 2 % of all packets are lost at random on an idle path, whose stamps differ by 20 µs.
#[test]
fn random_losses_do_not_make_noise_a_queue() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut draw = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut tool = Badabing::new(BadabingSettings::new(0.3, Duration::from_secs(60), 5));
    let mut now = 0;
    let found = loop {
        let (train, after) = match tool.next() {
            Step::Done(result) => break result.unwrap(),
            Step::Send { train, after } => (train, after),
        };
        now += after.as_nanos() as u64;
        let mut flight = Flight::default();
        for probe in train.probes() {
            now += probe.gap.as_nanos() as u64;
            let noise = (draw() * 20e3) as u64;
            let arrived = Stamp::from_unix_nanos(now + 20_000_000 + noise);
            flight.sent.push(Some(Time::from_nanos(now)));
            flight.arrived.push((draw() >= 0.02).then_some(arrived));
        }
        tool.record(&flight);
    };
    // At least one of three packets is lost.
    let truth = 1.0 - 0.98_f64.powi(3);
    assert!((found[0].value / truth - 1.0).abs() < 0.2, "{found:?}");
    assert!(found[0].low < truth && truth < found[0].high, "{found:?}");
    assert_eq!(tool.doubts(), [Doubt::Queueless]);
}

#[test]
fn without_a_loss_the_range_depends_on_the_number_of_tries() {
    let mut tool = Badabing::new(BadabingSettings::new(0.3, Duration::from_secs(1), 5));
    let Step::Send { train, .. } = tool.next() else { panic!("no train") };
    let at = |n: usize| n as u64 * 1_000_000;
    let count = train.probes().len();
    tool.record(&Flight {
        sent: (0..count).map(|n| Some(Time::from_nanos(at(n)))).collect(),
        arrived: (0..count).map(|n| Some(Stamp::from_unix_nanos(at(n)))).collect(),
        ..Flight::default()
    });
    let Step::Done(Ok(found)) = tool.next() else { panic!("no end") };
    let [frequency] = found[..] else { panic!("{found:?}") };
    assert!(frequency.low == 0.0 && (0.03..0.08).contains(&frequency.high), "{frequency:?}");
    assert!(tool.doubts().is_empty());
}
