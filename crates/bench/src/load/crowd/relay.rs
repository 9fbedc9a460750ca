//! Measures one node between the source and a receiver; the node has a core of its own.

use super::{
    super::{
        process::{cpu_seconds, memory_mib},
        report::Report,
        veth::{FAR, FarNamespace, NEAR},
    },
    casting::{Cast, cast},
    mesh::{CrowdMesh, FilePlace, NodeStart, SOURCE},
};
use anyhow::{Context as _, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{fs, io::Write as _, net::Ipv4Addr, path::PathBuf};
use thalweg_units::ByteSize;

/// Bytes written at once.
const PIECE: usize = 4 << 20;

/// The number of copies of the object: at the source, at the relay and at the receiver.
const COPIES: u64 = 3;

/// The relay, and the receiver behind it.
const NAMES: [&str; 2] = ["mid", "end"];

/// The core of the relay, and the core of all others.
const CORES: [u32; 2] = [1, 0];

/// Arguments of `thalweg-bench load crowd relay`.
#[derive(clap::Args)]
pub struct Args {
    /// Size of the object
    #[arg(long, default_value = "1 GiB")]
    size: ByteSize,
    /// Seed of the object's bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the relay in its own network namespace behind a veth pair instead of on loopback; run this
    /// command in a new network namespace (`unshare --net`)
    #[arg(long)]
    veth: bool,
    /// Also measure a relay that only forwards through its ring and does not keep the object
    #[arg(long)]
    via: bool,
    /// Further arguments of `thalweg cast`
    #[arg(last = true)]
    further: Vec<String>,
}

/// Measures and prints the report.
///
/// # Errors
/// When a node does not start or a cast fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let names = NAMES.map(str::to_owned);
    let far = args.veth.then(FarNamespace::join).transpose()?;
    let mesh = match far {
        Some(_) => CrowdMesh::create_at(&FilePlace::Memory, &names, address_of)?,
        None => CrowdMesh::create(&FilePlace::Memory, &names)?,
    };
    let mut bench = RelayBench { mesh, relay: 0 };
    let on = |core| NodeStart { core: Some(core), ..NodeStart::default() };
    let [relay, others] = CORES;
    let beside = far.as_ref().map(FarNamespace::id);
    bench.relay = bench.mesh.start(NAMES[0], NodeStart { beside, ..on(relay) })?;
    bench.mesh.start(NAMES[1], on(others))?;
    bench.write(args)?;
    let mut report = Report::default();
    // First the relay only receives, then it has the object and only serves, then it does both at once.
    bench.measure("receive", "first", &["--to", "mid"], &args.further, &mut report)?;
    bench.measure("serve", "first", &["--to", "mid,end"], &args.further, &mut report)?;
    bench.clear("first")?;
    bench.measure("relay", "second", &["--to", "mid,end"], &args.further, &mut report)?;
    if args.via {
        bench.clear("second")?;
        let to = ["--to", "end", "--via", "mid"];
        bench.measure("hand_on", "third", &to, &args.further, &mut report)?;
    }
    report.add("relay_memory", "MiB", memory_mib(bench.relay, "VmHWM")?);
    report.print().context("cannot print the report")
}

/// The address of a host; only the relay is at the far end of the veth pair.
fn address_of(name: &str) -> Ipv4Addr {
    if name == NAMES[0] { FAR } else { NEAR }
}

struct RelayBench {
    mesh: CrowdMesh,
    relay: u32,
}

impl RelayBench {
    fn object(&self) -> PathBuf {
        self.mesh.file(SOURCE, "bin")
    }

    fn rates(&self) -> PathBuf {
        self.mesh.file(SOURCE, "csv")
    }

    /// Writes the object, and rates that make the plan a chain.
    ///
    /// Before that it writes as much memory as all copies of the object take, and frees it: under a hypervisor the
    /// first touch of a page costs several times the copy into it, and would be counted as the relay's.
    fn write(&self, args: &Args) -> anyhow::Result<()> {
        self.touch(COPIES * args.size.as_bytes())?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
        let (mut file, mut left) = (fs::File::create(self.object())?, args.size.as_bytes());
        let mut piece = vec![0; PIECE];
        while left > 0 {
            random.fill_bytes(&mut piece);
            let length = left.min(PIECE as u64);
            file.write_all(&piece[..usize::try_from(length)?])?;
            left -= length;
        }
        let [relay, end] = NAMES;
        let rates = format!("from,to,rate\n{SOURCE},{relay},8 Gbit/s\n{relay},{end},8 Gbit/s\n");
        Ok(fs::write(self.rates(), rates)?)
    }

    fn touch(&self, bytes: u64) -> anyhow::Result<()> {
        let (path, piece) = (self.mesh.file(SOURCE, "touched"), vec![1; PIECE]);
        let mut file = fs::File::create(&path)?;
        for _ in 0..bytes.div_ceil(PIECE as u64) {
            file.write_all(&piece)?;
        }
        Ok(fs::remove_file(path)?)
    }

    fn clear(&self, name: &str) -> anyhow::Result<()> {
        NAMES.iter().try_for_each(|node| Ok(fs::remove_file(self.mesh.inbox(node).join(name))?))
    }

    /// Runs one cast and reports the relay's cost.
    fn measure(
        &self,
        what: &str,
        name: &str,
        to: &[&str],
        further: &[String],
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let (object, rates) = (self.object(), self.rates());
        let text =
            |path: &PathBuf| path.to_str().map(str::to_owned).context("a path is not valid UTF-8");
        let (object, rates) = (text(&object)?, text(&rates)?);
        let mut args = vec![&*object, "--name", name, "--rates", &*rates, "--parents", "1"];
        args.extend(to);
        args.extend(further.iter().map(String::as_str));
        let before = cpu_seconds(self.relay)?;
        let done = cast(&self.mesh, &args, Some(CORES[1]))?;
        let spent = cpu_seconds(self.relay)? - before;
        let passed = relayed_bytes(what, &done)?;
        report.add(format!("{what}_per_core"), "Gbit/CPU s", passed * 8e-9 / spent);
        report.add(format!("{what}_sent"), "objects", done.served / done.bytes);
        let slowest =
            done.rates.values().copied().filter(|bps| *bps > 0.0).fold(f64::NAN, f64::min);
        report.add(format!("{what}_rate"), "Gbit/s", slowest * 1e-9);
        Ok(())
    }
}

/// The new bytes that the relay itself passed: those that it received from the source or gave to the receiver. The
/// source may have given some directly. If they are less than half of the object, the relay was not what was measured,
/// which is an error.
fn relayed_bytes(what: &str, done: &Cast) -> anyhow::Result<f64> {
    let [relay, end] = NAMES;
    let (to, from) = if what == "receive" { (relay, SOURCE) } else { (end, relay) };
    let (passed, sent) = (done.bytes_from(to, from), done.served / done.bytes);
    let share = passed / done.bytes;
    ensure!(share >= 0.5, "{what}: `{to}` received {share:.2} objects from `{from}`");
    // A source that outruns the receiver sends symbols again that rings no longer held. That costs the relay CPU time,
    // and the report has the number.
    let most = match what {
        "serve" => 0.25,
        "hand_on" => 3.0,
        _ => 1.5,
    };
    ensure!(sent < most, "{what}: the source sent {sent:.2} objects");
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cast of an object of 100 bytes: what the relay received, what the receiver got from it, and what the source
    /// sent.
    fn done(taken: f64, given: f64, served: f64) -> Cast {
        let pair = |to: &str, from: &str, bytes| ((to.to_owned(), from.to_owned()), bytes);
        let [relay, end] = NAMES;
        let direct = pair(end, SOURCE, 100.0 - given);
        let came = [pair(relay, SOURCE, taken), pair(end, relay, given), direct];
        Cast { bytes: 100.0, served, came: came.into(), ..Cast::default() }
    }

    #[test]
    fn only_bytes_that_the_relay_itself_passed_count() {
        let of = |what, done: Cast| relayed_bytes(what, &done).ok();
        assert_eq!(of("receive", done(100.0, 0.0, 100.0)), Some(100.0));
        assert_eq!(of("relay", done(100.0, 80.0, 120.0)), Some(80.0));
        assert_eq!(of("hand_on", done(0.0, 90.0, 185.0)), Some(90.0));
        assert_eq!(of("serve", done(0.0, 95.0, 5.0)), Some(95.0));
        // The source gave the receiver most of the object, or sent too many objects.
        assert_eq!(of("hand_on", done(0.0, 20.0, 100.0)), None);
        assert_eq!(of("hand_on", done(0.0, 90.0, 300.0)), None);
        assert_eq!(of("serve", done(0.0, 70.0, 30.0)), None);
        assert_eq!(of("relay", done(100.0, 100.0, 200.0)), None);
    }
}
