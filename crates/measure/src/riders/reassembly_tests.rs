use super::{
    super::{Hold, HoldSettings, Seat},
    *,
};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn piece(rider: u32, total: u16, offset: u16, bytes: &[u8]) -> Fragment {
    Fragment { rider, total, offset, bytes: bytes.to_vec() }
}

fn new() -> Reassembly {
    Reassembly::new(ReassemblyLimits::default())
}

#[test]
fn fragments_in_any_order_and_twice_deliver_the_rider_once() {
    let mut all = new();
    assert_eq!(all.take(&piece(3, 6, 4, b"ef"), at(0)), Ok(None));
    assert_eq!(all.take(&piece(3, 6, 4, b"XX"), at(0)), Ok(None), "the first word counts");
    assert_eq!(all.take(&piece(3, 6, 0, b"abcd"), at(0)), Ok(Some(b"abcdef".to_vec())));
    assert_eq!(all.take(&piece(3, 6, 0, b"abcd"), at(0)), Err(FragmentError::Delivered));
    assert_eq!(all.take(&piece(3, 2, 0, b"zz"), at(0)), Err(FragmentError::Delivered));
    assert_eq!(all.bytes(), 0);
}

#[test]
fn inconsistent_fragments_are_refused() {
    let mut all = new();
    assert_eq!(all.take(&piece(1, 3, 2, b"xy"), at(0)), Err(FragmentError::Beyond));
    assert_eq!(all.take(&piece(1, 3, 0, b""), at(0)), Err(FragmentError::Beyond));
    assert_eq!(all.take(&piece(1, 65_535, 65_535, b"x"), at(0)), Err(FragmentError::Beyond));
    assert_eq!(all.take(&piece(1, 3, 0, b"x"), at(0)), Ok(None));
    assert_eq!(all.take(&piece(1, 4, 0, b"x"), at(0)), Err(FragmentError::Lengths));
}

#[test]
fn riders_longer_than_the_limit_allocate_nothing() {
    let mut all = Reassembly::new(ReassemblyLimits { longest: 1500, ..Default::default() });
    assert_eq!(all.take(&piece(1, 1501, 0, b"x"), at(0)), Err(FragmentError::Long));
    assert_eq!(all.bytes(), 0);
    assert_eq!(all.take(&piece(1, 1500, 0, b"x"), at(0)), Ok(None));
}

/// Marks are cleared by the word; the result must be the same as clearing them one by one.
#[test]
fn rider_numbers_may_jump() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut draw = move |below: u32| (random.next_u64() % u64::from(below)) as u32;
    let (mut marks, mut newest) = (DeliveredRiders::default(), u32::MAX - 500_000);
    let mut delivered = std::collections::BTreeSet::from([newest]);
    marks.note(newest);
    for _ in 0..20_000 {
        let leap = match draw(100) {
            0 => draw(200_000),
            1..10 => draw(3000),
            _ => draw(70),
        };
        let rider = newest.wrapping_add(leap).wrapping_sub(draw(70));
        let behind = newest.wrapping_sub(rider);
        let is_old = (REMEMBERED..1 << 31).contains(&behind);
        assert_eq!(marks.has(rider), is_old || delivered.contains(&rider), "{rider} {newest}");
        if !marks.has(rider) {
            marks.note(rider);
            newest = if behind < 1 << 31 { newest } else { rider };
            delivered.insert(rider);
            delivered.retain(|one| newest.wrapping_sub(*one) < REMEMBERED);
        }
    }
}

#[test]
fn incomplete_riders_are_given_up() {
    let mut all = new();
    for rider in 0..5000 {
        all.take(&piece(rider, 60_000, 0, b"x"), at(u64::from(rider) / 100)).unwrap();
        assert!(all.bytes() <= 1 << 20 && all.partial.len() <= 1024);
        let kept = |of: &PartialPacket| of.bytes.capacity() + size_of_val(of.has.as_slice());
        assert_eq!(all.partial.values().map(kept).sum::<usize>(), all.bytes());
    }
    assert_eq!(all.take(&piece(5000, 9, 0, b"x"), at(10_000)), Ok(None));
    assert_eq!((all.bytes(), all.partial.len()), (9 + 8, 1), "and a word of marks");
    assert_eq!(all.lost(), 5000);
}

#[test]
fn rider_numbers_wrap() {
    let mut all = new();
    for n in 0..200_000_u32 {
        let rider = n.wrapping_sub(100_000);
        assert!(all.take(&piece(rider, 1, 0, b"x"), at(0)).unwrap().is_some(), "{rider}");
        assert_eq!(all.take(&piece(rider, 1, 0, b"x"), at(0)), Err(FragmentError::Delivered));
    }
}

/// Riders in probes that are lost, duplicated and reordered: none is delivered twice or altered.
#[test]
fn three_million_riders_over_bad_paths() {
    for seed in [20_261_123, 2, 3] {
        println!("seed {seed}");
        a_million_riders(seed);
    }
}

fn a_million_riders(seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut draw = move |below: u64| random.next_u64() % below;
    let settings = HoldSettings { repeats: true, ..HoldSettings::default() };
    let (mut hold, mut all) = (Hold::new(settings, u32::MAX - 1000), new());
    // The first bytes are the rider's number, from which the other bytes follow.
    let content = |n: u32, length: usize| -> Vec<u8> {
        let mut bytes = n.to_le_bytes().to_vec();
        bytes.extend((4..length).map(|i| (n as usize + i) as u8));
        bytes
    };
    let mut lengths = BTreeMap::new();
    let (mut under_way, mut delivered) = (Vec::<Fragment>::new(), 0_u32);
    for n in 0..1_000_000_u32 {
        let now = at(u64::from(n) / 10);
        // Most trains come too late, so that riders are cut, held, and sent by themselves.
        if n % 50 == 0 {
            let after = std::time::Duration::from_millis(4);
            hold.begin(now, vec![Seat { place: 0, after, room: 1000 }]);
        }
        let length = 4 + draw(60) as usize;
        lengths.insert(n, length);
        under_way.extend(hold.offer(content(n, length), now));
        under_way.extend(hold.release_due(now));
        under_way.extend(hold.fill(20 + draw(120) as usize));
        while under_way.len() > 50 {
            let next = under_way.swap_remove(draw(under_way.len() as u64) as usize);
            match draw(20) {
                0 => continue,
                1 => under_way.push(next.clone()),
                _ => {}
            }
            if let Ok(Some(rider)) = all.take(&next, now) {
                let n = u32::from_le_bytes(rider[..4].try_into().unwrap());
                let length = lengths.remove(&n).expect("it was delivered before, or never sent");
                assert_eq!(rider, content(n, length));
                delivered += 1;
            }
        }
    }
    println!("{delivered} delivered, {} given up", all.lost());
    assert!(delivered > 900_000, "{delivered}");
}
