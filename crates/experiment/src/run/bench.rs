//! A network with its services, ready for an arm.

use super::{
    fixture::{self, Made},
    network::{self, Network},
    service::Services,
    stop::Stop,
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

/// Everything around an arm. Services end before the network.
#[derive(Debug)]
pub struct Bench {
    /// The programs beside it.
    pub services: Services,
    /// Where they run.
    pub network: Network,
    /// The placeholders' values here.
    pub values: Values,
}

/// What a bench is built from.
#[derive(Debug)]
pub struct Blueprint<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The round's topology.
    pub topology: Option<&'a Topology>,
    /// The round's values.
    pub values: &'a Values,
    /// Where fixtures are.
    pub scratch: &'a Path,
    /// What is known of the random ones.
    pub made: &'a BTreeMap<String, Made>,
    /// The wish to stop.
    pub stop: &'a Stop,
}

impl Bench {
    /// Starts the network and the services of `arm` (all, where none is given), and lets them settle.
    ///
    /// # Errors
    /// When the lab or a service does not come up.
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

/// Lets traffic reach its steady state: part of the experiment, not a wait for a condition.
fn settle(pause: Duration, stop: &Stop) -> Result<()> {
    let until = Instant::now() + pause;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        stop.check()?;
        thread::sleep(left.min(Duration::from_millis(200)));
    }
    Ok(())
}
