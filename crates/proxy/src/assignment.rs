//! Assigns programs' connections to this host's network interfaces, and reports the bytes that they move.

use super::{
    dial::RaceResult,
    state::{ConnectError, ProxyState},
};
use std::{future::pending, num::NonZeroU32, sync::Arc, time::Duration};
use thalweg_net::pump::Moved;
use thalweg_net::{Monitor, Route};
use thalweg_paths::chooser::{PathAttempt, PathRace};
use thalweg_uplinks::interfaces::{Client, Lane, Lanes, Passage};
use thalweg_wire::Destination;
use tokio::time::sleep;

/// How long after one interface the next one is tried, if the destination has not answered by then. TCP waits as long
/// before it repeats its first packet (RFC 6298 §2), so a longer round trip is no reason to leave an interface.
const NEXT_INTERFACE: Duration = Duration::from_secs(1);

/// The same delay before an interface that is used only if the others fail (it is in a lower tier, or in doubt): three
/// of TCP's packets were not answered.
const LAST_RESORT: Duration = Duration::from_secs(3);

/// How often the counts of a connection that speaks HTTP are reported.
const LOOK: Duration = Duration::from_millis(250);

impl ProxyState {
    /// Assigns interfaces to a connection of this program.
    ///
    /// # Errors
    /// The settings leave no interface.
    pub(super) async fn assign_interfaces(
        &self,
        client: &Client,
        to: &Destination,
    ) -> Result<Lanes, ConnectError> {
        let Some(uplinks) = &self.uplinks else { return Ok(Lanes::Free) };
        match uplinks.assign(client, to).await {
            Lanes::Nowhere => Err(ConnectError::Interfaces),
            lanes => Ok(lanes),
        }
    }
}

/// Replaces the direct attempt by one attempt for each of these interfaces, in this order. If `or_free`, an attempt
/// without an interface follows, for which the kernel chooses.
fn bind_race(choice: PathRace, interfaces: &[Lane], or_free: bool) -> PathRace {
    let bound = |lane: &Lane| (Route::direct().by_interface(lane.interface), *lane);
    let mut lanes: Vec<(Route, Option<usize>, Duration)> = Vec::new();
    let mut after = Duration::ZERO;
    for (route, lane) in interfaces.iter().map(bound) {
        if !lanes.is_empty() {
            after += if lane.is_last { LAST_RESORT } else { NEXT_INTERFACE };
        }
        lanes.push((route, lane.ahead, after));
    }
    lanes.extend(or_free.then(|| (Route::direct(), None, after + NEXT_INTERFACE)));
    let mut ways = Vec::new();
    for way in choice.into_attempts() {
        if !way.route.is_direct() {
            ways.push(way);
            continue;
        }
        ways.extend(lanes.iter().cloned().map(|(route, ahead, after)| {
            let (name, after) = (way.name.clone(), way.after + after);
            PathAttempt { name, route, after, ahead }
        }));
    }
    PathRace::only(ways)
}

/// Restricts the race to the assigned interfaces. Also returns the passage, to which the connection's traffic is
/// reported.
pub fn apply_lanes(choice: PathRace, lanes: Lanes) -> (PathRace, Option<Passage>) {
    match lanes {
        Lanes::By { passage, interfaces, relays, or_free } => {
            (bind_race(choice, &interfaces, or_free).bind_detours(relays), Some(passage))
        }
        Lanes::Free | Lanes::Nowhere => (choice, None),
    }
}

/// Whether a connection by this route uses the assigned interface, which is the first one. So no idle connection is
/// reused by an interface that a rule, tier or schedule excludes now.
pub fn fits(route: &Route, lanes: &Lanes) -> bool {
    match lanes {
        Lanes::Nowhere => false,
        Lanes::Free => leaves_by(route, None, None),
        Lanes::By { interfaces, relays, .. } => {
            leaves_by(route, interfaces.first().map(|lane| lane.interface), *relays)
        }
    }
}

/// The same assignment without this interface, and without the kernel's own choice, which may be this interface, too.
/// `None` if nothing is left.
pub fn without_interface(lanes: Lanes, avoided: NonZeroU32) -> Option<Lanes> {
    let Lanes::By { passage, mut interfaces, relays, .. } = lanes else { return None };
    interfaces.retain(|lane| lane.interface != avoided);
    (!interfaces.is_empty()).then_some(Lanes::By { passage, interfaces, relays, or_free: false })
}

/// Whether the route leaves this host by the assigned interface: `direct` for a route without relays, `relayed` for one
/// with relays. A bonded route always fits, because a bond chooses its interfaces itself.
fn leaves_by(route: &Route, direct: Option<NonZeroU32>, relayed: Option<NonZeroU32>) -> bool {
    let assigned = if route.is_direct() { direct } else { relayed };
    route.is_bonded() || route.interface() == assigned
}

/// Attaches the passage to the connection, if that is bound to an interface. Failed attempts by other interfaces are
/// reported to it as well.
pub fn attach_passage(raced: &mut RaceResult, passage: Option<Passage>) {
    let Some(passage) = passage else { return };
    let won = raced.won.as_ref().ok().and_then(|dialled| dialled.stream.route().interface());
    let vain = |index: &&NonZeroU32| Some(**index) != won && !raced.routeless.contains(index);
    raced.tried.iter().filter(vain).for_each(|index| passage.record_failed_dial(*index));
    let Ok(dialled) = &mut raced.won else { return };
    let route = dialled.stream.route();
    let interface = route.interface();
    if interface.is_none() && !route.is_direct() {
        return;
    }
    raced.routeless.iter().for_each(|index| passage.record_no_route(*index));
    passage.record_established(interface, dialled.stream.round_trip());
    dialled.passage = interface.map(|_| Arc::new(passage));
}

/// Reports a connection's byte counts and TCP's statistics to the passage at intervals; never returns.
pub async fn watch(passage: Option<&Passage>, moved: &Moved, monitor: Monitor) {
    let Some(passage) = passage else { return pending().await };
    let watched = WatchedPassage { passage, moved, monitor };
    loop {
        sleep(LOOK).await;
        watched.look();
    }
}

/// Reports the counts once more when it is dropped: the owner drops the watch before it closes the connection.
struct WatchedPassage<'a> {
    passage: &'a Passage,
    moved: &'a Moved,
    monitor: Monitor,
}

impl WatchedPassage<'_> {
    fn look(&self) {
        self.passage.counts(self.moved);
        // Once the stream was handed on, there is nothing to read.
        if let Ok(info) = self.monitor.tcp_info() {
            self.passage.record_tcp_info(&info);
        }
    }
}

impl Drop for WatchedPassage<'_> {
    fn drop(&mut self) {
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_link_is_used_only_where_a_new_connection_would_go() {
        let [one, two] = [2, 3].map(|i| NonZeroU32::new(i).unwrap());
        let relay = Route::through(["r.example:1080".parse().unwrap()]).unwrap();
        let (free, bound) = (Route::direct(), Route::direct().by_interface(one));
        let relayed = relay.clone().by_interface(one);
        for (route, direct, by_relays, is_fit) in [
            (&free, None, None, true),
            (&bound, None, None, false),
            (&bound, Some(one), None, true),
            (&bound, Some(two), None, false),
            (&free, Some(one), None, false),
            (&relay, Some(one), None, true),
            (&relay, Some(one), Some(one), false),
            (&relayed, Some(two), Some(one), true),
        ] {
            assert_eq!(leaves_by(route, direct, by_relays), is_fit, "{route:?} {direct:?}");
        }
        assert!(!fits(&free, &Lanes::Nowhere) && fits(&free, &Lanes::Free));
    }

    fn way(name: &str, after: u64) -> PathAttempt {
        let route = Route::through([format!("{name}.example:1080").parse().unwrap()]).unwrap();
        let after = Duration::from_millis(after);
        PathAttempt { name: name.to_owned(), route, after, ahead: None }
    }

    #[test]
    fn the_direct_way_is_tried_by_each_interface_in_turn() {
        let [one, two] = [2, 3].map(|i| NonZeroU32::new(i).unwrap());
        let lanes = [two, one].map(|interface| Lane { interface, ahead: None, is_last: false });
        let choice = bind_race(
            PathRace::with_direct(vec![way("a", 1200), PathAttempt::direct()]),
            &lanes,
            true,
        );
        let ways =
            choice.attempts().iter().map(|w| (w.name.as_str(), w.route.interface(), w.after));
        let ms = Duration::from_millis;
        let direct = |by, after| ("direct", by, ms(after));
        let expected = [
            direct(Some(two), 0),
            direct(Some(one), 1000),
            ("a", None, ms(1200)),
            direct(None, 2000),
        ];
        assert_eq!(ways.collect::<Vec<_>>(), expected);
    }
}
