use super::*;
use crate::{
    estimators::{FixedTrains, PK1, PK2, PK3},
    riders::{FlowState, rides, seats},
    train::Train,
};

fn us(us: u64) -> Time {
    Time::from_nanos(us * 1000)
}

fn at(ms: u64) -> Time {
    us(ms * 1000)
}

/// Seats with this much room each, 10 ms apart.
fn room(probes: usize, room: usize) -> Vec<Seat> {
    let after = |place| Duration::from_millis(10) * place as u32;
    (0..probes).map(|place| Seat { place, after: after(place), room }).collect()
}

fn hold(repeats: bool) -> Hold {
    let mut hold = Hold::new(HoldSettings { repeats, ..HoldSettings::default() }, 7);
    hold.begin(at(0), room(11, 4000));
    hold
}

fn shown(fragments: &[Fragment]) -> Vec<(u32, u16, usize)> {
    fragments.iter().map(|f| (f.rider, f.offset, f.bytes.len())).collect()
}

#[test]
fn figure_2_a_rider_is_cut_to_the_padding_and_its_rest_goes_by_itself() {
    let mut hold = hold(false);
    assert!(hold.offer(vec![1; 1000], at(0)).is_empty());
    assert_eq!(shown(&hold.fill(410)), [(7, 0, 400)]);
    assert_eq!(shown(&hold.fill(410)), [(7, 400, 400)]);
    assert!(hold.release_due(at(9)).is_empty());
    assert_eq!(hold.deadline(), Some(at(10)));
    assert_eq!(shown(&hold.release_due(at(10))), [(7, 800, 200)]);
    assert_eq!((hold.bytes(), hold.packets(), hold.deadline()), (0, 0, None));
}

#[test]
fn several_riders_share_a_probe() {
    let mut hold = hold(false);
    for _ in 0..3 {
        assert!(hold.offer(vec![1; 60], at(0)).is_empty());
    }
    assert_eq!(shown(&hold.fill(200)), [(7, 0, 60), (8, 0, 60), (9, 0, 50)]);
    assert_eq!(shown(&hold.fill(200)), [(9, 50, 10)]);
    // A fragment with a piece of 20 bytes would be one third header.
    hold.offer(vec![1; 60], at(0));
    assert!(hold.fill(30).is_empty());
}

#[test]
fn without_a_train_packets_are_sent_at_once_unless_they_always_wait() {
    let mut idle = Hold::new(HoldSettings::default(), 0);
    assert_eq!(shown(&idle.offer(vec![1; 60], at(0))), [(0, 0, 60)]);
    let settings = HoldSettings { is_unconditional: true, ..HoldSettings::default() };
    let mut papers = Hold::new(settings, 0);
    assert!(papers.offer(vec![1; 60], at(0)).is_empty());
    assert!(papers.release_due(at(9)).is_empty());
    assert_eq!(papers.release_due(at(10)).len(), 1);
}

#[test]
fn packets_wait_for_announced_trains_and_are_sent_when_none_is_left() {
    let mut hold = Hold::new(HoldSettings::default(), 0);
    hold.announce(at(100), room(1, 4000));
    assert_eq!(hold.offer(vec![1; 60], at(89)).len(), 1);
    assert!(hold.offer(vec![1; 60], at(91)).is_empty());
    let trip = hold.begin(at(100), room(1, 4000));
    hold.announce(at(105), room(1, 4000));
    hold.end(trip);
    assert!(hold.release_due(at(100)).is_empty(), "it has a millisecond, and the next comes after");
    assert!(hold.offer(vec![1; 61], at(100)).is_empty());
    assert_eq!(shown(&hold.release_due(at(101))), [(1, 0, 60)]);
    let next = hold.begin(at(105), room(1, 4000));
    assert_eq!(shown(&hold.board(next, 0, 4000, at(105))), [(2, 0, 61)]);
    assert_eq!(hold.offer(vec![1; 62], at(105)).len(), 1, "its one probe is gone");
    hold.end(next);
    assert_eq!((hold.release_due(at(105)).len(), hold.deadline()), (0, None));
}

#[test]
fn only_as_many_packets_wait_as_fit_and_the_oldest_are_sent() {
    let mut hold = Hold::new(HoldSettings::default(), 0);
    hold.begin(at(0), room(2, 500));
    let went: Vec<_> = (0..5).flat_map(|_| hold.offer(vec![1; 600], us(1))).collect();
    assert_eq!(shown(&went), [(0, 0, 600), (1, 0, 600), (2, 0, 600)]);
    assert_eq!(hold.bytes(), 1200, "1,000 would be a packet and a part of one");
}

/// Packets of a bulk TCP flow, about seven times as many bytes as fit into probes; each fits into a probe only in part.
#[test]
fn the_rest_of_a_packet_that_was_cut_rides_in_the_next_probe() {
    let mut hold = Hold::new(HoldSettings::default(), 0);
    let seat = |place| Seat { place, after: Duration::from_millis(2) * place as u32, room: 1200 };
    let trip = hold.begin(at(0), (0..500).map(seat).collect());
    let (mut alone, mut rode) = (Vec::new(), 0);
    for place in 0..500 {
        for n in 0..6 {
            alone.extend(
                hold.offer(vec![1; 1413], at(2 * place as u64) + n * Duration::from_micros(300)),
            );
        }
        let rides =
            hold.board(trip, place, 1210, at(2 * place as u64) + Duration::from_micros(1990));
        rode += rides.iter().map(|one| one.bytes.len()).sum::<usize>();
    }
    let tails = alone.iter().filter(|one| one.offset > 0).count();
    // One of six rests is longer than the room of a probe.
    assert!(rode >= 490 * 1190 && tails < 100, "{rode} bytes rode, {tails} rests alone");
}

#[test]
fn the_rest_of_a_packet_does_not_wait_for_a_probe_that_is_late_or_too_small() {
    for (room, after) in [(1200, 3), (400, 2)] {
        let mut hold = Hold::new(HoldSettings::default(), 0);
        let seat = |place| Seat { place, after: Duration::from_millis(after) * place as u32, room };
        let trip = hold.begin(at(0), (0..9).map(seat).collect());
        assert!(hold.offer(vec![1; 1413], at(0)).is_empty());
        assert_eq!(shown(&hold.board(trip, 0, room + 10, at(0))), [(0, 0, room)]);
        let went: Vec<_> = (0..4).flat_map(|_| hold.offer(vec![1; 1413], at(0))).collect();
        assert_eq!(shown(&went[..1]), [(0, room as u16, 1413 - room)]);
    }
}

#[test]
fn a_packet_waits_only_if_a_quarter_of_it_finds_room() {
    // If a probe of 300 bytes leaves every 10 ms, one takes a piece of the packet in time; if every 5 ms, two do.
    for (gap, waits) in [(10, false), (5, true)] {
        let mut hold = Hold::new(HoldSettings::default(), 0);
        let seat =
            |place| Seat { place, after: Duration::from_millis(gap) * place as u32, room: 245 };
        let trip = hold.begin(at(0), (0..99).map(seat).collect());
        hold.board(trip, 0, 0, at(0));
        assert_eq!(hold.offer(vec![1; 1413], at(1)).is_empty(), waits, "each {gap} ms");
        assert!(hold.offer(vec![1; 200], at(1)).is_empty(), "short ones ride");
    }
}

#[test]
fn held_bytes_are_bounded() {
    let mut hold = Hold::new(HoldSettings::default(), 0);
    hold.begin(at(0), room(1, 1 << 20));
    let (mut went, mut waits) = (0, 0);
    for _ in 0..300 {
        went += hold.offer(vec![1; 1000], at(0)).len();
        waits = waits.max(hold.bytes());
    }
    assert!(went >= 262 && waits <= 256 << 10, "{went} {waits}");
    assert!(hold.offer(vec![1; 70_000], at(0)).is_empty() && hold.packets() < 300);
}

#[test]
fn unused_padding_repeats_each_fragment_once() {
    let mut hold = hold(true);
    hold.offer(vec![1; 100], at(0));
    assert_eq!(shown(&hold.fill(110)), [(7, 0, 100)]);
    assert_eq!(shown(&hold.fill(100)), []);
    assert_eq!(shown(&hold.fill(200)), [(7, 0, 100)]);
    assert_eq!(shown(&hold.fill(200)), []);
}

/// Bytes of a TCP packet over the carrier, and of its content. The source below writes 4 Mbit/s of content.
const PACKET: usize = 1413;
const CONTENT: usize = PACKET - 72;

/// Bytes that sealing adds to a probe.
const SEALED: usize = 45;

/// The share of probes of one series that carry nothing, beside a source that writes at this interval.
fn empty_share(row: FixedTrains, every: Duration) -> f64 {
    let train = row.series().unwrap();
    let padding = |probe: &crate::train::Probe| Some(usize::from(probe.padding()) - SEALED);
    let seats_of = |train: &Train| seats(train, &rides(train, padding), &[], &FlowState::default());
    let mut hold = Hold::new(HoldSettings::default(), 0);
    let trip = hold.begin(at(0), seats_of(&train));
    let (mut now, mut written, mut sent, mut bare, mut alone) = (at(0), at(0), 0, 0, Vec::new());
    for (place, probe) in train.probes().iter().enumerate() {
        now += probe.gap;
        while written <= now {
            written += every;
            let content = (4e6 / 8.0 * written.as_nanos() as f64 / 1e9) as usize;
            while (sent + 1) * CONTENT <= content {
                sent += 1;
                alone.extend(hold.offer(vec![0; PACKET], written));
            }
        }
        while let Some(due) = hold.deadline().filter(|due| *due <= now) {
            alone.extend(hold.release_due(due));
        }
        let rides = hold.board(trip, place, padding(probe).unwrap(), now);
        bare += usize::from(rides.is_empty());
    }
    let share = bare as f64 / train.probes().len() as f64;
    println!("{every:?}: {share:.3} bare, {} of {sent} packets' rests alone", alone.len());
    share
}

/// Issue 9: nine of ten bytes of probes travelled without riders.
#[test]
fn beside_4_mbits_few_probes_of_table_1_are_empty() {
    for row in [PK1, PK2, PK3] {
        for every in [1, 3, 5, 8] {
            let bare = empty_share(row, Duration::from_millis(every));
            assert!(bare < 0.06, "{row:?} {every} ms: {bare}");
        }
    }
}
