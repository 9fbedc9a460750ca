//! Runs all attacks in turn and prints the report.

use super::{
    attack::AttackCounts,
    peer::{HonestPeer, OperationTimes},
    plan::{self, Attack, Entrance, option_name},
    scene::{AttackedMesh, ResourceSampler, Resources, resources},
};
use crate::{load::report::Report, program};
use anyhow::{Context as _, bail, ensure};
use std::{
    collections::BTreeMap, net::SocketAddr, process::Stdio, sync::atomic::Ordering, time::Duration,
};
use thalweg_units::parse_duration;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// Time from the attack's start to the first operation that counts, in which its connections are established.
const RAMP: Duration = Duration::from_millis(700);

/// The longest wait for an attacker after its time; then it is killed.
const LATE: Duration = Duration::from_secs(30);

/// The priority of attackers: they only get the CPU time that the node and the peer leave, because real attackers are
/// on other hosts.
const NICE: &str = "19";

/// Arguments of `thalweg-bench load hostile run`.
#[derive(clap::Args)]
pub struct Args {
    /// The attacks: `all`, `few`, or prefixes of names, separated by commas
    #[arg(long, default_value = "all")]
    attacks: String,
    /// Duration of each attack
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration)]
    time: Duration,
    /// Number of operations of each kind that are timed before the attacks
    #[arg(long, default_value_t = 200)]
    idle: usize,
    /// The core reserved for the node (default: chosen by the kernel)
    #[arg(long)]
    core: Option<u32>,
    /// Seed of the random generator
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The time of one operation without attack: 50th and 99th percentile.
type IdleTimes = BTreeMap<Entrance, (Duration, Duration)>;

/// The effect of one attack on the node.
struct AttackEffect {
    attack: Attack,
    /// The peer's operations on the attacked door, and its reads of a file.
    times: Vec<(Entrance, OperationTimes)>,
    most: Resources,
    counts: AttackCounts,
    /// The number of operations after the attack that failed.
    broken: usize,
}

/// Runs the attacks and prints the report.
///
/// # Errors
/// When the mesh cannot be founded, an operation fails before all attacks, or the node ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let attacks = plan::list(&args.attacks)?;
    let mut scene = AttackedMesh::new(args.core).await?;
    let peer = scene.peer()?;
    let idle = measure_idle(&peer, &attacks, args.idle).await?;
    let datagrams = SocketAddr::new(scene.at.ip(), peer.datagrams().await?);
    let before = resources(scene.daemon.id())?;
    let mut report = Report::default();
    let mut worst = WorstValues::default();
    for attack in attacks {
        let done = run_attack(&scene, &peer, attack, datagrams, args).await?;
        ensure!(scene.daemon.is_alive()?, "the node ended under {attack}: {}", scene.log()?);
        worst.add(&mut report, &done, &idle, before);
    }
    for (door, (p50, p99)) in &idle {
        report.add(format!("idle_p50_{}", option_name(door)), "ms", millis(*p50));
        report.add(format!("idle_p99_{}", option_name(door)), "ms", millis(*p99));
    }
    report.add("idle_memory", "MiB", before.memory);
    worst.report(&mut report);
    report.print().context("cannot print the report")
}

/// Times each operation that the peer does during the attacks.
async fn measure_idle(
    peer: &HonestPeer,
    attacks: &[Attack],
    times: usize,
) -> anyhow::Result<IdleTimes> {
    let mut doors: Vec<Entrance> = attacks.iter().flat_map(|attack| operations(*attack)).collect();
    doors.sort();
    doors.dedup();
    let mut idle = IdleTimes::new();
    for door in doors {
        // The first operation reads data from disk that later ones find in memory.
        peer.once(door)
            .await
            .with_context(|| format!("cannot use {} before all attacks", option_name(&door)))?;
        let found = peer.repeat(door, times).await;
        if found.failed > 0 {
            let why = found.why.unwrap_or_default();
            bail!(
                "{} operations at {} failed before all attacks: {why}",
                found.failed,
                option_name(&door)
            );
        }
        idle.insert(door, percentiles(found.took).context("no operation was timed")?);
    }
    Ok(idle)
}

/// The peer's operations during an attack: one at the attacked door, and a file read, which needs most of the node.
fn operations(attack: Attack) -> Vec<Entrance> {
    let own = match attack.door {
        Entrance::Handshake | Entrance::Metrics => Entrance::Api,
        Entrance::Datagrams => Entrance::Probe,
        door => door,
    };
    if own == Entrance::Object { vec![own] } else { vec![own, Entrance::Object] }
}

async fn run_attack(
    scene: &AttackedMesh,
    peer: &HonestPeer,
    attack: Attack,
    datagrams: SocketAddr,
    args: &Args,
) -> anyhow::Result<AttackEffect> {
    let watch = ResourceSampler::begin(scene.daemon.id());
    let mut attacker = start(scene, attack, datagrams, args)?;
    sleep(RAMP.min(args.time / 2)).await;
    let end = Instant::now() + args.time.saturating_sub(RAMP.min(args.time / 2));
    let doors = operations(attack);
    let mut times: Vec<(Entrance, OperationTimes)> =
        doors.iter().map(|door| (*door, OperationTimes::default())).collect();
    while Instant::now() < end {
        for (door, times) in &mut times {
            times.add(peer.repeat(*door, 1).await);
        }
    }
    let counts = wait_for_counts(&mut attacker, attack).await?;
    let most = watch.end()?;
    let mut broken = 0;
    for door in doors {
        broken += usize::from(peer.once(door).await.is_err());
    }
    Ok(AttackEffect { attack, times, most, counts, broken })
}

fn start(
    scene: &AttackedMesh,
    attack: Attack,
    datagrams: SocketAddr,
    args: &Args,
) -> anyhow::Result<Child> {
    let to = match attack.door {
        Entrance::Metrics => scene.metrics,
        Entrance::Datagrams => datagrams,
        _ => scene.at,
    };
    let mut command = Command::new("nice");
    command.args(["-n", NICE]).arg(program::own()?).args(["load", "hostile", "attack"]);
    command.args(["--by", &option_name(&attack.by), "--door", &option_name(&attack.door)]);
    command.args(["--kind", &option_name(&attack.kind), "--to", &to.to_string()]);
    command.args(["--port", &scene.at.to_string(), "--node", &scene.node.to_string()]);
    command.arg("--state").arg(scene.attacker()).args(["--files", &scene.names.files]);
    command.args(["--server", &scene.names.server.to_string()]);
    command.args(["--time", &format!("{}ms", args.time.as_millis())]);
    command.args(["--seed", &args.seed.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().context("cannot start the attacker")
}

/// Waits for the attacker and returns its counts.
async fn wait_for_counts(attacker: &mut Child, attack: Attack) -> anyhow::Result<AttackCounts> {
    use tokio::io::AsyncReadExt as _;
    let mut text = String::new();
    let mut out = attacker.stdout.take().context("cannot read the attacker's output")?;
    let reading = tokio::time::timeout(LATE, out.read_to_string(&mut text)).await;
    reading.with_context(|| format!("{attack} did not stop"))??;
    ensure!(attacker.wait().await?.success(), "the attacker of {attack} failed");
    serde_json::from_str(&text).with_context(|| format!("{attack} printed `{text}`"))
}

/// The worst values of all attacks.
#[derive(Default)]
struct WorstValues {
    attacks: usize,
    memory: f64,
    descriptors: f64,
    failed: usize,
    ratio: f64,
    slowest: String,
}

impl WorstValues {
    fn add(
        &mut self,
        report: &mut Report,
        done: &AttackEffect,
        idle: &IdleTimes,
        before: Resources,
    ) {
        let name = done.attack.to_string();
        let mut failed = done.broken;
        let (mut ratios, mut slowest) = ([0.0_f64; 2], [0.0_f64; 2]);
        for (door, times) in &done.times {
            failed += times.failed;
            if let Some(why) = &times.why {
                thalweg_console::note!(
                    "thalweg-bench: load hostile: {name}: {}: {why}",
                    option_name(door)
                );
            }
            let (Some((p50, p99)), Some(calm)) = (percentiles(times.took.clone()), idle.get(door))
            else {
                continue;
            };
            let of = |now: Duration, calm: Duration| now.as_secs_f64() / calm.as_secs_f64();
            ratios = [ratios[0].max(of(p50, calm.0)), ratios[1].max(of(p99, calm.1))];
            slowest = [slowest[0].max(millis(p50)), slowest[1].max(millis(p99))];
        }
        for (at, percent) in [(0, "p50"), (1, "p99")] {
            report.add(format!("{percent}_{name}"), "ms", slowest[at]);
            report.add(format!("{percent}_ratio_{name}"), "1", ratios[at]);
        }
        let memory = (done.most.memory - before.memory).max(0.0);
        let descriptors = done.most.descriptors.saturating_sub(before.descriptors) as f64;
        report.add(format!("memory_{name}"), "MiB", memory);
        report.add(format!("descriptors_{name}"), "1", descriptors);
        report.add(format!("failed_{name}"), "1", failed as f64);
        for (what, count) in done.counts.by_name() {
            report.add(format!("{what}_{name}"), "1", count as f64);
        }
        self.attacks += 1;
        self.failed += failed;
        self.memory = self.memory.max(memory);
        self.descriptors = self.descriptors.max(descriptors);
        if ratios[1] > self.ratio {
            (self.ratio, self.slowest) = (ratios[1], name);
        }
    }

    fn report(self, report: &mut Report) {
        report.add("attacks", "1", self.attacks as f64);
        report.add("worst_p99_ratio", "1", self.ratio);
        report.add("worst_memory", "MiB", self.memory);
        report.add("worst_descriptors", "1", self.descriptors);
        report.add("failed", "1", self.failed as f64);
        report.add_text("slowest", self.slowest);
    }
}

impl AttackCounts {
    fn by_name(&self) -> [(&'static str, u64); 4] {
        let Self { opened, refused, closed, sent } = self;
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        [
            ("opened", of(opened)),
            ("refused", of(refused)),
            ("closed", of(closed)),
            ("sent", of(sent)),
        ]
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The 50th and 99th percentile, by nearest rank.
fn percentiles(mut times: Vec<Duration>) -> Option<(Duration, Duration)> {
    times.sort();
    let rank = |percent: usize| {
        let rank = (percent * times.len()).div_ceil(100).saturating_sub(1);
        times.get(rank).copied()
    };
    Some((rank(50)?, rank(99)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let of = |ms| Duration::from_millis(ms);
        assert_eq!(percentiles(times), Some((of(100), of(198))));
        assert_eq!(percentiles(vec![]), None);
    }
}
