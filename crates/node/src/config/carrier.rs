//! `[carrier]`: packets that ride in probe trains.

use super::{Problem, Share, text};
use serde::Deserialize;
use std::time::Duration;
use thalweg_measure::riders::{HoldSettings, LegRule, Regulator, Selection};
use thalweg_probe::carrier::{CarrierSettings, OpenPorts};
use thalweg_units::Rate;
use thalweg_wire::mesh::{MemberPattern, PortRange};

/// TCP takes a packet that is later for lost, if the path is short (RFC 6298's minimum is 200 ms).
const LONGEST_HOLD: Duration = Duration::from_millis(100);

/// The smallest path MTU with room for a packet and the bytes around it (RFC 791).
const LEAST_PATH: u16 = 576;

/// Which of the node's own connections use the carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LegsChoice {
    /// Those whose route says so (`RELAY%ride`).
    #[default]
    Named,
    /// Also those to members with frequent probe trains to or from them ([`LegRule`]).
    Measured,
}

/// The settings of [`thalweg_probe::carrier`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CarrierSection {
    /// Whether this node has a carrier device and accepts riders.
    pub enabled: bool,
    pub device: String,
    /// The longest packet that the paths to members take whole, bytes.
    pub path_mtu: u16,
    /// How long a packet waits for a train that is under way or due.
    #[serde(deserialize_with = "text::one")]
    pub hold: Duration,
    /// Whether packets wait even if no train is under way or due, as in the paper.
    pub always_hold: bool,
    /// Whether padding that is left repeats what the train carried before.
    pub repeats: bool,
    /// The largest share of a train that carries riders, from its beginning.
    #[serde(deserialize_with = "text::one")]
    pub share: Share,
    /// The most probes of a train that carry riders, from its beginning.
    pub probes: Option<usize>,
    /// Whether a train carries no more than the riding TCP flows would have in flight.
    pub follow_tcp: bool,
    /// The rate below which trains are not limited in this way.
    #[serde(deserialize_with = "text::one")]
    pub harmless: Rate,
    /// TCP and UDP ports, of either end, whose packets may ride.
    #[serde(deserialize_with = "text::list")]
    pub ports: Vec<PortRange>,
    /// Packets with these differentiated services code points may ride.
    pub dscp: Vec<u8>,
    /// Members that may reach the ports in `open`.
    #[serde(deserialize_with = "text::list")]
    pub from: Vec<MemberPattern>,
    /// TCP and UDP ports of this host that these members reach at the device, in addition to the mesh port.
    #[serde(deserialize_with = "text::list")]
    pub open: Vec<PortRange>,
    /// TCP's congestion control over the device; absent: the host's own.
    #[serde(deserialize_with = "text::option")]
    pub congestion: Option<String>,
    /// Which of the node's own connections use the carrier.
    pub legs: LegsChoice,
    /// With `legs = "measured"`, connections ride only if these trains are no faster than this.
    #[serde(deserialize_with = "text::one")]
    pub legs_below: Rate,
}

impl Default for CarrierSection {
    fn default() -> Self {
        let CarrierSettings { device, path_mtu, hold, .. } = CarrierSettings::default();
        Self {
            enabled: false,
            device,
            path_mtu,
            hold: hold.longest,
            always_hold: hold.is_unconditional,
            repeats: hold.repeats,
            share: Share::ALL,
            probes: None,
            follow_tcp: true,
            harmless: Rate::ZERO,
            ports: Vec::new(),
            dscp: Vec::new(),
            from: OpenPorts::default().from,
            open: Vec::new(),
            congestion: None,
            legs: LegsChoice::default(),
            legs_below: LegRule::default().below,
        }
    }
}

impl CarrierSection {
    /// The settings of [`thalweg_probe::carrier::Carrier`].
    pub fn settings(&self) -> CarrierSettings {
        CarrierSettings {
            device: self.device.clone(),
            path_mtu: self.path_mtu,
            hold: HoldSettings {
                longest: self.hold,
                is_unconditional: self.always_hold,
                repeats: self.repeats,
                ..HoldSettings::default()
            },
            regulators: self.regulators(),
            selection: Selection {
                ports: self.ports.iter().map(|range| range.range()).collect(),
                dscp: self.dscp.clone(),
            },
            congestion: self.congestion.clone(),
            legs: (self.legs == LegsChoice::Measured)
                .then(|| LegRule { below: self.legs_below, ..LegRule::default() }),
            doors: OpenPorts {
                from: self.from.clone(),
                open: self.open.iter().map(|range| range.range()).collect(),
            },
        }
    }

    fn regulators(&self) -> Vec<Regulator> {
        let share = (self.share != Share::ALL).then(|| Regulator::Share(self.share.fraction()));
        let first = self.probes.map(Regulator::First);
        let harmless = self.harmless.as_bps() as f64;
        let flow = self.follow_tcp.then_some(Regulator::Flow { harmless });
        share.into_iter().chain(first).chain(flow).collect()
    }
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(carrier: &CarrierSection, problems: &mut Vec<Problem>) {
    let mut of = |key: &str, what: &str| {
        problems.push(Problem::of(format!("carrier.{key}"), what));
    };
    if carrier.hold.is_zero() || carrier.hold > LONGEST_HOLD {
        of(
            "hold",
            "must be more than 0 and at most 100 ms, because TCP treats later packets as lost; \
             write e.g. \"10 ms\"",
        );
    }
    if carrier.path_mtu < LEAST_PATH {
        of("path_mtu", "must be at least 576; write e.g. 1500");
    }
    if carrier.dscp.iter().any(|point| *point > 63) {
        of("dscp", "code points must be 0 to 63, e.g. [10, 46]");
    }
    if carrier.legs_below == Rate::ZERO {
        of(
            "legs_below",
            "must be more than 0; leave it out for 100 Mbit/s, or leave out `legs` so that only \
             routes with `%ride` use the carrier",
        );
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !(1..=15).contains(&carrier.device.len()) || !carrier.device.bytes().all(allowed) {
        of(
            "device",
            "a device name has 1 to 15 letters, digits, `-`, `_` and `.`, e.g. \
                      \"thalweg0\"",
        );
    }
}
