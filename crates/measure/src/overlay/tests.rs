use super::*;

fn known(low: f64, high: f64, how: LinkMethod, age: u64) -> LinkEstimate {
    let age = Duration::from_secs(age);
    LinkEstimate { low: low * 1e6, high: high * 1e6, bound: Bound::Exact, how, age }
}

fn idle(known: Option<LinkEstimate>) -> Link {
    Link { known, ..Link::default() }
}

fn busy(mbps: f64, riding: f64, known: Option<LinkEstimate>) -> Link {
    let [traffic, riding] = [mbps, riding].map(Rate::from_mbps);
    Link { traffic, riding, known, ..Link::default() }
}

fn plenty() -> ByteSize {
    ByteSize::from_bytes(1_000_000_000)
}

fn asked(links: &[Link]) -> Option<(usize, Question, LinkMethod)> {
    let order = next_measurement(links, plenty(), &OverlaySettings::default())?;
    Some((order.link, order.question, order.how))
}

#[test]
fn busy_links_are_measured_by_trains_with_riders_and_idle_ones_sparsely() {
    let old = Some(known(9.0, 10.0, LinkMethod::Trains, 61));
    assert_eq!(
        asked(&[idle(None), busy(4.0, 4.0, old)]),
        Some((1, Question::Range, LinkMethod::Riding))
    );
    // The traffic does not go by the carrier, so it cannot ride.
    assert_eq!(asked(&[busy(4.0, 0.0, old)]), Some((0, Question::Range, LinkMethod::Trains)));
    assert_eq!(asked(&[idle(None)]), Some((0, Question::Rough, LinkMethod::Sparse)));
    assert_eq!(asked(&[idle(Some(known(5.0, 9.0, LinkMethod::Sparse, 1799)))]), None);
    assert_eq!(asked(&[]), None);
}

#[test]
fn nothing_is_sent_while_passive_samples_are_exact() {
    let watched = known(7.0, 7.0, LinkMethod::Passive, 50);
    assert_eq!(asked(&[busy(7.0, 7.0, Some(watched))]), None);
    let old = LinkEstimate { age: Duration::from_secs(60), ..watched };
    assert_eq!(asked(&[busy(7.0, 7.0, Some(old))]), Some((0, Question::Range, LinkMethod::Riding)));
    // A source that had nothing more to send gives only a lower bound, which is replaced once it is old.
    let at_least = LinkEstimate { bound: Bound::AtLeast, ..old };
    assert!(asked(&[busy(7.0, 7.0, Some(at_least))]).is_some());
}

#[test]
fn unknown_links_come_first_then_the_oldest_knowledge() {
    let of = |age| busy(4.0, 4.0, Some(known(9.0, 10.0, LinkMethod::Riding, age)));
    assert_eq!(asked(&[of(70), of(90), of(80)]).map(|one| one.0), Some(1));
    assert_eq!(asked(&[of(70), busy(4.0, 4.0, None)]).map(|one| one.0), Some(1));
}

#[test]
fn tcp_measures_only_links_on_which_a_ranking_depends() {
    let of = |low, high, how| Link { rivals: Some(1), ..idle(Some(known(low, high, how, 30))) };
    // The ranges of the first two overlap; the third is far behind.
    let open = [
        of(8.0, 12.0, LinkMethod::Sparse),
        of(9.0, 14.0, LinkMethod::Sparse),
        of(1.0, 3.0, LinkMethod::Sparse),
    ];
    assert_eq!(
        asked(&open).map(|one| (one.1, one.2)),
        Some((Question::Decisive, LinkMethod::Bulk))
    );
    assert!(asked(&open).is_some_and(|one| one.0 < 2));
    let clear = [of(8.0, 9.0, LinkMethod::Sparse), of(9.0, 14.0, LinkMethod::Sparse)];
    assert_eq!(asked(&clear), None);
    let told = [of(8.0, 12.0, LinkMethod::Bulk), of(9.0, 14.0, LinkMethod::Bulk)];
    assert_eq!(asked(&told), None, "TCP has spoken");
    let strangers = [idle(open[0].known), idle(open[1].known)];
    assert_eq!(asked(&strangers), None, "nobody ranks them");
}

#[test]
fn costs_stay_within_the_remaining_bytes_and_for_idle_links_within_a_share() {
    let settings = OverlaySettings::default();
    let links = [idle(None)];
    let cost = next_measurement(&links, plenty(), &settings).unwrap().bytes;
    assert_eq!(next_measurement(&links, cost, &settings), None, "a quarter of it is too little");
    let four = ByteSize::from_bytes(cost.as_bytes() * 4);
    assert!(next_measurement(&links, four, &settings).is_some());
    // If the remaining bytes do not suffice for the used link, the idle one is measured.
    let fast = busy(1.0, 0.0, Some(known(400.0, 500.0, LinkMethod::Trains, 61)));
    let order = next_measurement(&[fast, links[0]], four, &settings).unwrap();
    assert_eq!((order.link, order.how), (1, LinkMethod::Sparse));
    assert_eq!(order.most, cost, "whatever it turns out to be");
    assert_eq!(next_measurement(&[fast, links[0]], ByteSize::ZERO, &settings), None);
}

#[test]
fn riders_make_trains_cheap() {
    let link = busy(4.0, 4.0, Some(known(5.0, 5.0, LinkMethod::Trains, 61)));
    let (with, without) = (
        cost_without_riders(LinkMethod::Riding, &link),
        cost_without_riders(LinkMethod::Trains, &link),
    );
    assert!(with.as_bytes() * 4 < without.as_bytes(), "{with} {without}");
    assert_eq!(cost_without_riders(LinkMethod::Passive, &link), ByteSize::ZERO);
    // 8 rates at 0.3 MB each, as in docs/measure.md.
    assert!((2_000_000..2_500_000).contains(&without.as_bytes()), "{without}");
}

#[test]
fn costs_follow_tcp_until_trains_have_measured_the_link() {
    let cost = |link: &Link| cost_without_riders(LinkMethod::Trains, link).as_bytes();
    let unknown = busy(1.0, 0.0, None);
    let tcp = |mbps| Link { tcp: Rate::from_mbps(mbps), ..unknown };
    assert!(cost(&unknown) < 3_000_000);
    // docs/measure.md: 1.2 MB for each rate at 100 Mbit/s.
    assert!((9_000_000..10_000_000).contains(&cost(&tcp(100.0))), "{}", cost(&tcp(100.0)));
    assert_eq!(cost(&tcp(1.0)), cost(&unknown), "a slow flow does not make a link slow");
    let bound = LinkEstimate { bound: Bound::AtLeast, ..known(1.0, 1.0, LinkMethod::Passive, 61) };
    assert_eq!(cost(&Link { known: Some(bound), ..unknown }), cost(&unknown));
    // A value found by trains takes precedence over TCP's.
    let found = Some(known(5.0, 5.0, LinkMethod::Trains, 61));
    assert!(cost(&Link { known: found, ..tcp(1000.0) }) < 3_000_000);
    // Trains are expected to cost as much as the previous ones, even if those gave no result.
    let paid = Link { paid: ByteSize::from_bytes(25_800_000), ..unknown };
    assert_eq!(cost(&paid), 25_800_000);
    let left = ByteSize::from_bytes(20_000_000);
    assert_eq!(next_measurement(&[paid], left, &OverlaySettings::default()), None);
}
