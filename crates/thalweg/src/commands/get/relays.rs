//! Chooses the relays of the mesh that a download tries without being told.

use crate::commands::text::rough;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;
use thalweg_net::Route;
use thalweg_paths::detours::{Detours, Draw, PickedRelay};
use thalweg_units::{Rate, WallTime};

/// The relays of one download, with the reason for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// In the order in which they were picked.
    pub picked: Vec<PickedRelay>,
    /// The number of relays to pick from.
    pub usable: usize,
    /// The age of the oracle's list; `None` if there is none.
    pub age: Option<Duration>,
    /// Whether the list is older than the oracle allows.
    pub is_stale: bool,
}

impl Choice {
    /// Picks from these relays of the mesh; see [`Detours::pick`].
    pub fn make(
        detours: Option<&Mutex<Detours>>,
        usable: &[(String, Route)],
        rate: impl Fn(&str) -> Option<Rate>,
        draw: Draw,
        now: WallTime,
    ) -> Self {
        let names: Vec<String> = usable.iter().map(|(name, _)| name.clone()).collect();
        let pick = |detours: &mut Detours| Self {
            picked: detours.pick(&names, rate, draw),
            usable: usable.len(),
            age: detours.relay_list().map(|l| l.age(now)),
            is_stale: detours.is_stale(now),
        };
        match detours {
            Some(detours) => pick(&mut detours.lock()),
            None => pick(&mut Detours::unkept()),
        }
    }

    /// The routes of the picked relays, in their order.
    pub fn routes(&self, usable: Vec<(String, Route)>) -> Vec<(String, Route)> {
        let place = |name: &str| self.picked.iter().position(|p| p.relay == name);
        let mut routes: Vec<_> =
            usable.into_iter().filter_map(|r| Some((place(&r.0)?, r))).collect();
        routes.sort_by_key(|(place, _)| *place);
        routes.into_iter().map(|(_, route)| route).collect()
    }

    /// The event of `get --json`.
    pub fn json(&self) -> Value {
        json!({
            "event": "relays", "picked": self.picked, "usable": self.usable,
            "list_age_seconds": self.age.map(|age| age.as_secs()), "list_is_stale": self.is_stale,
        })
    }

    /// A line for people.
    pub fn words(&self) -> String {
        let list = match (self.age, self.is_stale) {
            (None, _) => "no list from an oracle".to_owned(),
            (Some(age), false) => format!("the oracle's list is {} old", rough(age)),
            (Some(age), true) => {
                format!("the oracle's list is {} old, and there is no newer one yet", rough(age))
            }
        };
        let relays: Vec<String> = self.picked.iter().map(ToString::to_string).collect();
        format!("{} of {} relays, {list}: {}", relays.len(), self.usable, relays.join(", "))
    }
}
