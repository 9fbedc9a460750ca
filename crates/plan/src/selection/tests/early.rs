//! Tests of bytes that arrived but cannot be trusted yet.

use super::super::{Config, Selection};
use std::time::Duration;
use thalweg_units::{PathId, Time};

#[test]
fn untrusted_bytes_count_once_for_the_rate_and_are_still_owed() {
    let run = |early: bool| {
        let mut s = Selection::new(Config::default(), 1, &[0..10_000_000], Time::ZERO);
        let (a, mut now) = (PathId(0), Time::ZERO);
        s.joined(a, now);
        while s.next_action().is_some() {}
        s.sent(a, now);
        for _ in 0..50 {
            now += Duration::from_millis(20);
            if early {
                s.coming(a, 20_000, now);
                assert_eq!(s.owes(a), s.left());
            }
            assert_eq!(s.received(a, 20_000, now), 20_000);
        }
        (s.rate(a, now), s.left())
    };
    assert_eq!(run(true), run(false));
    assert_eq!(run(true).1, 9_000_000);
}

#[test]
fn bytes_beyond_what_is_owed_do_not_count() {
    let mut s = Selection::new(Config::default(), 1, &[0..1000], Time::ZERO);
    s.coming(PathId(0), 5, Time::ZERO);
    s.coming(PathId(9), 5, Time::ZERO);
    s.joined(PathId(0), Time::ZERO);
    s.sent(PathId(0), Time::ZERO);
    s.coming(PathId(0), u64::MAX, Time::ZERO);
    assert_eq!((s.owes(PathId(0)), s.left()), (1000, 1000));
}
