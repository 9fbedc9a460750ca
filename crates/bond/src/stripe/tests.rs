use super::*;
use proptest::prelude::*;

fn link(id: u32, mbps: f64, rtt_ms: u64) -> Link {
    Link {
        id: LinkId(id),
        rate: Rate::from_mbps(mbps),
        rtt: Duration::from_millis(rtt_ms),
        unsent: 0,
        writable: true,
        usable: true,
        may_duplicate: true,
    }
}

fn load(chunk: u64, backlog: u64) -> Load {
    Load { chunk, backlog, window: u64::MAX, waits: false }
}

#[test]
fn rotation_waits_for_the_link_whose_turn_it_is() {
    let mut scheduler = StripeScheduler::new(StripeMethod::RoundRobin);
    let mut links = [link(1, 1.0, 10), link(2, 1.0, 10)];
    let mut next = |links: &[Link]| scheduler.next(links, load(1500, 15_000));
    assert_eq!(next(&links), Verdict::Send(LinkId(1)));
    links[1].writable = false;
    assert_eq!(next(&links), Verdict::Wait);
    links[1].usable = false;
    assert_eq!(next(&links), Verdict::Send(LinkId(1)));
    links[0].usable = false;
    assert_eq!(next(&links), Verdict::NoLink);
}

#[test]
fn weighted_rotation_gives_each_link_its_share() {
    let mut scheduler = StripeScheduler::new(StripeMethod::WeightedRoundRobin);
    let links = [link(1, 2.0, 10), link(2, 0.5, 10)];
    let sent = (0..100).map(|_| scheduler.next(&links, load(1500, 15_000)));
    let slow = sent.filter(|verdict| *verdict == Verdict::Send(LinkId(2))).count();
    assert_eq!(slow, 20);
}

#[test]
fn a_link_that_is_gone_loses_its_turn() {
    let mut scheduler = StripeScheduler::new(StripeMethod::WeightedRoundRobin);
    let mut links = [link(1, 2.0, 10), link(2, 0.5, 10)];
    links[0].writable = false;
    assert_eq!(scheduler.next(&links, load(1500, 15_000)), Verdict::Wait);
    links[0].usable = false;
    assert_eq!(scheduler.next(&links, load(1500, 15_000)), Verdict::Send(LinkId(2)));
}

#[test]
fn the_last_chunks_wait_for_the_fast_link() {
    let mut scheduler = StripeScheduler::new(StripeMethod::EarliestCompletion);
    let mut links = [link(1, 20.0, 10), link(2, 2.0, 250)];
    links[0].writable = false;
    links[0].unsent = 20_000;
    // The fast link needs 48 ms for 100 kB more; the slow one needs 190 ms for one chunk.
    assert_eq!(scheduler.next(&links, load(16_000, 100_000)), Verdict::Wait);
    // 10 MB more take 4 s, so the slow link helps.
    assert_eq!(scheduler.next(&links, load(16_000, 10_000_000)), Verdict::Send(LinkId(2)));
}

#[test]
fn a_slow_link_is_not_used_where_it_would_block_the_window() {
    let mut scheduler = StripeScheduler::new(StripeMethod::EarliestCompletion);
    let mut links = [link(1, 20.0, 10), link(2, 2.0, 250)];
    links[0].writable = false;
    links[0].unsent = 20_000;
    let load = Load { window: 400_000, ..load(16_000, 10_000_000) };
    assert_eq!(scheduler.next(&links, load), Verdict::Wait);
    let load = Load { window: 600_000, ..load };
    assert_eq!(scheduler.next(&links, load), Verdict::Send(LinkId(2)));
}

#[test]
fn a_stream_that_waits_is_patient_and_others_are_not() {
    let mut scheduler = StripeScheduler::new(StripeMethod::EarliestCompletion);
    let mut links = [link(1, 20.0, 10), link(2, 2.0, 250)];
    links[0].writable = false;
    links[0].unsent = 20_000;
    assert_eq!(scheduler.next(&links, load(16_000, 100_000)), Verdict::Wait);
    // The fast link needs 193 ms for the backlog, the slow one 189 ms for its chunk.
    let other = load(16_000, 450_000);
    assert_eq!(scheduler.next(&links, other), Verdict::Send(LinkId(2)));
    assert_eq!(scheduler.next(&links, Load { waits: true, ..other }), Verdict::Wait);
    links[1].writable = false;
    let full = scheduler.next(&links, other);
    assert_eq!((full, full.waits(true), full.waits(false)), (Verdict::Full, true, false));
}

#[test]
fn a_link_of_unknown_rate_is_used() {
    let mut scheduler = StripeScheduler::new(StripeMethod::EarliestCompletion);
    let mut links = [link(1, 20.0, 10), link(2, 0.0, 10)];
    links[0].writable = false;
    links[0].unsent = 200_000;
    assert_eq!(scheduler.next(&links, load(16_000, 10_000_000)), Verdict::Send(LinkId(2)));
}

proptest! {
    /// The chosen link completes the chunk no later than any other ready link.
    #[test]
    fn a_chunk_goes_to_the_ready_link_that_completes_it_first(
        all in prop::collection::vec((1u64..1000, 1u64..300, 0u64..1_000_000, any::<bool>(), any::<bool>()), 1..5),
        backlog in 1u64..10_000_000,
    ) {
        let links: Vec<Link> = all.iter().enumerate().map(|(i, (mbps, rtt, unsent, writable, usable))| Link {
            unsent: *unsent, writable: *writable, usable: *usable,
            ..link(i as u32, *mbps as f64, *rtt)
        }).collect();
        let mut scheduler = StripeScheduler::new(StripeMethod::EarliestCompletion);
        let chunk = backlog.min(16_000);
        match scheduler.next(&links, load(chunk, backlog)) {
            Verdict::Send(id) => {
                let chosen = links.iter().find(|link| link.id == id).unwrap();
                prop_assert!(chosen.usable && chosen.writable);
                for other in links.iter().filter(|link| link.usable && link.writable) {
                    prop_assert!(chosen.completion(chunk) <= other.completion(chunk));
                }
            }
            Verdict::Full => prop_assert!(!links.iter().any(|link| link.usable && link.writable)),
            Verdict::Wait => {
                let ready = links.iter().filter(|l| l.usable && l.writable);
                let ready = ready.map(|l| l.completion(chunk)).fold(f64::INFINITY, f64::min);
                let best = links.iter().filter(|l| l.usable).map(|l| l.completion(chunk)).fold(f64::INFINITY, f64::min);
                prop_assert!(best < ready);
            }
            Verdict::NoLink => prop_assert!(links.iter().all(|link| !link.usable)),
        }
    }
}

/// Streams of 64 kB each over 20 + 20 Mbit/s with very different round trips: a single one waits for the near link, but
/// a hundred of them would leave the far one idle.
#[test]
fn a_stream_among_many_uses_the_far_link() {
    let mut links = [link(1, 20.0, 10), link(2, 20.0, 100)];
    links[0].writable = false;
    links[0].unsent = 16_000;
    let own = Load { window: 256_000, ..load(16_000, 64_000) };
    let next = |load| StripeScheduler::new(StripeMethod::EarliestCompletion).next(&links, load);
    let mut crowd = StreamLoads::default();
    crowd.add(own.backlog, own.window);
    assert_eq!((crowd.load(own), next(crowd.load(own))), (own, Verdict::Wait));
    (1..100).for_each(|_| crowd.add(own.backlog, own.window));
    assert_eq!(crowd.load(own).backlog, 6_400_000);
    assert_eq!(next(crowd.load(own)), Verdict::Send(LinkId(2)));
    // A stream that is nearly done waits for no more than the turns of the others.
    let last = Load { chunk: 1000, backlog: 1000, ..own };
    assert_eq!(crowd.load(last).backlog, 100_000);
}

#[test]
fn a_crowd_never_lowers_the_load_of_a_stream() {
    let own = Load { window: 20, ..load(1, 10) };
    assert_eq!(StreamLoads::default().load(own), own);
}
