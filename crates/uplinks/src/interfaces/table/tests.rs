use super::{
    super::{ProbeServer, Probed, Settings, StoredTable},
    Table, UsableInterface,
};
use std::time::Duration;
use thalweg_bond::{Cap, Policy, Tier};
use thalweg_units::{Rate, Time, WallTime};

const TODAY: WallTime = WallTime::from_unix_nanos(1_800_000_000_000_000_000);

fn at(s: u64) -> Time {
    Time::from_nanos(s * 1_000_000_000)
}

fn table(lte: Policy) -> Table {
    let policies = [("lte0".to_owned(), lte)].into();
    let mut table =
        Table::new(Settings { policies, ..Settings::default() }, StoredTable::default(), at(0));
    let present = |index, name: &str| UsableInterface { index, name: name.into() };
    table.follow(vec![present(2, "eth0"), present(3, "lte0")], at(0), TODAY);
    table
}

/// The interfaces that are probed one after the other, with this outcome.
fn probed(table: &mut Table, s: u64, told: &Result<Probed, String>) -> Vec<String> {
    std::iter::from_fn(|| {
        let due = table.interface_to_probe(at(s), TODAY)?;
        table.begin_probe(&due.name, at(s));
        table.record_probe(&due, told.clone(), (at(s), TODAY));
        Some(due.name)
    })
    .collect()
}

fn megabit() -> Result<Probed, String> {
    let (rtt, took) = (Some(Duration::from_millis(30)), Duration::from_secs(1));
    Ok(Probed { rtt, bytes: 125_000, took })
}

#[test]
fn each_interface_is_probed_once_and_again_when_the_result_is_old() {
    let mut table = table(Policy::default());
    assert_eq!(probed(&mut table, 0, &megabit()), ["eth0", "lte0"]);
    let shown = table.show(TODAY);
    assert_eq!(shown[1].estimate.down(), Rate::from_mbps(1.0));
    assert_eq!(shown[1].estimate.rtt(), Duration::from_millis(30));
    assert!(probed(&mut table, 1799, &megabit()).is_empty());
    assert_eq!(probed(&mut table, 1800, &megabit()), ["eth0", "lte0"]);
}

#[test]
fn an_interface_with_an_old_kept_estimate_is_probed_even_by_a_new_process() {
    let mut before = table(Policy::default());
    assert_eq!(probed(&mut before, 0, &megabit()), ["eth0", "lte0"]);
    let mut kept = StoredTable::default();
    before.take_addition().apply_to(&mut kept);
    let after = |minutes: u64| {
        let today = TODAY.as_unix_nanos() + minutes * 60_000_000_000;
        let today = WallTime::from_unix_nanos(today);
        let mut table = Table::new(Settings::default(), kept.clone(), at(0));
        table.follow(vec![UsableInterface { index: 2, name: "eth0".into() }], at(0), today);
        table.interface_to_probe(at(1), today).map(|due| due.name)
    };
    assert_eq!(after(29), None);
    assert_eq!(after(30).as_deref(), Some("eth0"));
}

#[test]
fn interfaces_that_cost_or_are_not_used_are_not_probed() {
    let cap = Some(Cap { bytes: 1_000_000, reset_day: 1 });
    let of = |policy| probed(&mut table(policy), 0, &megabit());
    assert_eq!(of(Policy { tier: Tier::Never, ..Policy::default() }), ["eth0"]);
    assert_eq!(of(Policy { cap, ..Policy::default() }), ["eth0"]);
    assert_eq!(of(Policy { price: 5.0, ..Policy::default() }), ["eth0"]);
    assert_eq!(of(Policy { price: 5.0, spend: true, ..Policy::default() }), ["eth0", "lte0"]);
}

fn server(text: &str) -> ProbeServer {
    text.parse().unwrap()
}

#[test]
fn another_interface_or_another_server_tells_whose_fault_a_failed_probe_is() {
    let both = table(Policy::default());
    let eth0 = UsableInterface { index: 2, name: "eth0".into() };
    let (one, same, other) = (
        server("http://a.example/1"),
        server("http://a.example:8080/2"),
        server("http://b.example"),
    );
    let all = [one.clone(), same, other.clone()];
    let name = |found: Option<(UsableInterface, ProbeServer)>| found.map(|(by, at)| (by.name, at));
    let witness = name(both.witness(&eth0, &one, &all, TODAY));
    assert_eq!(witness, Some(("lte0".to_owned(), one.clone())));
    let costs = table(Policy { price: 5.0, ..Policy::default() });
    let witness = name(costs.witness(&eth0, &one, &all, TODAY));
    assert_eq!(witness, Some(("eth0".to_owned(), other)));
    assert_eq!(costs.witness(&eth0, &one, &all[..2], TODAY), None);
}

#[test]
fn a_failed_probe_gives_the_reason_and_a_blamed_interface_is_left_out() {
    let mut table = table(Policy::default());
    let failed = Err("the probe was answered 302".to_owned());
    assert_eq!(probed(&mut table, 0, &failed), ["eth0", "lte0"]);
    let shown = table.show(TODAY);
    assert!(shown.iter().all(|of| of.doubted.is_none()), "the server's fault: {shown:?}");
    table.exclude_unreached(&UsableInterface { index: 2, name: "eth0".into() }, at(0));
    let shown = table.show(TODAY);
    assert!(shown[0].doubted.is_some() && shown[1].doubted.is_none(), "{shown:?}");
    assert_eq!(shown[0].probe_failure.as_deref(), Some("the probe was answered 302"));
    assert_eq!(probed(&mut table, 1800, &megabit()), ["eth0", "lte0"]);
    let shown = table.show(TODAY);
    assert!(shown[0].doubted.is_none() && shown[0].probe_failure.is_none(), "{shown:?}");
}
