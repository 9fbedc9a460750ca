//! Services: the programs that run alongside the arms.

use super::{
    capture::TAIL_MAX,
    installed_programs,
    network::Network,
    process::{Process, describe},
    stop::StopFlag,
};
use crate::{
    error::{ExperimentError, Result},
    pattern,
    plan::{Arm, Plan, Service},
    schedule,
    template::{TextForm, Values},
};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often to check whether a service is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An instance of a service.
#[derive(Debug)]
struct Instance {
    /// `name@host`, or the name.
    id: String,
    process: Process,
    /// Whether it may end, because it is a preparation or a fault has signalled it.
    may_end: bool,
}

/// All instances in a network; killed in reverse order when dropped.
#[derive(Debug, Default)]
pub struct Services(Vec<Instance>);

impl Drop for Services {
    fn drop(&mut self) {
        while let Some(mut last) = self.0.pop() {
            last.process.kill();
        }
    }
}

/// The services that run with `arm` (all services for `None`).
fn wanted<'a>(plan: &'a Plan, arm: Option<&Arm>) -> impl Iterator<Item = &'a Service> {
    let arm = arm.map(|a| a.name.clone());
    let serves = move |service: &&Service| match (&service.arms, &arm) {
        (Some(patterns), Some(arm)) => pattern::any(patterns, arm),
        _ => true,
    };
    plan.service.iter().filter(serves)
}

/// The reason why an arm cannot run, if a service that it needs is not installed and has no substitute.
pub fn missing(plan: &Plan, arm: &Arm) -> Option<String> {
    let without = wanted(plan, Some(arm)).filter(|s| s.otherwise.is_none());
    without.filter_map(|s| installed_programs::missing(&s.requires)).next()
}

/// The hosts of the services that run with `arm`.
pub fn hosts(plan: &Plan, arm: &Arm) -> Vec<String> {
    wanted(plan, Some(arm)).flat_map(|s| s.host.list().to_vec()).collect()
}

impl Services {
    /// Starts the services of `arm` (all services for `None`) in the plan's order, each when the previous one is ready.
    ///
    /// # Errors
    /// If a service cannot be started, ends, or is not ready in time.
    pub fn start(
        plan: &Plan,
        arm: Option<&Arm>,
        network: &Network,
        values: &Values,
        stop: &StopFlag,
    ) -> Result<Self> {
        let mut services = Self::default();
        for service in wanted(plan, arm) {
            if schedule::applies(&service.when, values)? {
                services.start_one(service, network, values, stop)?;
            }
        }
        Ok(services)
    }

    fn start_one(
        &mut self,
        service: &Service,
        network: &Network,
        values: &Values,
        stop: &StopFlag,
    ) -> Result<()> {
        let first = self.0.len();
        let hosts: Vec<Option<&str>> = match service.host.list() {
            [] => vec![None],
            hosts => hosts.iter().map(|h| Some(h.as_str())).collect(),
        };
        for host in &hosts {
            let instance = spawn(service, *host, network, values)?;
            self.0.push(instance);
        }
        // All instances start concurrently.
        for (instance, host) in self.0[first..].iter_mut().zip(hosts) {
            ready(service, instance, host, network, values, stop)?;
        }
        Ok(())
    }

    /// Sends a signal to every instance that matches `wanted`. These instances may end from now on.
    ///
    /// # Errors
    /// If there is no such instance, or one has ended.
    pub fn signal(&mut self, wanted: &str, signal: Signal) -> Result<()> {
        let mut any = false;
        for instance in self.0.iter_mut().filter(|i| pattern::matches(wanted, &i.id)) {
            (any, instance.may_end) = (true, true);
            if signal == Signal::KILL {
                instance.process.kill();
                continue;
            }
            let gone = |e| ExperimentError::Service {
                service: instance.id.clone(),
                why: format!("cannot send it a signal: {e}"),
            };
            instance.process.signal(signal).map_err(gone)?;
        }
        let none = || {
            ExperimentError::Other(format!(
                "a fault names `{wanted}`, but no such service is running"
            ))
        };
        if any { Ok(()) } else { Err(none()) }
    }

    /// A message about the first service that ended unexpectedly, with the end of its output.
    pub fn lost(&mut self) -> Option<String> {
        self.0.iter_mut().find_map(|i| {
            let ended = i.process.ended().filter(|_| !i.may_end)?;
            Some(format!(
                "service {} ended ({}): {}",
                i.id,
                describe(ended.status),
                output_end(&i.process)
            ))
        })
    }
}

/// The value of `{host}` without a lab.
const THIS_MACHINE: &str = "localhost";

fn spawn(
    service: &Service,
    host: Option<&str>,
    network: &Network,
    values: &Values,
) -> Result<Instance> {
    let id = host.map_or_else(|| service.name.clone(), |h| format!("{}@{h}", service.name));
    let fault = |why: String| ExperimentError::Service { service: id.clone(), why };
    let mut values = values.clone();
    values.set("host", host.unwrap_or(THIS_MACHINE));
    let argv = match (installed_programs::missing(&service.requires), &service.otherwise) {
        (None, _) => &service.command,
        (Some(_), Some(otherwise)) => otherwise,
        (Some(why), None) => return Err(fault(why)),
    };
    let argv = values.render_args(argv, TextForm::Real)?;
    let process = Process::spawn(network.command(host, &argv), TAIL_MAX);
    Ok(Instance {
        process: process.map_err(|e| fault(e.to_string()))?,
        id,
        may_end: service.ready.exit,
    })
}

/// Waits until an instance is ready.
fn ready(
    service: &Service,
    instance: &mut Instance,
    host: Option<&str>,
    network: &Network,
    values: &Values,
    stop: &StopFlag,
) -> Result<()> {
    let port = match &service.ready.port {
        Some(port) => Some(port_number(service, port, values)?),
        None => None,
    };
    let patience = service.ready.within;
    let deadline = Instant::now() + patience;
    loop {
        stop.check()?;
        if let Some(ended) = instance.process.ended() {
            instance.process.drain();
            if service.ready.exit && ended.status.success() {
                return Ok(());
            }
            let why =
                format!("it ended ({}): {}", describe(ended.status), output_end(&instance.process));
            return Err(ExperimentError::Service { service: instance.id.clone(), why });
        }
        let said = |text: &String| {
            instance.process.stdout.contains(text) || instance.process.stderr.contains(text)
        };
        let line = service.ready.line.as_ref().is_none_or(said);
        if line && !service.ready.exit && port.is_none_or(|p| network.listens(host, p)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let why = format!("not ready after {patience:?}: {}", output_end(&instance.process));
            return Err(ExperimentError::Service { service: instance.id.clone(), why });
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn port_number(service: &Service, port: &toml::Value, values: &Values) -> Result<u16> {
    let text = port.as_str().map_or_else(|| port.to_string(), str::to_owned);
    let text = values.render(&text, TextForm::Real)?;
    let at = || format!("service {}: ready.port", service.name);
    text.parse().map_err(|e| ExperimentError::value(at(), format!("`{text}`: {e}")))
}

fn output_end(process: &Process) -> String {
    let (stderr, stdout) = (process.stderr.last_lines(4), process.stdout.last_lines(2));
    match (stderr.is_empty(), stdout.is_empty()) {
        (false, _) => stderr,
        (true, false) => stdout,
        (true, true) => "it printed nothing".into(),
    }
}
