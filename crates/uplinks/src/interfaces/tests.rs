//! Assignment of connections over two interfaces, second by second.

use super::*;
use std::time::Duration;
use thalweg_bond::{Action, Application, Cap, ConnectionMethod, Policy, Rule, Rules, Tier};
use thalweg_units::{Time, WallTime};

const TODAY: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);

fn at(s: u64) -> Time {
    Time::from_nanos(s * 1_000_000_000)
}

fn app() -> Application {
    Application { process: Some("firefox".into()), port: 443 }
}

fn table(settings: Settings) -> Table {
    let mut table = Table::new(settings, StoredTable::default(), at(0));
    let present = |index, name: &str| UsableInterface { index, name: name.into() };
    table.follow(vec![present(2, "eth0"), present(3, "lte0")], at(0), TODAY);
    table
}

fn by(table: &mut Table, to: &str, s: u64) -> (u64, Vec<u32>) {
    match table.assign(app(), to, at(s), TODAY) {
        // Without interfaces that are tried only if all others fail.
        Assignment::By(id, order) => (id, order.iter().filter(|o| !o.1).map(|o| o.0).collect()),
        other => panic!("{to} goes {other:?}"),
    }
}

/// The connection has moved this many bytes by now, and pays for them.
fn pays(table: &mut Table, id: u64, (down, up): (u64, u64)) {
    let more = table.moved(id, down, up, at(0));
    let name = table.interface_of(id).unwrap();
    table.carried(&name, caps::with_headers(more), TODAY);
}

/// A table in which one connection by each of two interfaces moved this many bytes in each of two seconds.
fn taught(settings: Settings, bytes: [u64; 2]) -> Table {
    let mut table = table(settings);
    let ids = [2, 3].map(|interface| {
        let (id, _) = by(&mut table, &format!("teacher{interface}"), 0);
        table.record_established(id, interface, Some(Duration::from_millis(20)), at(0));
        id
    });
    for second in 0..2 {
        for part in 1..=4 {
            let now = Time::from_nanos(second * 1_000_000_000 + part * 249_000_000);
            for (id, bytes) in ids.into_iter().zip(bytes) {
                table.moved(id, bytes * second + bytes * part / 4, 0, now);
            }
        }
        table.tick(at(second + 1), TODAY);
    }
    ids.into_iter().for_each(|id| table.ended(id));
    table
}

fn with(name: &str, policy: Policy) -> Settings {
    Settings { policies: [(name.to_owned(), policy)].into(), ..Settings::default() }
}

#[test]
fn a_connection_goes_where_it_ends_first() {
    let mut table = taught(Settings::default(), [4_000_000, 1_000_000]);
    let mut got = [0, 0];
    for n in 0..50 {
        let (_, order) = by(&mut table, &format!("site{n}"), 1);
        assert_eq!(order.len(), 2, "the other is tried if the first fails");
        got[order[0] as usize - 2] += 1;
    }
    assert_eq!(got, [40, 10], "by their rates, 4 to 1");
    let newest = table.decisions().next().unwrap();
    assert!(newest.why.contains("all transfers finish in"), "{newest:?}");
}

#[test]
fn one_short_file_does_not_make_an_interface_slow() {
    let mut table = table(Settings { affinity: Duration::ZERO, ..Settings::default() });
    let (long, _) = by(&mut table, "long", 0);
    let (short, _) = by(&mut table, "short", 0);
    table.record_established(long, 3, None, at(0));
    table.record_established(short, 2, None, at(0));
    for quarter in 1..=12 {
        let now = Time::from_nanos(quarter * 249_000_000);
        table.moved(long, 625_000 * quarter, 0, now);
        if quarter <= 3 {
            table.moved(short, 200_000 * quarter, 0, now);
        }
        if quarter % 4 == 0 {
            table.tick(at(quarter / 4), TODAY);
        }
    }
    table.ended(short);
    table.ended(long);
    let downs: Vec<f64> = table.show(TODAY).iter().map(|s| s.estimate.down().as_mbps()).collect();
    assert_eq!(downs, [4.8, 20.0]);
    let mut got = [0, 0];
    for n in 0..20 {
        let (_, order) = by(&mut table, &format!("site{n}"), 4);
        got[order[0] as usize - 2] += 1;
    }
    assert_eq!(got, [10, 10], "the links are equal as far as is known");
}

#[test]
fn the_reason_says_what_was_left_out_and_by_which_rule() {
    let why = |table: &mut Table, s: u64| {
        by(table, &format!("site{s}"), s);
        table.decisions().next().unwrap().why.clone()
    };
    let mut backup = table(with("lte0", Policy { tier: Tier::Backup, ..Policy::default() }));
    assert_eq!(why(&mut backup, 0), "lte0 is left out: its tier is backup");
    for n in 0..2 {
        let (id, _) = by(&mut backup, &format!("gone{n}"), 0);
        backup.record_established(id, 3, None, at(0));
    }
    assert_eq!(why(&mut backup, 1), "eth0 is left out: the latest connections over it failed");
    let rule = |action| Rule { process: None, port: None, destination: None, action };
    let rules = Rules(vec![
        Rule { port: Some(22), ..rule(Action::Avoid(vec!["eth0".into()])) },
        rule(Action::Only(vec!["lte0".into()])),
    ]);
    let mut ruled = table(Settings { rules, ..Settings::default() });
    assert_eq!(why(&mut ruled, 0), "by rule 2");
    assert_eq!(
        why(&mut table(Settings::default()), 0),
        "its rate is not known yet and assumed to be average"
    );
    let mut first = table(Settings { schedule: ConnectionMethod::OnlyOne, ..Settings::default() });
    assert_eq!(why(&mut first, 0), "the system's first choice (method only-one)");
}

#[test]
fn one_destinations_downloads_do_not_wait_for_each_other_while_an_interface_is_idle() {
    let mut table = taught(Settings::default(), [1_000_000, 1_000_000]);
    let mut got = Vec::new();
    for n in 0..3 {
        let (id, order) = by(&mut table, "mirror", 2 + n);
        table.record_established(id, order[0], None, at(2 + n));
        table.moved(id, 100_000, 0, at(2 + n));
        got.push(order[0]);
    }
    assert!(got.contains(&2) && got.contains(&3), "{got:?}");
    assert!(table.decisions().next().unwrap().why.contains("among the interfaces that"));
}

#[test]
fn a_destination_is_not_tied_to_the_slow_interface_of_its_last_connection() {
    let mut table = taught(Settings::default(), [4_000_000, 1_000_000]);
    for (interface, s) in [(2, 10), (3, 11)] {
        let (id, _) = by(&mut table, "mirror", s);
        table.record_established(id, interface, None, at(s));
        table.ended(id);
    }
    assert_eq!(by(&mut table, "mirror", 20).1[0], 2);
}

#[test]
fn a_destination_keeps_to_its_interface_for_the_stated_time() {
    let affinity = Duration::from_secs(60);
    let schedule = ConnectionMethod::RoundRobin;
    let mut table = table(Settings { affinity, schedule, ..Settings::default() });
    let (id, order) = by(&mut table, "bank", 0);
    table.record_established(id, order[0], None, at(0));
    for _ in 0..3 {
        assert_eq!(by(&mut table, "bank", 59).1[0], order[0]);
    }
    assert!(table.decisions().next().unwrap().why.contains("keep to it"));
    let later: Vec<u32> = (0..2).map(|_| by(&mut table, "bank", 61).1[0]).collect();
    assert_ne!(later[0], later[1]);
}

#[test]
fn a_connection_is_counted_by_the_interface_that_it_was_established_by() {
    let mut table = table(Settings::default());
    let (id, order) = by(&mut table, "site", 0);
    table.record_established(id, order[1], None, at(0));
    pays(&mut table, id, (700, 300));
    let shown = table.show(TODAY);
    let of = |index: u32| &shown[index as usize - 2];
    assert_eq!((of(order[0]).used, of(order[0]).connections), (0, 0));
    assert_eq!((of(order[1]).used, of(order[1]).connections), (1062, 1), "with headers");
    assert!(table.decisions().next().unwrap().why.contains("no answer over"));
    assert_eq!(by(&mut table, "site", 1).1[0], order[1], "the next goes there at once");
}

#[test]
fn a_resting_connection_is_no_load_and_a_single_burst_gives_no_rate() {
    let mut table = taught(Settings::default(), [1_000_000, 1_000_000]);
    let (id, order) = by(&mut table, "site", 2);
    table.record_established(id, order[0], None, at(2));
    table.moved(id, 50_000_000, 0, at(2));
    table.tick(at(3), TODAY);
    let of = |table: &Table| table.show(TODAY)[order[0] as usize - 2].clone();
    assert_eq!(of(&table).load, 50_000_000, "it may go on as long again");
    assert_eq!(of(&table).estimate.down(), thalweg_units::Rate::from_mbps(8.0), "one burst");
    table.tick(at(10), TODAY);
    assert_eq!((of(&table).load, of(&table).connections), (0, 1));
}

#[test]
fn an_interface_that_reaches_nothing_comes_last_for_a_while() {
    let schedule = ConnectionMethod::OnlyOne;
    let mut table = table(Settings { affinity: Duration::ZERO, schedule, ..Settings::default() });
    for n in 0..2 {
        let (id, order) = by(&mut table, &format!("site{n}"), 0);
        assert_eq!(order, [2, 3]);
        table.record_established(id, 3, None, at(0));
    }
    assert_eq!(by(&mut table, "next", 1).1, [3]);
    let Assignment::By(_, order) = table.assign(app(), "x", at(1), TODAY) else { panic!() };
    assert_eq!(order, [(3, false), (2, true)], "it is there for the worst");
    assert_eq!(table.show(TODAY)[0].doubted, Some(doubt::DoubtReason::Unreached));
    assert_eq!(by(&mut table, "later", 11).1, [2, 3]);
}

#[test]
fn an_interface_without_a_route_to_one_destination_is_in_no_doubt() {
    let schedule = ConnectionMethod::OnlyOne;
    let mut table = table(Settings { affinity: Duration::ZERO, schedule, ..Settings::default() });
    for n in 0..3 {
        let (id, order) = by(&mut table, &format!("site{n}"), 0);
        assert_eq!(order, [2, 3]);
        table.record_no_route(id, 2);
        table.record_established(id, 3, None, at(0));
        assert!(table.decisions().next().unwrap().why.contains("no route"));
    }
    assert_eq!(table.show(TODAY)[0].doubted, None);
}

#[test]
fn an_interface_with_an_impostor_is_left_out_even_by_destinations_that_kept_to_it() {
    let schedule = ConnectionMethod::OnlyOne;
    let mut table = table(Settings { schedule, ..with("eth0", Policy::default()) });
    let (id, order) = by(&mut table, "bank", 0);
    table.record_established(id, order[0], None, at(0));
    let (shop, _) = by(&mut table, "shop", 0);
    table.record_established(shop, order[0], None, at(0));
    table.record_impostor(id, at(0));
    table.record_impostor(shop, at(0));
    let other = 5 - order[0];
    assert_eq!(by(&mut table, "bank", 1).1, [other]);
    let (again, _) = by(&mut table, "bank", 11);
    table.record_established(again, order[0], None, at(11));
    table.record_proof(again, at(11));
    assert_eq!(by(&mut table, "shop", 12).1.len(), 2);
}

#[test]
fn one_faulty_server_neither_activates_the_backup_nor_moves_other_destinations() {
    let mut table = table(with("lte0", Policy { tier: Tier::Backup, ..Policy::default() }));
    let (bank, _) = by(&mut table, "bank", 0);
    table.record_established(bank, 2, None, at(0));
    for s in 0..9 {
        let (id, order) = by(&mut table, "faulty", s);
        assert_eq!(order, [2]);
        table.record_established(id, 2, None, at(s));
        table.record_impostor(id, at(s));
        // This server does not answer by the first interface; the other reaches it.
        let (id, _) = by(&mut table, "drops", s);
        table.record_established(id, 3, None, at(s));
    }
    assert_eq!(table.show(TODAY)[0].doubted, None);
    assert_eq!(by(&mut table, "bank", 9).1, [2]);
    assert!(table.decisions().next().unwrap().why.contains("keep to it"));
}

#[test]
fn one_server_that_answers_correctly_by_the_other_interface_is_enough() {
    let mut table = table(Settings::default());
    for interface in [2, 3] {
        let (id, _) = by(&mut table, "bank", 0);
        table.record_established(id, interface, None, at(0));
        if interface == 2 {
            table.record_impostor(id, at(0))
        } else {
            table.record_proof(id, at(0))
        }
    }
    assert_eq!(table.show(TODAY)[0].doubted, Some(doubt::DoubtReason::Impostor));
    assert_eq!(table.show(TODAY)[1].doubted, None);
}

#[test]
fn an_addition_holds_what_came_since_the_last_one() {
    let mut one = table(Settings::default());
    let (id, order) = by(&mut one, "a", 0);
    one.record_established(id, order[0], None, at(0));
    pays(&mut one, id, (700, 300));
    let addition = one.take_addition();
    let mut file = StoredTable::default();
    (0..2).for_each(|_| addition.apply_to(&mut file));
    pays(&mut one, id, (800, 300));
    one.renew(file);
    let used: u64 = one.show(TODAY).iter().map(|shown| shown.used).sum();
    assert_eq!(used, 1062 * 2 + 106, "another process's, and its own since");
    assert!(!one.take_addition().is_empty() && one.take_addition().is_empty());
}

#[test]
fn c_demand_counts_only_established_connections() {
    let mut table = table(Settings::default());
    let (failed, _) = by(&mut table, "a", 0);
    table.ended(failed);
    assert!(table.applications().is_empty());
    let (id, order) = by(&mut table, "a", 0);
    table.record_established(id, order[0], None, at(0));
    table.moved(id, 8000, 100, at(0));
    table.moved(id, 7000, 100, at(0));
    table.ended(id);
    table.ended(id);
    let (_, demand) = table.applications()[0];
    assert_eq!((demand.bytes(), demand.connections()), (Some(8100), 1));
}

#[test]
fn a_destination_leaves_its_interface_only_while_that_has_other_traffic() {
    let mut table = table(Settings::default());
    let (id, order) = by(&mut table, "a", 0);
    table.record_established(id, order[0], None, at(0));
    table.moved(id, 6_000_000, 0, at(0));
    // Much has arrived, and as much again is expected: by the other interface it would be done sooner.
    assert!(table.would_leave(&app(), "a", at(0), TODAY));
    assert!(!table.would_leave(&app(), "b", at(0), TODAY), "nothing binds it");
    // A connection that is kept for later is no load.
    table.set_resting(id, true);
    assert!(!table.would_leave(&app(), "a", at(0), TODAY));
    table.set_resting(id, false);
    assert!(table.would_leave(&app(), "a", at(0), TODAY));
    table.ended(id);
    assert!(!table.would_leave(&app(), "a", at(0), TODAY));
    assert_eq!(by(&mut table, "a", 0).1[0], order[0]);
}

#[test]
fn an_interface_with_a_used_up_cap_is_left_out_until_its_reset_day() {
    let cap = Some(Cap { bytes: 500_000, reset_day: 1 });
    let mut table = table(with("lte0", Policy { cap, ..Policy::default() }));
    assert_eq!(table.wants_allotment(TODAY), None, "nobody uses it");
    let (id, _) = by(&mut table, "a", 0);
    table.record_established(id, 3, None, at(0));
    assert_eq!(table.permission("lte0"), Permission::Wait);
    let mut allotted = 0;
    while table.permission("lte0") != Permission::UsedUp {
        if let Some((name, of)) = table.wants_allotment(TODAY) {
            assert_eq!(name, "lte0");
            table.allot_here(&name, &of);
            continue;
        }
        allotted += 16 << 10;
        pays(&mut table, id, (allotted, 0));
    }
    let shown = table.show(TODAY);
    let used = shown[1].used;
    assert_eq!(shown.iter().map(|one| one.is_used_up).collect::<Vec<_>>(), [false, true]);
    // The window of one connection is left of the cap, for what is under way.
    assert!((434_464..=434_464 + (17 << 10)).contains(&used), "{used}");
    assert_eq!(by(&mut table, "b", 1).1, [2]);
    assert_eq!(by(&mut table, "a", 1).1, [2], "affinity does not overrule it");
    let next_month = WallTime::from_unix_nanos(TODAY.as_unix_nanos() + 32 * 86_400_000_000_000);
    table.ask_again();
    assert!(table.wants_allotment(next_month).is_some());
    assert!(
        matches!(table.assign(app(), "a", at(2), next_month), Assignment::By(_, all) if all.len() == 2)
    );
}

#[tokio::test]
async fn if_the_file_of_caps_cannot_be_asked_nothing_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (place, cap) = (dir.path().join("gone"), Some(Cap { bytes: 9_000_000, reset_day: 1 }));
    let settings = with("lte0", Policy { cap, ..Policy::default() });
    let uplinks = Uplinks::open(settings, Some(place.join("interfaces.json"))).unwrap();
    uplinks.table().follow(vec![UsableInterface { index: 3, name: "lte0".into() }], at(0), TODAY);
    let may = async || {
        tokio::select! {
            () = uplinks.allot() => panic!("it never ends"),
            may = uplinks.wait_to_move("lte0") => may,
        }
    };
    let why = may().await.unwrap_err();
    assert!(matches!(&why, CapError::Uncounted { why, .. } if why.contains("interfaces.json")));
    assert_eq!(uplinks.0.faults.all(), [why.to_string()]);
    assert!(!uplinks.table().has_left_for_link("lte0", TODAY), "others go elsewhere");
    std::fs::create_dir(&place).unwrap();
    uplinks.table().ask_again();
    assert_eq!(may().await, Ok(()));
    assert!(uplinks.0.faults.all().is_empty());
}

#[test]
fn tiers_and_rules_restrict_the_interfaces() {
    let mut backup = table(with("lte0", Policy { tier: Tier::Backup, ..Policy::default() }));
    assert_eq!(by(&mut backup, "a", 0).1, [2]);
    backup.follow(vec![UsableInterface { index: 3, name: "lte0".into() }], at(0), TODAY);
    assert_eq!(by(&mut backup, "a", 0).1, [3]);
    let rule =
        |action| Rule { process: Some("fire*".into()), port: None, destination: None, action };
    let only = Rules(vec![rule(Action::Only(vec!["wlan0".into()]))]);
    let mut none = table(Settings { rules: only, ..Settings::default() });
    assert_eq!(none.assign(app(), "a", at(0), TODAY), Assignment::Nowhere);
    let curl = Application { process: Some("curl".into()), port: 443 };
    assert!(matches!(none.assign(curl, "a", at(0), TODAY), Assignment::By(..)));
}

#[test]
fn legs_to_relays_are_bound_only_if_the_kernels_choice_is_unsuitable() {
    let of = |name: &str, policy: Policy| {
        let mut table = table(with(name, policy));
        let Assignment::By(_, order) = table.assign(app(), "a", at(0), TODAY) else { panic!() };
        table.relays_leave_by(&order)
    };
    let tier = |tier| Policy { tier, ..Policy::default() };
    let cap = Some(Cap { bytes: 10_000_000, reset_day: 1 });
    assert_eq!(of("lte0", tier(Tier::Never)), None);
    assert_eq!(of("eth0", tier(Tier::Never)), Some(3));
    assert_eq!(of("eth0", tier(Tier::Backup)), Some(3));
    assert_eq!(of("lte0", Policy { cap, ..Policy::default() }), None);
    assert!(of("eth0", Policy { cap, ..Policy::default() }).is_some());
}

#[test]
fn after_only_the_kernels_choice_worked_the_next_connection_uses_it_at_once() {
    let mut table = table(Settings::default());
    let (id, _) = by(&mut table, "intranet", 0);
    by(&mut table, "site", 0);
    table.record_unbound(id, at(0));
    assert_eq!(table.assign(app(), "intranet", at(599), TODAY), Assignment::Free);
    let shown: Vec<_> = table.decisions().map(|d| d.destination.clone()).collect();
    assert_eq!(shown, ["site"]);
    by(&mut table, "intranet", 601);
}

#[test]
fn near_destinations_are_reported_as_left_to_the_kernel() {
    let left = |table: &Table, to: &str| table.is_left_as_near(&to.parse().unwrap());
    let mut two = table(Settings::default());
    assert!(left(&two, "10.1.2.3:80") && left(&two, "printer:80"));
    assert!(!left(&two, "127.0.0.1:80") && !left(&two, "a.example:80"));
    (0..3).for_each(|s| two.record_near(app(), "10.1.2.3", at(s)));
    let told: Vec<_> = two.decisions().collect();
    assert_eq!((told.len(), told[0].at), (1, at(2)), "one after the other are one");
    assert!(told[0].why.contains("`near = true` changes that"));
    two.allow(Settings { near: true, ..Settings::default() });
    assert!(!left(&two, "10.1.2.3:80"));
    two.follow(vec![UsableInterface { index: 2, name: "eth0".into() }], at(0), TODAY);
    two.allow(Settings::default());
    assert!(!left(&two, "10.1.2.3:80"), "there is no choice");
}

#[test]
fn one_interface_without_settings_is_left_to_the_kernel() {
    let mut table = table(Settings::default());
    table.follow(vec![UsableInterface { index: 2, name: "eth0".into() }], at(0), TODAY);
    assert_eq!(table.assign(app(), "a", at(0), TODAY), Assignment::Free);
}

#[test]
fn the_method_can_be_changed_while_it_runs() {
    let mut table = taught(Settings::default(), [4_000_000, 1_000_000]);
    table.schedule_by(ConnectionMethod::OnlyOne);
    let all = (0..10).map(|n| by(&mut table, &format!("s{n}"), 1).1[0]);
    assert!(all.collect::<Vec<_>>().iter().all(|index| *index == 2));
    table.schedule_by(ConnectionMethod::RoundRobin);
    let all: Vec<u32> = (0..4).map(|n| by(&mut table, &format!("t{n}"), 1).1[0]).collect();
    assert_eq!(all, [2, 3, 2, 3]);
}

#[test]
fn links_of_a_bond_use_backups_only_while_nothing_else_answers() {
    let backup = Policy { tier: Tier::Backup, ..Policy::default() };
    let table = table(with("lte0", backup));
    assert_eq!(table.link_interfaces(&[].into(), at(0), TODAY), [2]);
    assert_eq!(table.link_interfaces(&[2].into(), at(0), TODAY), [2, 3]);
    assert_eq!(table.count_link_interfaces(TODAY), 2, "there is a bond all the same");
    let never = Policy { tier: Tier::Never, ..Policy::default() };
    let table = self::table(with("lte0", never));
    assert_eq!(table.link_interfaces(&[2].into(), at(0), TODAY), [2]);
    assert_eq!(table.count_link_interfaces(TODAY), 1);
}

#[test]
fn bytes_that_a_link_may_have_under_way_are_reserved_from_the_cap() {
    let cap = Some(Cap { bytes: 1_000_000, reset_day: 1 });
    let mut table = table(with("lte0", Policy { cap, ..Policy::default() }));
    let ahead = table.ahead(3).unwrap();
    table.link_began("lte0");
    let mut moved = 0;
    while let Some((name, of)) = table.wants_allotment(TODAY) {
        table.allot_here(&name, &of);
        // As much as is allowed, and no more.
        while table.permission("lte0") == Permission::Granted {
            table.carried("lte0", 1700, TODAY);
            moved += 1700;
        }
    }
    assert_eq!(table.permission("lte0"), Permission::UsedUp);
    assert!((1_000_000 - 3 * ahead..1_000_000 - 2 * ahead + 1700).contains(&moved), "{moved}");
    assert_eq!(table.link_interfaces(&[].into(), at(0), TODAY), [2]);
    table.link_ended("lte0");
    assert_eq!(table.link_interfaces(&[].into(), at(0), TODAY), [2], "nor for another link");
}
