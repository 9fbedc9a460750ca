//! Step 3, but for the moving of bytes: what to ask of whom, and what to make of what came.

use super::{arrivals::Arrival, client::save_evidence, view::View};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};
use thalweg_wire::{
    bistro::{Commitment, Committing, Evidence},
    mesh::Name,
};

/// Above so many of one node, its whole directory is asked for: a list of their paths would not
/// fit into one question.
const MOST_PATHS: usize = 2000;

/// What one node has that is due.
#[derive(Debug)]
pub struct Source {
    /// The node.
    pub node: Name,
    /// Whose data.
    pub arrivals: Vec<Arrival>,
}

/// What is due, by the nodes that have it; each submission at the first that said so.
pub fn sources(view: &View) -> Vec<Source> {
    let mut nodes: BTreeMap<&Name, Vec<Arrival>> = BTreeMap::new();
    for arrival in view.due().filter_map(<[Arrival]>::first) {
        nodes.entry(&arrival.receipt.value().node).or_default().push(arrival.clone());
    }
    let source = |(node, arrivals): (&Name, _)| Source { node: node.clone(), arrivals };
    nodes.into_iter().map(source).collect()
}

impl Source {
    /// Absolute paths on the node, as `gather` takes them.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        let path = |arrival: &Arrival| arrival.delivery.path.clone();
        match (self.arrivals.len() > MOST_PATHS, self.arrivals.first().and_then(data_of)) {
            // `DIR/` is what is in DIR.
            (true, Some(data)) => vec![[&data[..], b"/"].concat()],
            _ => self.arrivals.iter().map(path).collect(),
        }
    }
}

/// `/a/data` of `/a/data/xx/ID`.
fn data_of(arrival: &Arrival) -> Option<Vec<u8>> {
    let path = &arrival.delivery.path;
    let mut slashes = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    slashes.nth(1).map(|at| path[..at].to_vec())
}

/// What became of one submission.
#[derive(Debug)]
pub struct Settled {
    /// Its stamp's number.
    pub number: u64,
    /// The file's name in the directory; or why it is not there.
    pub outcome: Result<PathBuf, String>,
}

/// Checks what has landed below `landing` against the commitments, and gives it its name in `into`,
/// its receipt beside. Durable when [`sync`] has returned. What does not match is thrown away.
pub fn settle(arrival: &Arrival, landing: &Path, into: &Path) -> Settled {
    let number = arrival.stamp.value().number;
    Settled { number, outcome: settled(arrival, landing, into) }
}

fn settled(arrival: &Arrival, landing: &Path, into: &Path) -> Result<PathBuf, String> {
    let stamp = arrival.stamp.value();
    let landed = landed(arrival, landing).ok_or("its data has not come")?;
    let failed = |e: io::Error| format!("{}: {e}", landed.display());
    if commitment(&landed, arrival).map_err(failed)? != stamp.commitment {
        fs::remove_file(&landed).map_err(failed)?;
        let node = &arrival.receipt.value().node;
        return Err(format!("what node `{node}` has does not match the commitment"));
    }
    let name = format!("{:06}-{}", stamp.number, stamp.label);
    let file = into.join(&name);
    save_evidence(&into.join(format!("{name}.receipt")), &evidence(arrival)).map_err(failed)?;
    fs::rename(&landed, &file).map_err(failed)?;
    Ok(file)
}

/// Where it is: asked for by itself, or with its directory.
fn landed(arrival: &Arrival, landing: &Path) -> Option<PathBuf> {
    let id = arrival.id().text();
    let places = [landing.join(&id), landing.join(&id[..2]).join(&id)];
    places.into_iter().find(|place| place.is_file())
}

fn commitment(file: &Path, arrival: &Arrival) -> io::Result<Commitment> {
    let client = arrival.stamp.value().client;
    let mut committing = Committing::new(&arrival.delivery.nonce, &client);
    let (mut file, mut buffer) = (File::open(file)?, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(committing.finish()),
            n => committing.update(&buffer[..n]),
        }
    }
}

/// What the destination keeps of it: the same as its client.
fn evidence(arrival: &Arrival) -> Evidence {
    let stamp = arrival.stamp.value();
    Evidence {
        drop_box: stamp.drop_box.clone(),
        destination: arrival.stamp.signer(),
        client: stamp.client,
        label: stamp.label.clone(),
        commitment: stamp.commitment,
        nonce: Some(arrival.delivery.nonce),
        stamp: Some(arrival.stamp.clone()),
        receipt: Some(arrival.receipt.clone()),
        sheet: None,
        roster: None,
    }
}

/// Takes this node's own data to where the others' lands.
///
/// # Errors
/// The system's.
pub fn take_own(arrival: &Arrival, landing: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let from = Path::new(std::ffi::OsStr::from_bytes(&arrival.delivery.path));
    let to = landing.join(arrival.id().text());
    match fs::hard_link(from, &to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // On another filesystem.
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => fs::copy(from, &to).map(drop),
        done => done,
    }
}

/// Makes all that was settled in this directory durable.
///
/// # Errors
/// The system's.
pub fn sync(into: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(into)?)?)
}
