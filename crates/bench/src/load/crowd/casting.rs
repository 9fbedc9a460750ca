//! One `thalweg cast`, and what it told.

use super::{
    super::{
        process::{cpu_seconds, memory_mib},
        told::{self, Told},
    },
    mesh::{Mesh, SOURCE},
    sockets::Seen,
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

/// How often connections and memory are looked at: what the last bytes before the end say is lost.
const LOOK: Duration = Duration::from_millis(250);

/// Events that wait: a few seconds of hundreds of receivers.
const WAITING: usize = 1024;

/// What came of it.
#[derive(Debug, Default)]
pub struct Cast {
    /// Bytes of the object.
    pub bytes: f64,
    /// Bytes of symbols that the source has sent.
    pub served: f64,
    /// By receiver, its first planned parent.
    pub parents: BTreeMap<String, String>,
    /// What came to all, and of that what was of no use.
    pub received: (f64, f64),
    /// By receiver and parent, new bytes that came from there.
    pub came: BTreeMap<(String, String), f64>,
    /// By receiver, bit/s over its own span.
    pub rates: BTreeMap<String, f64>,
    /// How many have it.
    pub complete: f64,
    /// From the first offer on, s.
    pub seconds: f64,
    /// CPU time of the source, s.
    pub cpu: f64,
    /// The most that was resident of it, MiB.
    pub memory: f64,
    /// All that it sent and got by TCP.
    pub wire: (f64, f64),
}

/// Casts as the source, to the end.
///
/// # Errors
/// When not all have it.
pub fn cast(mesh: &Mesh, args: &[&str], core: Option<u32>) -> anyhow::Result<Cast> {
    let own = mesh.command(SOURCE, &[&["cast", "--json"], args].concat());
    let mut command = match core {
        Some(core) => {
            // It shares the core with receivers, and goes before none of them: what forwards by rings waits for
            // nobody, so with a receiver that is starved of its core another thing would be measured.
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
    let (mut cast, mut seen) = (Cast::default(), Seen::default());
    if let Err(why) = cast.follow(&mut child, &mut seen) {
        // It would go on unheard.
        _ = child.kill();
        _ = child.wait();
        return Err(why);
    }
    let ended = child.wait()?;
    ensure!(ended.success(), "the cast ended with {ended}");
    ensure!(cast.bytes > 0.0 && cast.seconds > 0.0, "the cast did not tell its end");
    cast.wire = (seen.ours().0 as f64, seen.ours().1 as f64);
    Ok(cast)
}

/// Its lines, read by a thread: it does not wait while connections are looked at.
fn lines(child: &mut Child) -> anyhow::Result<Receiver<io::Result<String>>> {
    let out = BufReader::new(child.stdout.take().context("it has an output")?);
    let (tell, told) = mpsc::sync_channel(WAITING);
    thread::spawn(move || {
        // Nobody may listen any more: the caller has failed then.
        out.lines().try_for_each(|line| tell.send(line))
    });
    Ok(told)
}

impl Cast {
    /// Until it has told all.
    fn follow(&mut self, child: &mut Child, seen: &mut Seen) -> anyhow::Result<()> {
        let (told, id, mut looked) = (lines(child)?, child.id(), Instant::now());
        loop {
            match told.recv_timeout(LOOK) {
                Ok(line) => self.hear(told::read(&line?)?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(id, seen)?;
            }
        }
    }

    fn look(&mut self, id: u32, seen: &mut Seen) -> anyhow::Result<()> {
        seen.look(id)?;
        // Between its end and ours it has no times.
        if let (Ok(cpu), Ok(memory)) = (cpu_seconds(id), memory_mib(id, "VmHWM")) {
            (self.cpu, self.memory) = (cpu, self.memory.max(memory));
        }
        Ok(())
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Planned { receivers } => {
                let first = |one: told::Planned| Some((one.name, one.parents.into_iter().next()?));
                self.parents = receivers.into_iter().filter_map(first).collect();
            }
            Told::Received(came) => {
                self.received.0 += came.received_bytes;
                self.received.1 += came.duplicate_bytes;
                for parent in came.parents {
                    self.came.insert((came.receiver.clone(), parent.name), parent.bytes);
                }
                self.rates.insert(came.receiver, came.rate_bps);
            }
            Told::Ended(end) => {
                (self.bytes, self.served) = (end.bytes, end.served_bytes);
                (self.complete, self.seconds) = (end.complete, end.seconds);
            }
            _ => {}
        }
    }

    /// Hops from the source to the farthest receiver by the plan.
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
    pub fn came_from(&self, receiver: &str, parent: &str) -> f64 {
        let pair = (receiver.to_owned(), parent.to_owned());
        self.came.get(&pair).copied().unwrap_or_default()
    }

    /// Receivers whose first parent is the source.
    pub fn children(&self) -> f64 {
        self.parents.values().filter(|parent| *parent == SOURCE).count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(cast: &mut Cast, line: &str) {
        cast.hear(told::read(line).unwrap());
    }

    #[test]
    fn a_tree_has_a_depth() {
        let mut cast = Cast::default();
        let one =
            |name: &str, parent: &str| format!(r#"{{"name":"{name}","parents":["{parent}","b"]}}"#);
        let all = [one("a", SOURCE), one("b", "a"), one("c", "b"), one("d", SOURCE)].join(",");
        hear(&mut cast, &format!(r#"{{"event":"planned","receivers":[{all}]}}"#));
        assert_eq!((cast.depth(), cast.children()), (3.0, 2.0));
    }

    #[test]
    fn what_came_is_told_by_parent() {
        let mut cast = Cast::default();
        let parents = format!(r#"{{"name":"a","bytes":70}},{{"name":"{SOURCE}","bytes":30}}"#);
        let rest = r#""received_bytes":100,"duplicate_bytes":0,"seconds":1,"rate_bps":800,"after_seconds":1"#;
        hear(
            &mut cast,
            &format!(r#"{{"event":"received","receiver":"b","parents":[{parents}],{rest}}}"#),
        );
        assert_eq!((cast.came_from("b", "a"), cast.came_from("b", SOURCE)), (70.0, 30.0));
        assert_eq!((cast.came_from("a", "b"), cast.rates["b"]), (0.0, 800.0));
    }
}
