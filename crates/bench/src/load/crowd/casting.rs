//! Runs one `thalweg cast` and records its events.

use super::{
    super::{
        cast_events::{self, CastEvent},
        process::{cpu_seconds, memory_mib},
    },
    mesh::{CrowdMesh, SOURCE},
    sockets::ConnectionCounts,
};
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The interval between two looks at connections and memory. The bytes after the last look are not counted.
const LOOK: Duration = Duration::from_millis(250);

/// The most lines that wait: a few seconds of hundreds of receivers.
const WAITING: usize = 1024;

/// The results of a cast.
#[derive(Debug, Default)]
pub struct Cast {
    /// The size of the object, bytes.
    pub bytes: f64,
    /// Bytes of symbols that the source has sent.
    pub served: f64,
    /// The first planned parent of each receiver.
    pub parents: BTreeMap<String, String>,
    /// Bytes received by all receivers, and the useless ones among them.
    pub received: (f64, f64),
    /// New bytes by receiver and parent.
    pub came: BTreeMap<(String, String), f64>,
    /// The rate of each receiver over its own duration, bit/s.
    pub rates: BTreeMap<String, f64>,
    /// The number of receivers that have the object.
    pub complete: f64,
    /// Time since the first offer, s.
    pub seconds: f64,
    /// CPU time of the source, s.
    pub cpu: f64,
    /// Peak resident memory of the source, MiB.
    pub memory: f64,
    /// All bytes that the source sent and received over TCP.
    pub wire: (f64, f64),
}

/// Runs a cast at the source to its end.
///
/// # Errors
/// When the cast does not end with success.
pub fn cast(mesh: &CrowdMesh, args: &[&str], core: Option<u32>) -> anyhow::Result<Cast> {
    let own = mesh.command(SOURCE, &[&["cast", "--json"], args].concat());
    let mut command = match core {
        Some(core) => {
            // The source shares the core with receivers and must not have priority over any of them: forwarding by
            // rings waits for nobody, so a receiver that is starved of CPU would falsify the result.
            let mut pinned = Command::new("nice");
            pinned
                .args(["-n", "19", "taskset", "-c", &core.to_string()])
                .arg(own.get_program())
                .args(own.get_args());
            pinned.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
            pinned
        }
        None => own,
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the cast")?;
    let (mut cast, mut seen) = (Cast::default(), ConnectionCounts::default());
    if let Err(why) = cast.follow(&mut child, &mut seen) {
        // The cast would continue and nobody would read its events.
        _ = child.kill();
        _ = child.wait();
        return Err(why);
    }
    let ended = child.wait()?;
    ensure!(ended.success(), "the cast ended with {ended}");
    ensure!(cast.bytes > 0.0 && cast.seconds > 0.0, "the cast did not report its end");
    cast.wire = (seen.own_bytes().0 as f64, seen.own_bytes().1 as f64);
    Ok(cast)
}

/// The lines of the cast, read by a thread, so that the cast does not wait while connections are looked at.
fn read_lines(child: &mut Child) -> anyhow::Result<Receiver<io::Result<String>>> {
    let out = BufReader::new(child.stdout.take().context("cannot read the output of the cast")?);
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    thread::spawn(move || {
        // The caller may have failed and dropped the receiver.
        out.lines().try_for_each(|line| sender.send(line))
    });
    Ok(receiver)
}

impl Cast {
    /// Records events until the cast's output ends.
    fn follow(&mut self, child: &mut Child, seen: &mut ConnectionCounts) -> anyhow::Result<()> {
        let (lines, id, mut looked) = (read_lines(child)?, child.id(), Instant::now());
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => self.add_event(cast_events::read(&line?)?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.sample_connections(id, seen)?;
            }
        }
    }

    fn sample_connections(&mut self, id: u32, seen: &mut ConnectionCounts) -> anyhow::Result<()> {
        seen.update(id)?;
        // A process that has ended has no times until it is waited for.
        if let (Ok(cpu), Ok(memory)) = (cpu_seconds(id), memory_mib(id, "VmHWM")) {
            (self.cpu, self.memory) = (cpu, self.memory.max(memory));
        }
        Ok(())
    }

    fn add_event(&mut self, event: CastEvent) {
        match event {
            CastEvent::Planned { receivers } => {
                let first =
                    |one: cast_events::Planned| Some((one.name, one.parents.into_iter().next()?));
                self.parents = receivers.into_iter().filter_map(first).collect();
            }
            CastEvent::Received(came) => {
                self.received.0 += came.received_bytes;
                self.received.1 += came.duplicate_bytes;
                for parent in came.parents {
                    self.came.insert((came.receiver.clone(), parent.name), parent.bytes);
                }
                self.rates.insert(came.receiver, came.rate_bps);
            }
            CastEvent::Ended(end) => {
                (self.bytes, self.served) = (end.bytes, end.served_bytes);
                (self.complete, self.seconds) = (end.complete, end.seconds);
            }
            _ => {}
        }
    }

    /// The number of hops from the source to the farthest receiver in the plan.
    pub fn depth(&self) -> f64 {
        let hops = |receiver: &String| {
            let (mut at, mut hops) = (receiver, 0_usize);
            while let Some(parent) = self.parents.get(at).filter(|_| hops <= self.parents.len()) {
                (at, hops) = (parent, hops + 1);
            }
            hops
        };
        self.parents.keys().map(hops).max().unwrap_or_default() as f64
    }

    /// New bytes that a receiver got from this parent.
    pub fn bytes_from(&self, receiver: &str, parent: &str) -> f64 {
        let pair = (receiver.to_owned(), parent.to_owned());
        self.came.get(&pair).copied().unwrap_or_default()
    }

    /// The number of receivers whose first parent is the source.
    pub fn children(&self) -> f64 {
        self.parents.values().filter(|parent| *parent == SOURCE).count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_event(cast: &mut Cast, line: &str) {
        cast.add_event(cast_events::read(line).unwrap());
    }

    #[test]
    fn the_depth_of_a_tree_is_its_longest_chain() {
        let mut cast = Cast::default();
        let one =
            |name: &str, parent: &str| format!(r#"{{"name":"{name}","parents":["{parent}","b"]}}"#);
        let all = [one("a", SOURCE), one("b", "a"), one("c", "b"), one("d", SOURCE)].join(",");
        add_event(&mut cast, &format!(r#"{{"event":"planned","receivers":[{all}]}}"#));
        assert_eq!((cast.depth(), cast.children()), (3.0, 2.0));
    }

    #[test]
    fn received_bytes_are_counted_by_parent() {
        let mut cast = Cast::default();
        let parents = format!(r#"{{"name":"a","bytes":70}},{{"name":"{SOURCE}","bytes":30}}"#);
        let rest = r#""received_bytes":100,"duplicate_bytes":0,"seconds":1,"rate_bps":800,"after_seconds":1"#;
        add_event(
            &mut cast,
            &format!(r#"{{"event":"received","receiver":"b","parents":[{parents}],{rest}}}"#),
        );
        assert_eq!((cast.bytes_from("b", "a"), cast.bytes_from("b", SOURCE)), (70.0, 30.0));
        assert_eq!((cast.bytes_from("a", "b"), cast.rates["b"]), (0.0, 800.0));
    }
}
