//! The bench: a network with its services, ready for an arm.

use super::{
    fixture::{self, FixtureDigest},
    network::{self, Network},
    service::Services,
    stop::StopFlag,
};
use crate::{
    error::Result,
    plan::{Arm, Plan},
    template::Values,
};
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::topology::Topology;

/// The environment of an arm. Services end before the network.
#[derive(Debug)]
pub struct ArmEnvironment {
    /// The services of the arm.
    pub services: Services,
    /// The network in which they run.
    pub network: Network,
    /// The values of placeholders in this network.
    pub values: Values,
}

/// The inputs for starting a bench.
#[derive(Debug)]
pub struct Blueprint<'a> {
    pub plan: &'a Plan,
    pub topology: Option<&'a Topology>,
    pub values: &'a Values,
    /// The directory of fixtures.
    pub scratch: &'a Path,
    /// Size and hash of the random fixtures.
    pub made: &'a BTreeMap<String, FixtureDigest>,
    pub stop: &'a StopFlag,
}

impl ArmEnvironment {
    /// Starts the network and the services of `arm` (of all arms for `None`), and lets them settle.
    ///
    /// # Errors
    /// If the lab or a service does not start.
    pub fn start(blueprint: &Blueprint<'_>, arm: Option<&Arm>) -> Result<Self> {
        let Blueprint { plan, topology, scratch, stop, .. } = blueprint;
        let network = Network::start(*topology)?;
        let mut values = blueprint.values.clone();
        network.addresses(&mut values);
        for name in &plan.ports {
            values.set(format!("port.{name}"), network::free_port()?.to_string());
        }
        fixture::set_values(plan, scratch, blueprint.made, &mut values);
        fixture::write_texts(plan, scratch, &values)?;
        let services = Services::start(plan, arm, &network, &values, stop)?;
        settle(plan.settle, stop)?;
        Ok(Self { services, network, values })
    }
}

/// Waits for traffic to reach its steady state. The pause is part of the experiment and not a wait for a condition.
fn settle(pause: Duration, stop: &StopFlag) -> Result<()> {
    let until = Instant::now() + pause;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        stop.check()?;
        thread::sleep(left.min(Duration::from_millis(200)));
    }
    Ok(())
}
