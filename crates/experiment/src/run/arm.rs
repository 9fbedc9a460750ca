//! Runs an arm once.

use super::{
    arm_environment::ArmEnvironment,
    capture::WHOLE_MAX,
    fault::PendingFaults,
    fixture::{self, FixtureDigest},
    network::Network,
    output,
    process::{Process, ProcessEnd, describe},
    sampler, service,
    stop::StopFlag,
};
use crate::{
    error::{ExperimentError, Result},
    plan::{Arm, Plan},
    record::{ArmRecord, Outcome, Sample, Sockets},
    summary,
    template::{TextForm, Values},
};
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::pressure::Pressure;

/// How often to check for a stop request and for faults that wait for a line or a size.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often to check for a stop request when no fault is left.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The inputs of an arm besides its network.
#[derive(Debug)]
pub struct Context<'a> {
    pub plan: &'a Plan,
    /// Size and hash of the random files.
    pub made: &'a BTreeMap<String, FixtureDigest>,
    pub stop: &'a StopFlag,
    /// The version that the arm's program reported.
    pub version: Option<String>,
    /// An empty directory for the arm's output, which the caller removes.
    pub out: PathBuf,
}

/// The arm's program on one of its hosts.
struct ArmProgram {
    host: Option<String>,
    values: Values,
    out: PathBuf,
}

/// The observations while the arm ran.
struct ArmObservation {
    /// When each program ended; `None`: it was killed after the timeout.
    ends: Vec<Option<Instant>>,
    sockets: Sockets,
}

/// Runs `arm` once on `bench`.
///
/// # Errors
/// If the arm cannot be run. A failure of the arm itself is in the record.
pub fn run(arm: &Arm, bench: &mut ArmEnvironment, context: &Context<'_>) -> Result<ArmRecord> {
    let clients = clients(arm, bench, context)?;
    let shown = clients
        .first()
        .map_or(Ok(vec![]), |c| c.values.render_args(&arm.command, TextForm::Shown))?;
    bench.network.reset()?;
    let pressure = Pressure::start();
    let mut processes = spawn_all(arm, &clients, bench)?;
    let observed = observe(arm, &clients, &mut processes, bench, context)?;
    let cpu_pressure = pressure.percent().map(|p| p / 100.0);
    let mut record = ArmRecord::new(&arm.name, shown, Outcome::Done);
    record.version.clone_from(&context.version);
    record.sockets = observed.sockets;
    let wanted = context.plan.validity.congestion_control.as_deref();
    record.wanted_congestion =
        wanted.map(|text| bench.values.render(text, TextForm::Real)).transpose()?;
    record.cpu_pressure = cpu_pressure;
    record.lateness_p99_us = bench.network.lateness()?;
    record.attempts = 1;
    record.outcome =
        match judge(arm, &clients, &mut processes, &observed.ends, context, &mut record) {
            Ok(()) => Outcome::Done,
            Err(why) if arm.may_fail => Outcome::Unfinished(why),
            Err(why) => Outcome::Failed(why),
        };
    own_conditions(&mut record);
    add_truth(arm, &bench.network, &mut record)?;
    if let Some(lost) = bench.services.lost() {
        record.outcome = Outcome::Failed(lost);
    }
    Ok(record)
}

fn clients(arm: &Arm, bench: &ArmEnvironment, context: &Context<'_>) -> Result<Vec<ArmProgram>> {
    let hosts: Vec<Option<String>> = match arm.host.list() {
        [] => vec![None],
        hosts => bench.values.render_args(hosts, TextForm::Real)?.into_iter().map(Some).collect(),
    };
    let client = |host: Option<String>| {
        let mut values = bench.values.clone();
        for (name, value) in &arm.each {
            values.set(name, value.first().cloned().unwrap_or_default());
        }
        let file = host.as_deref().unwrap_or("out").to_owned();
        let out = context.out.join(&file);
        values.set("arm", &arm.name);
        values.set("host", host.as_deref().unwrap_or("localhost"));
        values.set_path("out", &out, format!("SCRATCH/out/{file}"));
        ArmProgram { host, values, out }
    };
    Ok(hosts.into_iter().map(client).collect())
}

fn spawn_all(arm: &Arm, clients: &[ArmProgram], bench: &ArmEnvironment) -> Result<Vec<Process>> {
    let spawn = |client: &ArmProgram| {
        let argv = client.values.render_args(&arm.command, TextForm::Real)?;
        let mut command = bench.network.command(client.host.as_deref(), &argv);
        for (name, value) in &arm.env {
            command.env(name, client.values.render(value, TextForm::Real)?);
        }
        let fault = |e| ExperimentError::Other(format!("arm {}: {e}", arm.name));
        Process::spawn(command, WHOLE_MAX).map_err(fault)
    };
    clients.iter().map(spawn).collect()
}

/// Waits for the ends of the programs, while injecting faults and sampling sockets.
fn observe(
    arm: &Arm,
    clients: &[ArmProgram],
    processes: &mut [Process],
    bench: &mut ArmEnvironment,
    context: &Context<'_>,
) -> Result<ArmObservation> {
    let roots: Vec<u32> = processes.iter().map(Process::id).collect();
    let Some(first) = clients.first() else {
        return Err(ExperimentError::Other(format!("arm {} has no host to run on", arm.name)));
    };
    let hosts = sampled_hosts(arm, context.plan, &first.values)?;
    let mut faults = PendingFaults::from_arm(arm, &first.values, &first.out)?;
    let (network, services) = (&bench.network, &mut bench.services);
    thread::scope(|scope| {
        // Nothing is ever sent: closing the channel stops the sampler.
        let (stop_sampling, stopped) = mpsc::sync_channel(0);
        let sampling = scope.spawn(|| {
            let stopped = stopped;
            sampler::watch(network, &hosts, &roots, &stopped)
        });
        let mut strike = |elapsed, processes: &[Process]| {
            faults.inject_due(elapsed, processes, network, services, &first.values)?;
            Ok(faults.is_empty())
        };
        let ends = wait_all(arm, processes, context.stop, &mut strike);
        drop(stop_sampling);
        // A sampler that panicked counts as without samples.
        Ok(ArmObservation { sockets: sampling.join().unwrap_or_default(), ends: ends? })
    })
}

fn wait_all(
    arm: &Arm,
    processes: &mut [Process],
    stop: &StopFlag,
    strike: &mut dyn FnMut(Duration, &[Process]) -> Result<bool>,
) -> Result<Vec<Option<Instant>>> {
    // Each process sends one message.
    let (to, from) = mpsc::sync_channel(processes.len());
    for (i, process) in processes.iter().enumerate() {
        process.notify(i, to.clone());
    }
    let started = processes.first().map_or_else(Instant::now, |p| p.started);
    let mut ends = vec![None; processes.len()];
    while ends.iter().any(Option::is_none) {
        stop.check()?;
        let elapsed = started.elapsed();
        let pause = if strike(elapsed, processes)? { IDLE_POLL_INTERVAL } else { POLL_INTERVAL };
        let left = arm.timeout.saturating_sub(elapsed);
        if left.is_zero() {
            processes.iter_mut().for_each(Process::kill);
            return Ok(ends);
        }
        match from.recv_timeout(pause.min(left)) {
            Ok((i, when)) => ends[i] = Some(when),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }
    Ok(ends)
}

/// The hosts whose sockets are sampled while the arm runs.
fn sampled_hosts(arm: &Arm, plan: &Plan, values: &Values) -> Result<Vec<String>> {
    if let Some(hosts) = &arm.sample {
        return values.render_args(hosts, TextForm::Real);
    }
    let mut hosts = values.render_args(arm.host.list(), TextForm::Real)?;
    for host in service::hosts(plan, arm) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    Ok(hosts)
}

/// Checks the outcome of all clients and adds their metrics to the record.
///
/// # Errors
/// The first failure, as a message.
fn judge(
    arm: &Arm,
    clients: &[ArmProgram],
    processes: &mut [Process],
    ends: &[Option<Instant>],
    context: &Context<'_>,
    record: &mut ArmRecord,
) -> Result<(), String> {
    let mut all: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for ((client, process), end) in clients.iter().zip(processes).zip(ends) {
        let end = end.ok_or_else(|| format!("not finished after {:?}", arm.timeout))?;
        process.drain();
        let ended = process.ended().ok_or("its end was not observed")?;
        succeeded(arm, &ended, process)?;
        let metrics = metrics(arm, client, process, ended, end, context, record)?;
        for (name, sample) in metrics {
            if let (Some(host), true) = (&client.host, clients.len() > 1) {
                record.metrics.insert(format!("{name}@{host}"), sample.clone());
            }
            all.entry(name).or_default().push(sample);
        }
    }
    // With several clients, the metric without a host is their median.
    for (name, samples) in all {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        if let (Some(first), Some(value)) = (samples.first(), summary::median(&values)) {
            record.metrics.insert(name, Sample { unit: first.unit.clone(), value });
        }
    }
    Ok(())
}

fn succeeded(arm: &Arm, ended: &ProcessEnd, process: &Process) -> Result<(), String> {
    if ended.status.code().is_some_and(|code| arm.exit.contains(&code)) {
        return Ok(());
    }
    let (mut said, status) = (process.stderr.last_lines(4), describe(ended.status));
    if said.is_empty() {
        said = process.stdout.last_lines(2);
    }
    Err(format!("{status}: {said}"))
}

/// The metrics of a client: `elapsed`, `cpu`, with `verify` also `goodput`, and those that the arm printed.
fn metrics(
    arm: &Arm,
    client: &ArmProgram,
    process: &Process,
    ended: ProcessEnd,
    end: Instant,
    context: &Context<'_>,
    record: &mut ArmRecord,
) -> Result<BTreeMap<String, Sample>, String> {
    let elapsed = end.saturating_duration_since(process.started).as_secs_f64();
    let mut metrics = BTreeMap::new();
    let mut add = |name: &str, unit: &str, value: f64| {
        metrics.insert(name.to_owned(), Sample { unit: unit.to_owned(), value });
    };
    add("elapsed", "s", elapsed);
    add("cpu", "s", ended.cpu_s);
    if let Some(wanted) = &arm.verify {
        let made = context.made.get(wanted).ok_or_else(|| format!("`{wanted}` was not created"))?;
        verify(&client.out, made)?;
        add("goodput", "Mbit/s", made.bytes as f64 * 8.0 / 1e6 / elapsed.max(1e-9));
    }
    if process.stdout.has_dropped() && arm.output != crate::plan::Output::Ignored {
        return Err(format!("its output is longer than {WHOLE_MAX} bytes"));
    }
    let printed = output::read(arm, &process.stdout.text())?;
    metrics.extend(printed.metrics);
    record.labels.extend(printed.labels);
    record.series.extend(printed.series);
    record.sockets.merge(&printed.sockets);
    Ok(metrics)
}

/// Replaces the conditions by those that the arm reports, if it runs a lab itself.
fn own_conditions(record: &mut ArmRecord) {
    let own = |name: &str, unit: &str| record.metrics.get(name).filter(|s| s.unit == unit);
    let lateness = own("lateness_p99", "us").map(|s| s.value.ceil() as u64);
    let pressure = own("cpu_pressure", "%").map(|s| s.value / 100.0);
    record.lateness_p99_us = record.lateness_p99_us.or(lateness);
    record.cpu_pressure = pressure.or(record.cpu_pressure);
}

/// Adds the metrics that come from the lab's record of a link.
fn add_truth(arm: &Arm, network: &Network, record: &mut ArmRecord) -> Result<()> {
    for (name, source) in &arm.metrics {
        let Some(link) = &source.link else { continue };
        let truth = network.truth(link)?;
        let lost = || {
            ExperimentError::value(
                name,
                format!("there is no number at {} of {link}", source.pointer),
            )
        };
        let number = truth.pointer(&source.pointer).and_then(|v| v.as_f64()).ok_or_else(lost)?;
        let sample = Sample { unit: source.unit.clone(), value: number * source.scale };
        record.metrics.insert(name.clone(), sample);
    }
    Ok(())
}

/// Checks that the arm's output file is correct; otherwise the arm has failed.
fn verify(out: &std::path::Path, wanted: &FixtureDigest) -> Result<(), String> {
    match fixture::measure(out) {
        Ok(got) if got == *wanted => Ok(()),
        Ok(got) if got.bytes != wanted.bytes => Err(format!(
            "WRONG BYTES: its file has {} bytes instead of {}",
            got.bytes, wanted.bytes
        )),
        Ok(_) => Err("WRONG BYTES: its file has the right size but a different hash".into()),
        Err(e) => Err(format!("its file cannot be read: {e}")),
    }
}

/// Creates an empty directory for an arm's output.
///
/// # Errors
/// If it cannot be created or emptied.
pub fn empty_directory(path: PathBuf) -> Result<PathBuf> {
    match fs::remove_dir_all(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(ExperimentError::file("empty", path)(e));
        }
        _ => {}
    }
    fs::create_dir_all(&path).map_err(ExperimentError::file("create", &path))?;
    Ok(path)
}
